// Values of a running job, read from outside: the right ones, of one round where there are rounds,
// for this user alone, and never in the way of the training.

#include "shm/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "base/memory_file.h"
#include "store/mode_change.h"
#include "store/open_store.h"
#include "store/shard_snapshot.h"
#include "tests/unit/shm/ps_thread.h"

namespace passel::shm::testing {
namespace {

using ::testing::HasSubstr;

StorePlan PlanOf(Mode mode, std::int64_t rows = 40) {
  StorePlan plan;
  plan.mode = mode;
  plan.num_workers = kWorkers;
  plan.optimizer = *ParseOptimizer("sgd");
  plan.optimizer.learning_rate = 1;
  std::vector<VariableInfo> variables(2);
  variables[0].name = variables[0].logical = "w";
  variables[0].shape = {rows, 7};
  variables[1].name = variables[1].logical = "b";
  variables[1].shape = {7};
  plan.variables = *VariableTable::Build(variables, 1);
  return plan;
}

// What a chief does: proposes, maps, opens.
struct Chief {
  Chief(const PsThread& ps, const StorePlan& plan) : client(*ps.Connect()) {
    bool need_plan = false;
    const auto none = client.GetArena(false, Soon(), &need_plan);
    EXPECT_TRUE(none.ok() && !none->has_value() && need_plan);
    Result<FileDescriptor> fd = client.ProposePlan(ToJson(plan), Soon());
    EXPECT_TRUE(fd.ok()) << fd.status().message();
    arena = std::make_unique<Arena>(std::move(*Arena::Adopt(std::move(*fd))));
  }
  std::unique_ptr<ParameterStore> Open(int worker) {
    const std::vector<ShardMemory> memory = {arena->memory()};
    auto store = OpenStore(arena->plan(), memory, worker, SelfIdentity(), WaitOptions());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }
  RendezvousClient client;
  std::unique_ptr<Arena> arena;
};

void FillWithPlaces(VarId id, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(1000 * id) + static_cast<float>(i);
  }
}

Status PushOnes(ParameterStore& store) {
  PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kView));
  const GradientBuffer gradient = store.LendGradient();
  for (VarId id = 0; id < store.variables().size(); ++id) {
    std::ranges::fill(gradient.values(id), -1.0F);
  }
  PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store.Push(gradient, view.stamp(), Soon()));
  return store.Wait(ticket, Soon()).status();
}

TEST(SnapshotTest, HoldsTheValuesOfARunningJob) {
  PsThread ps;
  Chief chief(ps, PlanOf(Mode::kHogwild));
  const auto store = chief.Open(0);
  ASSERT_TRUE(store->Initialize(FillWithPlaces).ok());
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(PushOnes(*store).ok());
  const Result<Snapshot> snapshot = TakeSnapshot(ps.job(), Soon());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->plan().Hash(), chief.arena->plan().Hash());
  EXPECT_EQ(snapshot->global_step(), 3);
  EXPECT_EQ(snapshot->last_global_step(), 3);
  EXPECT_FALSE(snapshot->exact()) << "a lock-free mode cannot promise it";
  ASSERT_EQ(snapshot->shard_values().size(), 1u);
  for (const VariableInfo& v : snapshot->plan().variables.all()) {
    const float* values = snapshot->shard_values()[0] + v.offset;
    for (std::size_t i = 0; i < v.elements; ++i) {
      ASSERT_EQ(values[i], (v.name == "b" ? 1000.0F : 0.0F) + static_cast<float>(i) + 3);
    }
  }
  ASSERT_TRUE(store->Leave().ok());
}

TEST(SnapshotTest, IsACopyThatLaterUpdatesDoNotReach) {
  PsThread ps;
  Chief chief(ps, PlanOf(Mode::kHogwild));
  const auto store = chief.Open(0);
  ASSERT_TRUE(store->Initialize(FillWithPlaces).ok());
  const Result<Snapshot> snapshot = TakeSnapshot(ps.job(), Soon());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  ASSERT_TRUE(PushOnes(*store).ok());
  EXPECT_EQ(snapshot->shard_values()[0][5], 5.0F);
  EXPECT_EQ(TakeSnapshot(ps.job(), Soon())->shard_values()[0][5], 6.0F);
}

// Every round adds one to all values: a mixture of two rounds shows at once.
TEST(SnapshotTest, OfRoundsIsOfOneRoundWhileTheyGoOn) {
  for (const Mode mode : {Mode::kBarrier, Mode::kReplicas}) {
    PsThread ps;
    Chief chief(ps, PlanOf(mode, 4000));
    std::atomic<bool> quit{false};
    std::vector<std::thread> workers;
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (int k = 0; k < kWorkers; ++k) stores.push_back(chief.Open(k));
    ASSERT_TRUE(
        stores[0]->Initialize([](VarId, std::span<float> v) { std::ranges::fill(v, 0.0F); }).ok());
    for (const auto& store : stores) {
      workers.emplace_back([&quit, &store] {
        ASSERT_TRUE(store->WaitUntilInitialized(Soon()).ok());
        while (!quit.load()) {
          const Status status = PushOnes(*store);
          if (!status.ok()) break;  // stopped
        }
      });
    }
    std::int64_t last = 0;
    int exact = 0;
    constexpr int kSnapshots = 50;
    for (int i = 0; i < kSnapshots; ++i) {
      const Result<Snapshot> snapshot = TakeSnapshot(ps.job(), Soon());
      ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
      EXPECT_GE(snapshot->global_step(), last);
      last = snapshot->global_step();
      if (!snapshot->exact()) continue;
      ++exact;
      EXPECT_EQ(snapshot->last_global_step(), snapshot->global_step());
      for (const VariableInfo& v : snapshot->plan().variables.all()) {
        for (std::size_t e = 0; e < v.elements; ++e) {
          ASSERT_EQ(snapshot->shard_values()[0][v.offset + e],
                    static_cast<float>(snapshot->global_step()));
        }
      }
    }
    EXPECT_GT(last, 0);
    // All but those that a crowded machine did not let finish between two rounds.
    EXPECT_GE(exact, kSnapshots / 2) << ModeName(mode);
    quit.store(true);
    stores[0]->Stop();
    for (std::thread& worker : workers) worker.join();
  }
}

TEST(SnapshotTest, WaitsForTheFirstValues) {
  PsThread ps;
  const Result<Snapshot> none =
      TakeSnapshot(ps.job(), Deadline::After(std::chrono::milliseconds(50)));
  ASSERT_EQ(none.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(none.status().message(), HasSubstr("worker/0"));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Chief chief(ps, PlanOf(Mode::kHogwild));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(chief.Open(0)->Initialize(FillWithPlaces).ok());
  });
  const Result<Snapshot> snapshot = TakeSnapshot(ps.job(), Soon());
  later.join();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->shard_values()[0][7], 7.0F);
}

TEST(SnapshotTest, OfAJobThatIsNotThereIsNotFoundAtOnce) {
  const Result<Snapshot> none = TakeSnapshot("no-such-job-of-this-test", Soon());
  ASSERT_EQ(none.status().code(), Code::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("passel ctl list"));
}

TEST(SnapshotTest, OfAPsThatDoesNotAnswerEndsAtTheDeadline) {
  const std::string job = fmt::format("snapshot-silent-{}", ::getpid());
  const Result<FileDescriptor> silent = ListenAbstract(EndpointName(job, Role::kPs, 0));
  ASSERT_TRUE(silent.ok());
  const Result<Snapshot> none = TakeSnapshot(job, Deadline::After(std::chrono::milliseconds(100)));
  ASSERT_EQ(none.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(none.status().message(), HasSubstr("ps/0 of job " + job));
}

// The asker can neither change what it got nor find a way from it to the arena.
TEST(SnapshotTest, HandsOutNothingThatCanBeWritten) {
  PsThread ps;
  Chief chief(ps, PlanOf(Mode::kHogwild));
  ASSERT_TRUE(chief.Open(0)->Initialize(FillWithPlaces).ok());
  RendezvousClient client =
      *RendezvousClient::Connect(ps.Me(Role::kControl), Role::kPs, 0, nullptr, Soon());
  Result<ShardSnapshot> part = client.GetSnapshot(true, Soon());
  ASSERT_TRUE(part.ok() && part->there);
  for (const int fd : {part->values.get(), part->plan.get()}) {
    std::size_t bytes = 0;
    EXPECT_TRUE(CheckConstant(fd, &bytes).ok());
    EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
    EXPECT_NE(::ftruncate(fd, 0), 0);
  }
  bool need_plan = false;
  EXPECT_EQ(client.GetArena(false, Soon(), &need_plan).status().code(), Code::kPermissionDenied);
  const Result<ShardSnapshot> step = client.GetSnapshot(false, Soon());
  ASSERT_TRUE(step.ok() && step->there);
  EXPECT_FALSE(step->values.valid());
}

TEST(SnapshotTest, AskedForAgainAndAgainLeavesNoDescriptorBehind) {
  PsThread ps;
  Chief chief(ps, PlanOf(Mode::kHogwild));
  ASSERT_TRUE(chief.Open(0)->Initialize(FillWithPlaces).ok());
  ASSERT_TRUE(TakeSnapshot(ps.job(), Soon()).ok());
  ASSERT_TRUE(ps.Serves());
  const std::size_t before = OpenDescriptors();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(TakeSnapshot(ps.job(), Soon()).ok());
  ASSERT_TRUE(ps.Serves());
  // The server sees a connection's end at its next look.
  for (int i = 0; i < 100 && OpenDescriptors() > before + 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_LE(OpenDescriptors(), before + 2);
}

TEST(ShardCopyTest, NamesTheLimitWhenThereIsNoMemoryForIt) {
  PsThread ps;
  Chief chief(ps, PlanOf(Mode::kHogwild));
  ASSERT_TRUE(chief.Open(0)->Initialize(FillWithPlaces).ok());
  const Result<ShardCopy> copy = CopyShard(chief.arena->memory(), true, {100, "the test"});
  ASSERT_EQ(copy.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(copy.status().message(), HasSubstr("the test has 100 bytes free"));
  EXPECT_THAT(copy.status().message(), HasSubstr("cannot copy the values"));
}

TEST(ShardCopyTest, GoesByTheModeInForceNotByTheFirstOne) {
  PsThread ps;
  StorePlan plan = PlanOf(Mode::kReplicas);
  plan.mode.number = 1;
  Chief chief(ps, plan);
  const auto store = chief.Open(0);
  ASSERT_TRUE(store->Initialize(FillWithPlaces).ok());
  const MemoryBudget plenty{std::uint64_t{64} << 20, "the test"};
  const ShardMemory& memory = chief.arena->memory();
  ASSERT_TRUE(PushOnes(*store).ok());
  EXPECT_EQ(CopyShard(chief.arena->memory(), true, plenty)->exact_round, 1u);
  ASSERT_TRUE(WishForMode(memory, {Mode::kHogwild}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushOnes(*store).ok());
  ASSERT_EQ(store->mode(), Mode::kHogwild);
  const Result<ShardCopy> copy = CopyShard(chief.arena->memory(), true, plenty);
  EXPECT_EQ(copy->exact_round, std::nullopt) << "the blocks still say the last round";
  EXPECT_FALSE(copy->rounds);
  EXPECT_EQ(copy->last_global_step, 4);
  ASSERT_TRUE(WishForMode(memory, {Mode::kReplicas, 1}).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(PushOnes(*store).ok());
  EXPECT_EQ(CopyShard(chief.arena->memory(), true, plenty)->exact_round, 6u);
  EXPECT_TRUE(CopyShard(chief.arena->memory(), true, plenty)->rounds);
}

// A block that is claimed, or that has seen another round than the rest, is no settled round.
TEST(ShardCopyTest, IsNeverExactWhileABlockIsAtWork) {
  PsThread ps;
  Chief chief(ps, PlanOf(Mode::kBarrier, 4000));
  ASSERT_TRUE(chief.Open(0)->Initialize(FillWithPlaces).ok());
  const MemoryBudget plenty{std::uint64_t{64} << 20, "the test"};
  const ShardMemory& memory = chief.arena->memory();
  ASSERT_GT(memory.num_blocks, 2u);
  EXPECT_EQ(CopyShard(chief.arena->memory(), true, plenty)->exact_round, 0u);
  memory.blocks[1].claim.store(Claim{1, 0}.Pack());
  EXPECT_EQ(CopyShard(chief.arena->memory(), true, plenty)->exact_round, std::nullopt);
  memory.blocks[1].claim.store(0);
  memory.blocks[1].round.store(1);
  EXPECT_EQ(CopyShard(chief.arena->memory(), true, plenty)->exact_round, std::nullopt);
  memory.blocks[1].round.store(0);
  memory.state->completed_round.store(1);
  EXPECT_EQ(CopyShard(chief.arena->memory(), true, plenty)->exact_round, std::nullopt);
}

// --- Whom to believe
// ------------------------------------------------------------------------------

// A process in the place of ps/0 that answers what the test wants.
class FalsePs {
 public:
  FalsePs(nlohmann::json answer, std::vector<FileDescriptor> fds)
      : answer_(std::move(answer)), fds_(std::move(fds)), thread_([this] { Serve(); }) {}
  ~FalsePs() {
    quit_.store(true);
    thread_.join();
  }
  const std::string& job() const { return job_; }

 private:
  void Serve() {
    while (!quit_.load()) {
      const Result<FileDescriptor> client = AcceptConnection(listening_.get());
      if (!client.ok()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      Answer(client->get(), {{"ok", true}}, {});  // the hello
      std::vector<int> fds;
      for (const FileDescriptor& fd : fds_) fds.push_back(fd.get());
      Answer(client->get(), answer_, fds);
      (void)ReceiveMessage(client->get(), Soon());  // its end
    }
  }
  static void Answer(int fd, const nlohmann::json& json, std::span<const int> fds) {
    if (!ReceiveMessage(fd, Soon()).ok()) return;
    const std::string text = json.dump();
    (void)SendMessage(fd, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds,
                      Soon());
  }

  const std::string job_ =
      fmt::format("snapshot-false-{}-{}", ::getpid(), MakeNonce().substr(0, 8));
  const nlohmann::json answer_;
  const std::vector<FileDescriptor> fds_;
  const FileDescriptor listening_ = std::move(*ListenAbstract(EndpointName(job_, Role::kPs, 0)));
  std::atomic<bool> quit_{false};
  std::thread thread_;
};

Status SnapshotFrom(const nlohmann::json& answer, FileDescriptor values, FileDescriptor plan,
                    std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  std::vector<FileDescriptor> fds;
  if (values.valid()) fds.push_back(std::move(values));
  if (plan.valid()) fds.push_back(std::move(plan));
  FalsePs ps(answer, std::move(fds));
  return TakeSnapshot(ps.job(), Deadline::After(limit)).status();
}

FileDescriptor Constant(const std::string& text) {
  return std::move(*CreateConstantFile("passel.test", text.data(), text.size()));
}

TEST(SnapshotTrustTest, NothingThatAPsHandsOverIsBelievedUnchecked) {
  const nlohmann::json good = {{"snapshot", true}, {"global_step", 3}, {"last_global_step", 3}};
  const StorePlan plan = PlanOf(Mode::kHogwild);
  const std::string plan_text = ToJson(plan);
  const std::string values(plan.variables.ShardFloats(0) * sizeof(float), '\0');
  EXPECT_TRUE(SnapshotFrom(good, Constant(values), Constant(plan_text)).ok());

  EXPECT_EQ(SnapshotFrom(good, Constant(values), {}).code(), Code::kDataLoss) << "one descriptor";
  EXPECT_EQ(SnapshotFrom(good, {}, {}).code(), Code::kDataLoss);
  EXPECT_EQ(SnapshotFrom({{"ok", true}, {"snapshot", false}}, {}, {}, std::chrono::milliseconds(60))
                .code(),
            Code::kDeadlineExceeded)
      << "no values yet, for ever";
  for (const char* name : {"snapshot", "global_step", "rounds", "exact_round", "chief"}) {
    nlohmann::json wrong = good;
    wrong[name] = nlohmann::json::array();
    const Status status = SnapshotFrom(wrong, Constant(values), Constant(plan_text));
    EXPECT_EQ(status.code(), Code::kDataLoss) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
  // Values that are too few, no memory file, or that their giver could change.
  EXPECT_EQ(SnapshotFrom(good, Constant(values.substr(4)), Constant(plan_text)).code(),
            Code::kDataLoss);
  EXPECT_EQ(SnapshotFrom(good, FileDescriptor(::open("/dev/zero", O_RDONLY | O_CLOEXEC)),
                         Constant(plan_text))
                .code(),
            Code::kFailedPrecondition);
  Result<MemoryFile> open = CreateMemoryFile("passel.test", values.size(), HugePages::kOff,
                                             {std::uint64_t{1} << 20, "the test"});
  ASSERT_TRUE(open.ok());
  const Status changeable = SnapshotFrom(good, std::move(open->fd), Constant(plan_text));
  EXPECT_EQ(changeable.code(), Code::kFailedPrecondition);
  EXPECT_THAT(changeable.message(), HasSubstr("sealed against writing"));
  // A plan that is none.
  const Status no_plan = SnapshotFrom(good, Constant(values), Constant("{}"));
  EXPECT_EQ(no_plan.code(), Code::kInvalidArgument);
  EXPECT_THAT(no_plan.message(), HasSubstr("another build"));
  for (std::size_t cut = 1; cut < plan_text.size(); cut += 97) {
    EXPECT_FALSE(SnapshotFrom(good, Constant(values), Constant(plan_text.substr(0, cut))).ok());
  }
}

}  // namespace
}  // namespace passel::shm::testing
