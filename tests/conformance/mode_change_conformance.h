// The mode changes while workers train: no update is lost or counted twice, everyone goes on in the
// new mode from the same step, and who dies, joins or stops on the way holds nobody up.
//
// Workers are threads. Every gradient is -1 under SGD with rate 1, so where no collisions are
// allowed every value equals the number of updates. The host must let its memory be seen.

#pragma once

#include <atomic>
#include <functional>

#include "base/random.h"
#include "conformance/mode_plans.h"

namespace passel::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);  // only its plan is used here

namespace mode_change {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kWorkers = 3;

inline WaitOptions Quick() {
  WaitOptions options;
  options.spin = microseconds(20);
  return options;
}

// What a worker saw, to be checked against what the job says of its modes.
struct Update {
  ModeSetting mode;
  std::int64_t global_step;
  bool round;
};
struct Log {
  std::vector<Update> applied;
  std::uint64_t dropped = 0;
  std::uint64_t unfinished = 0;  // gradients of a set that is not complete
};

// Steps until the job is stopped, or `leave` says so between two steps. `patience`: of one Wait(),
// after a short first one.
inline void Train(ParameterStore& store, const ShardMemory& lead, Random random,
                  microseconds patience, Log* log, const std::function<bool()>& leave) {
  const std::uint64_t most = 1 + random.Below(120);
  while (!leave()) {
    const ModeWord before = CurrentMode(lead);
    auto view = store.Pull(PullMode::kView);
    if (view.status().code() == Code::kCancelled) return;
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    GradientBuffer buffer = store.LendGradient();
    FillGradient(store, buffer, -1);
    if (const std::uint64_t us = random.Below(most); us > 20) {
      std::this_thread::sleep_for(microseconds(us));
    }
    // Others' changes wait for us: within a step the mode is one.
    ASSERT_EQ(CurrentMode(lead).number, before.number);
    const Result<Ticket> ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
    if (ticket.status().code() == Code::kCancelled) return;
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    Result<PushOutcome> outcome = store.Wait(*ticket, Deadline::After(microseconds(300)));
    while (outcome.status().code() == Code::kDeadlineExceeded) {
      outcome = store.Wait(*ticket, Deadline::After(patience));
    }
    if (outcome.status().code() == Code::kCancelled) return;
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    log->unfinished = outcome->gradients == 0 ? log->unfinished + 1 : 0;
    if (!outcome->applied) {
      log->dropped += static_cast<std::uint64_t>(outcome->gradients);
    } else if (outcome->gradients > 0) {
      log->applied.push_back(
          {before.setting, outcome->global_step, IsRoundMode(before.setting.mode)});
    }
  }
}

class Job {
 public:
  Job(const StorePlan& plan, const StoreCase& on, std::uint64_t seed,
      microseconds patience = milliseconds(20))
      : plan_(plan),
        host_(on.make(plan)),
        seed_(seed),
        patience_(patience),
        logs_(plan.num_workers) {
    memory_ = host_->Memory();
  }
  ~Job() {
    Stop();
    for (std::thread& t : threads_) t.join();
  }

  const ShardMemory& lead() const { return memory_[0]; }
  StoreHost& host() { return *host_; }
  std::int64_t global_step() const { return lead().state->global_step.load(); }

  void Start() {
    std::atomic<int> ready{0};
    for (int k = 0; k < plan_.num_workers; ++k) {
      threads_.emplace_back([this, k, &ready] {
        auto opened = host_->Open(k, Quick());
        PASSEL_CHECK(opened.ok(), opened.status().message().c_str());
        ParameterStore& store = **opened;
        if (k == 0) InitializeTo(store, 0);
        const Status status = store.WaitUntilInitialized(Deadline::After(kLong));
        ASSERT_TRUE(status.ok()) << status.ToString();
        ready.fetch_add(1);
        Train(store, lead(), Random(StreamSeed(seed_, static_cast<std::uint64_t>(k))), patience_,
              &logs_[static_cast<std::size_t>(k)], [this] { return ending_.load(); });
        EXPECT_TRUE(store.Leave().ok());
      });
    }
    while (ready.load() < plan_.num_workers) std::this_thread::yield();
  }

  /// Everyone leaves after a whole step. Stop() may come in the middle of a push.
  void End() {
    ending_.store(true);
    Join();
  }
  void Stop() {
    for (const ShardMemory& m : memory_) {
      m.state->stop.store(1);
      Notify(m.state->event);
    }
  }
  void Join() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

  ::testing::AssertionResult AwaitStep(std::int64_t step) {
    return Await([&] { return global_step() >= step; }, "global step " + std::to_string(step));
  }
  ::testing::AssertionResult AwaitMode(std::uint32_t number) {
    return Await([&] { return CurrentMode(lead()).number >= number; },
                 "mode number " + std::to_string(number));
  }
  void ChangeTo(const ModeSetting& setting) {
    const Result<std::uint32_t> number = WishForMode(lead(), setting);
    ASSERT_TRUE(number.ok()) << number.status().ToString();
    ASSERT_TRUE(AwaitMode(*number));
    ASSERT_EQ(CurrentMode(lead()).setting.mode, setting.mode);
  }

  /// After the end: what the workers were told fits what the job says, and the values fit both.
  /// `meetings`: changes of the mode to the same one.
  void Check(std::uint32_t meetings = 0) {
    const std::vector<PastMode> modes = ModesSoFar(lead());
    ASSERT_EQ(modes.size() + meetings, CurrentMode(lead()).number + 1);
    for (std::size_t i = 1; i < modes.size(); ++i) ASSERT_GE(modes[i].since, modes[i - 1].since);
    std::map<std::int64_t, int> updates;  // their number, and how many workers speak of it
    bool lossless = true;
    for (const PastMode& mode : modes) lossless &= IsLossless(mode.setting.mode);
    for (std::size_t k = 0; k < logs_.size(); ++k) {
      const Log& log = logs_[k];
      for (const Update& update : log.applied) {
        std::size_t in = modes.size() - 1;
        while (in > 0 && modes[in].since >= update.global_step) --in;
        EXPECT_EQ(update.mode, modes[in].setting)
            << "update " << update.global_step << " was made in mode " << update.mode.ToString();
        const int speak = ++updates[update.global_step];
        if (!update.round) {
          EXPECT_EQ(speak, 1) << "update " << update.global_step << " has two makers";
        }
      }
      EXPECT_EQ(lead().tasks[k].counters.dropped.load(), log.dropped + log.unfinished);
      EXPECT_EQ(lead().tasks[k].counters.half_applied.load(), 0u);
    }
    EXPECT_EQ(static_cast<std::int64_t>(updates.size()), global_step()) << "none without a maker";
    for (const ShardMemory& m : memory_) {
      for (const VariableInfo& v : plan_.variables.all()) {
        if (memory_[static_cast<std::size_t>(v.shard)].values != m.values) continue;
        for (std::size_t i = 0; i < v.elements; ++i) {
          const float value = m.values[v.offset + i];
          if (lossless) {
            ASSERT_EQ(value, static_cast<float>(global_step())) << v.name << "[" << i << "]";
          } else {
            ASSERT_LE(value, static_cast<float>(global_step())) << v.name << "[" << i << "]";
          }
        }
      }
    }
  }

  template <typename Condition>
  ::testing::AssertionResult Await(Condition&& condition, const std::string& what) {
    const Deadline deadline = Deadline::After(kLong / 2);
    while (!condition()) {
      if (deadline.Expired()) {
        return ::testing::AssertionFailure()
               << what << " did not come; the step is " << global_step();
      }
      std::this_thread::sleep_for(microseconds(100));
    }
    return ::testing::AssertionSuccess();
  }

 private:
  const StorePlan plan_;
  const std::unique_ptr<StoreHost> host_;
  const std::uint64_t seed_;
  const microseconds patience_;
  std::vector<Log> logs_;
  std::vector<ShardMemory> memory_;
  std::atomic<bool> ending_{false};
  std::vector<std::thread> threads_;
};

constexpr const char* kSettings[] = {"hogwild",    "locked",     "barrier", "replicas=2",
                                     "replicas=3", "replicas=5", "ssp=0",   "ssp=2"};

class ModeChange : public ::testing::TestWithParam<StoreCase> {
 protected:
  int shards() const { return GetParam().shards; }
};

TEST_P(ModeChange, FromEveryModeToEveryOther) {
  int pairs = 0;
  for (const char* from : kSettings) {
    for (const char* to : kSettings) {
      if (std::string(from) == to || pairs++ % GetParam().part != 0) continue;
      SCOPED_TRACE(std::string(from) + " to " + to);
      Job job(PlanIn(Setting(from), shards(), kWorkers), GetParam(), 7);
      job.Start();
      ASSERT_TRUE(job.AwaitStep(20));
      ASSERT_NO_FATAL_FAILURE(job.ChangeTo(Setting(to)));
      const std::int64_t since = ModesSoFar(job.lead()).back().since;
      EXPECT_GE(since, 20);
      ASSERT_TRUE(job.AwaitStep(since + 20));
      job.End();
      ASSERT_NO_FATAL_FAILURE(job.Check());
      for (const Mode mode : {Setting(from).mode, Setting(to).mode}) {
        if (mode != Mode::kSsp) continue;
        std::uint64_t lead = 0;
        for (int k = 0; k < kWorkers; ++k) {
          lead = std::max(lead, job.lead().tasks[k].counters.max_clock_lead.load());
        }
        EXPECT_LE(lead,
                  static_cast<std::uint64_t>(std::max(Setting(from).number, Setting(to).number)));
      }
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Who waits for a change looks again and again whether it is still due, and the others publish it
// at any time between two looks.
TEST_P(ModeChange, WhoAsksAgainAndAgainDoesNotMissIt) {
  for (int round = 0; round < 30 / GetParam().part; ++round) {
    for (const auto& [from, to] :
         {std::pair("ssp=0", "replicas=3"), std::pair("replicas=5", "replicas=2")}) {
      SCOPED_TRACE(std::string(from) + " to " + to + ", " + std::to_string(round));
      Job job(PlanIn(Setting(from), shards(), kWorkers), GetParam(), 100 + round, microseconds(0));
      job.Start();
      ASSERT_TRUE(job.AwaitStep(3));
      ASSERT_NO_FATAL_FAILURE(job.ChangeTo(Setting(to)));
      ASSERT_TRUE(job.AwaitStep(ModesSoFar(job.lead()).back().since + 5));
      job.End();
      ASSERT_NO_FATAL_FAILURE(job.Check());
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(ModeChange, ManyChangesInARow) {
  for (const bool lossless : {true, false}) {
    const std::uint64_t seed = 3 + (lossless ? 0 : 1);
    Random random(seed);
    Job job(PlanIn(Setting("barrier"), shards(), kWorkers), GetParam(), seed);
    job.Start();
    std::uint32_t number = 0;
    while (number < 15) {
      ModeSetting to = Setting(kSettings[random.Below(std::size(kSettings))]);
      if (lossless && !IsLossless(to.mode)) continue;
      ASSERT_NO_FATAL_FAILURE(job.ChangeTo(to));
      number = CurrentMode(job.lead()).number;
      if (random.Below(2) == 0) std::this_thread::sleep_for(microseconds(random.Below(3000)));
    }
    job.End();
    ASSERT_NO_FATAL_FAILURE(job.Check());
  }
}

TEST_P(ModeChange, TheScheduleIsKeptToTheStep) {
  StorePlan plan = PlanIn(Setting("barrier"), shards(), kWorkers);
  plan.schedule = {{30, Setting("hogwild")},    {60, Setting("replicas=2")},
                   {90, Setting("ssp=1")},      {120, Setting("locked")},
                   {121, Setting("barrier")},   {150, Setting("barrier")},
                   {151, Setting("replicas=3")}};
  ASSERT_TRUE(plan.Validate().ok());
  Job job(plan, GetParam(), 11);
  job.Start();
  ASSERT_TRUE(job.AwaitStep(200));
  job.End();
  ASSERT_NO_FATAL_FAILURE(job.Check());
  const std::vector<PastMode> modes = ModesSoFar(job.lead());
  ASSERT_EQ(modes.size(), 8u);
  const auto since = [&](std::size_t i) { return modes[i].since; };
  EXPECT_EQ(since(0), 0);
  for (std::size_t i = 1; i < modes.size(); ++i) {
    EXPECT_EQ(modes[i].setting, plan.schedule[i - 1].setting);
    const bool from_rounds = IsRoundMode(modes[i - 1].setting.mode);
    if (i == 5) continue;  // asked for while the one before was being entered
    EXPECT_GE(since(i), plan.schedule[i - 1].step);
    // Without rounds every worker may be within a step when it is reached. A mode with rounds that
    // begins late has one.
    const std::int64_t most =
        from_rounds ? std::max(plan.schedule[i - 1].step, since(i - 1) + 1)
                    : std::max(plan.schedule[i - 1].step, since(i - 1)) + kWorkers - 1;
    EXPECT_LE(since(i), most) << i;
  }
  EXPECT_EQ(since(1), 30);
  EXPECT_EQ(since(3), 90);
}

TEST_P(ModeChange, WhoDiesLeavesOrJoinsWhileItIsUnderWayHoldsUpNobody) {
  for (const char* from : {"hogwild", "barrier", "replicas=2", "ssp=1"}) {
    for (const std::string how : {"dies", "leaves", "is evicted", "dies and comes back"}) {
      SCOPED_TRACE(std::string(from) + ", the last one " + how);
      const StorePlan plan = PlanIn(Setting(from), shards(), kWorkers);
      const auto host = GetParam().make(plan);
      const std::vector<ShardMemory> memory = host->Memory();
      std::vector<std::unique_ptr<ParameterStore>> stores;
      for (int k = 0; k < kWorkers; ++k) stores.push_back(std::move(*host->Open(k, Quick())));
      InitializeTo(*stores[0], 0);
      for (const auto& s : stores)
        ASSERT_TRUE(s->WaitUntilInitialized(Deadline::After(kLong)).ok());
      const Result<std::uint32_t> number = WishForMode(memory[0], Setting("locked"));
      ASSERT_TRUE(number.ok());
      std::atomic<int> through{0};
      std::vector<std::thread> others;
      const auto train_until_changed = [&](ParameterStore& store) {
        while (CurrentMode(memory[0]).number < *number) {
          const auto ticket = PushOnly(store, -1);
          ASSERT_TRUE(ticket.ok());
          const auto outcome = store.Wait(*ticket, Deadline::After(kLong));
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        }
        through.fetch_add(1);
      };
      for (std::size_t k = 0; k < kWorkers - 1; ++k) {
        others.emplace_back([&, k] { train_until_changed(*stores[k]); });
      }
      std::this_thread::sleep_for(milliseconds(30));
      EXPECT_EQ(CurrentMode(memory[0]).number, *number - 1) << "worker/2 is in its step";
      std::unique_ptr<ParameterStore> again;
      std::thread joiner;
      const std::int64_t begin = MonotonicNs();
      if (how == "leaves") {
        EXPECT_TRUE(stores[2]->Leave().ok());
      } else {
        for (const ShardMemory& m : memory) {
          EXPECT_TRUE(how == "is evicted" ? Evict(m, 2, 1) : MarkDead(m, 2, 1));
        }
      }
      if (how == "dies and comes back") {
        joiner = std::thread([&] {
          again = std::move(*host->Open(2, Quick()));
          const Status status = again->WaitUntilInitialized(Deadline::After(kLong));
          EXPECT_TRUE(status.ok()) << status.ToString();
          train_until_changed(*again);
        });
      }
      for (std::thread& t : others) t.join();
      if (joiner.joinable()) joiner.join();
      EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
      EXPECT_EQ(through.load(), again != nullptr ? kWorkers : kWorkers - 1);
      EXPECT_EQ(CurrentMode(memory[0]).setting.mode, Mode::kLocked);
      for (const auto* store : {&stores[0], &stores[1], &again}) {
        if (*store != nullptr) {
          EXPECT_EQ((*store)->mode(), Mode::kLocked);
        }
      }
      // Whoever was taken for dead is fenced off, and changes nothing.
      EXPECT_EQ(PushOnly(*stores[2], -1).status().code(), Code::kAborted);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(ModeChange, AStopEndsTheWaitOfWhoHasArrived) {
  const StorePlan plan = PlanIn(Setting("hogwild"), shards(), 2);
  const auto host = GetParam().make(plan);
  const std::vector<ShardMemory> memory = host->Memory();
  auto a = std::move(*host->Open(0, Quick()));
  auto b = std::move(*host->Open(1, Quick()));
  InitializeTo(*a, 0);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(WishForMode(memory[0], Setting("barrier")).ok());
  const Ticket ticket = *PushOnly(*a, -1);
  const Result<PushOutcome> early = a->Wait(ticket, Deadline::After(milliseconds(60)));
  EXPECT_EQ(early.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(early.status().message(), ::testing::HasSubstr("worker/1"));
  ASSERT_EQ(a->WaitingFor().size(), 1u);
  EXPECT_EQ(a->WaitingFor()[0].worker, 1);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(30));
    b->Stop();
  });
  const Result<PushOutcome> outcome = a->Wait(ticket, Deadline::After(kLong));
  stopper.join();
  ASSERT_TRUE(outcome.ok()) << "the push stands: " << outcome.status().ToString();
  EXPECT_TRUE(outcome->applied);
  EXPECT_EQ(outcome->global_step, 1);
  EXPECT_EQ(a->Pull(PullMode::kView).status().code(), Code::kCancelled);
  EXPECT_EQ(WishForMode(memory[0], Setting("locked")).status().code(), Code::kFailedPrecondition);
}

TEST_P(ModeChange, AWorkerThatDoesNotAnswerIsEvictedAfterTheStallLimit) {
  const StorePlan plan = PlanIn(Setting("hogwild"), shards(), 2);
  const auto host = GetParam().make(plan);
  const std::vector<ShardMemory> memory = host->Memory();
  WaitOptions options = Quick();
  options.stall_limit = milliseconds(200);
  auto a = std::move(*host->Open(0, options));
  auto b = std::move(*host->Open(1, options));
  InitializeTo(*a, 0);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(WishForMode(memory[0], Setting("barrier")).ok());
  const Ticket ticket = *PushOnly(*a, -1);
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(a->Wait(ticket, Deadline::After(kLong)).ok());
  EXPECT_GE(MonotonicNs() - begin, 150'000'000);
  EXPECT_EQ(a->mode(), Mode::kBarrier);
  EXPECT_EQ(a->membership()[1].phase, Phase::kEvicted);
  // What it pushes now comes from another time.
  EXPECT_EQ(b->Pull(PullMode::kView).status().code(), Code::kAborted);
}

TEST_P(ModeChange, WishesAreChecked) {
  const StorePlan plan = PlanIn(Setting("hogwild"), shards(), 2);
  const auto host = GetParam().make(plan);
  const ShardMemory lead = host->Memory()[0];
  EXPECT_EQ(*WishForMode(lead, Setting("hogwild")), 0u) << "it is in force already";
  EXPECT_FALSE(WishedMode(lead).has_value());
  for (const ModeSetting wrong :
       {ModeSetting{Mode::kBarrier, 2}, ModeSetting{Mode::kLocked, 1},
        ModeSetting{Mode::kReplicas, 65'537}, ModeSetting{Mode::kSsp, 1'000'001},
        ModeSetting{Mode::kSsp, -1}}) {
    EXPECT_EQ(WishForMode(lead, wrong).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(*WishForMode(lead, Setting("replicas")), 1u);
  EXPECT_EQ(*WishForMode(lead, Setting("replicas=2")), 1u) << "the same, for two workers";
  const Result<std::uint32_t> other = WishForMode(lead, Setting("ssp=0"));
  EXPECT_EQ(other.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(other.status().message(), ::testing::HasSubstr("replicas=2"));
  ASSERT_TRUE(WishedMode(lead).has_value());
  // Nobody runs: the first one that comes changes it before its first step.
  auto a = std::move(*host->Open(0, Quick()));
  InitializeTo(*a, 0);
  ASSERT_TRUE(a->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(a->mode(), Mode::kReplicas);
  EXPECT_FALSE(WishedMode(lead).has_value());
  EXPECT_EQ(ModesSoFar(lead).size(), 2u);
}

}  // namespace mode_change

using ModeChange = mode_change::ModeChange;

}  // namespace passel::testing
