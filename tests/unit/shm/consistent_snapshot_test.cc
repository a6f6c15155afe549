// Values of one step for readers who may write nothing: the ps has the workers meet for them, and
// whatever the reader does then costs the training no more than the lease.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/memory_file.h"
#include "shm/snapshot.h"
#include "store/meeting.h"
#include "store/open_store.h"
#include "tests/unit/shm/ps_thread.h"

namespace passel::shm::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kFloats = 1 << 20;

// One worker that adds one to all values in each step, as fast as it can.
class Counting {
 public:
  Counting() {
    StorePlan plan;
    plan.mode = Mode::kHogwild;
    plan.num_workers = kWorkers;
    plan.optimizer = *ParseOptimizer("sgd");
    plan.optimizer.learning_rate = 1;
    VariableInfo v;
    v.name = v.logical = "w";
    v.shape = {kFloats};
    plan.variables = *VariableTable::Build({v}, 1);
    bool need_plan = false;
    (void)chief_.GetArena(false, Soon(), &need_plan);
    arena_ = std::make_unique<Arena>(
        std::move(*Arena::Adopt(std::move(*chief_.ProposePlan(ToJson(plan), Soon())))));
    const std::vector<ShardMemory> memory = {arena_->memory()};
    store_ = std::move(*OpenStore(arena_->plan(), memory, 0, SelfIdentity(), WaitOptions()));
    const auto zeros = [](VarId, std::span<float> to) { std::ranges::fill(to, 0.0F); };
    EXPECT_TRUE(store_->Initialize(zeros).ok());
    worker_ = std::thread([this] {
      while (Step()) {
      }
    });
  }
  ~Counting() {
    store_->Stop();
    worker_.join();
  }
  const PsThread& ps() const { return ps_; }
  std::int64_t step() const { return store_->global_step(); }
  bool Advances(std::chrono::milliseconds limit) const {
    const std::int64_t before = step();
    const Deadline deadline = Deadline::After(limit);
    while (step() < before + 2 && !deadline.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return step() >= before + 2;
  }

 private:
  bool Step() {
    const auto view = store_->Pull(PullMode::kView);
    if (!view.ok()) return false;
    const GradientBuffer buffer = store_->LendGradient();
    std::ranges::fill(buffer.values(0), -1.0F);
    const auto ticket = store_->Push(buffer, view->stamp(), Soon());
    return ticket.ok() && store_->Wait(*ticket, Soon()).ok();
  }
  PsThread ps_;
  RendezvousClient chief_ = *ps_.Connect();
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ParameterStore> store_;
  std::thread worker_;
};

Result<RendezvousClient> Reader(const Counting& job) {
  return RendezvousClient::Control(job.ps().job(), 0, Soon());
}

TEST(ConsistentSnapshotTest, AllOfItIsOfTheStepThatItNames) {
  const Counting job;
  std::int64_t last = -1;
  for (int i = 0; i < 4; ++i) {
    const Result<Snapshot> snapshot = TakeConsistentSnapshot(job.ps().job(), Soon());
    ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
    EXPECT_TRUE(snapshot->exact());
    EXPECT_EQ(snapshot->global_step(), snapshot->last_global_step());
    EXPECT_GT(snapshot->global_step(), last);
    last = snapshot->global_step();
    const std::span<const float> values(snapshot->shard_values()[0], kFloats);
    EXPECT_EQ(std::ranges::count(values, static_cast<float>(last)), kFloats);
    EXPECT_GT(snapshot->meeting_cost().held.count(), 0);
  }
  EXPECT_TRUE(job.Advances(std::chrono::seconds(5)));
}

TEST(ConsistentSnapshotTest, AReaderThatIsGoneHoldsNobodyUp) {
  const Counting job;
  {
    Result<RendezvousClient> reader = Reader(job);
    ASSERT_TRUE(reader.ok());
    const Result<std::int64_t> met = reader->Meet(Soon());
    ASSERT_TRUE(met.ok()) << met.status().ToString();
    EXPECT_EQ(job.step(), *met);
    EXPECT_EQ(*reader->Meet(Soon()), *met) << "they wait on";
    EXPECT_EQ(job.step(), *met);
  }
  EXPECT_TRUE(job.Advances(Meeting::kLease / 2)) << "the end of its connection is enough";
}

TEST(ConsistentSnapshotTest, AReaderThatSaysNothingCostsTheLease) {
  const Counting job;
  Result<RendezvousClient> reader = Reader(job);
  ASSERT_TRUE(reader.ok());
  const Result<std::int64_t> met = reader->Meet(Soon());
  ASSERT_TRUE(met.ok()) << met.status().ToString();
  EXPECT_TRUE(job.Advances(2 * Meeting::kLease));
  EXPECT_EQ(reader->GoOn(Soon()).status().code(), Code::kAborted);
  EXPECT_TRUE(job.ps().Serves());
}

TEST(ConsistentSnapshotTest, ReadersTakeTurns) {
  const Counting job;
  std::vector<std::thread> readers;
  for (int k = 0; k < 3; ++k) {
    readers.emplace_back([&] {
      for (int i = 0; i < 2; ++i) {
        const Result<Snapshot> snapshot = TakeConsistentSnapshot(job.ps().job(), Soon());
        EXPECT_TRUE(snapshot.ok()) << snapshot.status().ToString();
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
}

// However often they read, the workers have four fifths of their time.
TEST(ConsistentSnapshotTest, AfterALongMeetingTheWorkersTrainForLonger) {
  const Counting job;
  constexpr std::chrono::milliseconds kHeld{250};
  Result<RendezvousClient> reader = Reader(job);
  ASSERT_TRUE(reader->Meet(Soon()).ok());
  std::this_thread::sleep_for(kHeld);
  ASSERT_TRUE(reader->GoOn(Soon()).ok());
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(reader->Meet(Soon()).ok());
  EXPECT_GT(MonotonicNs() - begin, std::chrono::nanoseconds(3 * kHeld).count());
}

TEST(ConsistentSnapshotTest, WhatAReaderSaysOutOfTurnIsRefused) {
  const Counting job;
  Result<RendezvousClient> reader = Reader(job);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->GoOn(Soon()).status().code(), Code::kAborted);
  ASSERT_TRUE(reader->Meet(Soon()).ok());
  Result<RendezvousClient> other = Reader(job);
  EXPECT_EQ(other->GoOn(Soon()).status().code(), Code::kAborted) << "not its meeting";
  // Memory that could be taken from under the ps, or that is too small.
  const auto refused = [&](int fd) {
    Result<RendezvousClient> third = Reader(job);
    EXPECT_TRUE(third->BeginCopy(fd, Soon()).ok());
    return third->CopyIsMade(Soon()).code();
  };
  FileDescriptor unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kFloats * 4), 0);
  EXPECT_EQ(refused(unsealed.get()), Code::kDataLoss);
  const MemoryBudget plenty{std::uint64_t{1} << 40, "the test"};
  const Result<MemoryFile> small = CreateMemoryFile("small", 4096, HugePages::kOff, plenty);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(refused(small->fd.get()), Code::kDataLoss);
  EXPECT_TRUE(reader->GoOn(Soon()).ok());
}

TEST(ConsistentSnapshotTest, WhoWaitsTooLongIsToldSo) {
  const Counting job;
  Result<RendezvousClient> first = Reader(job);
  ASSERT_TRUE(first->Meet(Soon()).ok());
  Result<RendezvousClient> second = Reader(job);
  const Status late = second->Meet(Deadline::After(std::chrono::milliseconds(100))).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("have not met in time"));
}

}  // namespace
}  // namespace passel::shm::testing
