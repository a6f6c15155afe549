// Copies of whole shards: of one step in any mode, while workers train as fast as they can.

#include "store/consistent_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/meeting.h"
#include "store/membership.h"
#include "store/open_store.h"
#include "store/shard_buffer.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

constexpr auto kCopyLimit = std::chrono::seconds(60);
// More than a thread copies in one piece.
constexpr std::size_t kElements = (std::size_t{1} << 18) + 4321;

StorePlan PlanOf(const char* mode, int workers, int shards) {
  StorePlan plan;
  plan.mode = *ParseModeSetting(mode);
  plan.num_workers = workers;
  plan.gradient_slots = 1;
  plan.optimizer = *ParseOptimizer("sgd");
  plan.optimizer.learning_rate = 1;
  std::vector<VariableInfo> variables;
  for (int s = 0; s < shards; ++s) {
    VariableInfo v;
    v.name = v.logical = "w" + std::to_string(s);
    v.shape = {static_cast<std::int64_t>(kElements)};
    v.shard = s;
    variables.push_back(v);
  }
  plan.variables = *VariableTable::Build(variables, shards);
  return plan;
}

// Its workers push -1 for every element until it ends: each update makes every element one larger.
class CountingJob {
 public:
  CountingJob(const char* mode, int workers, int shards = 2)
      : arena_(std::move(*InProcessArena::Create(PlanOf(mode, workers, shards)))) {
    for (int s = 0; s < shards; ++s) shards_.push_back(arena_->shard(s));
    WaitOptions options;
    options.spin = std::chrono::microseconds(20);
    for (int k = 0; k < workers; ++k) stores_.push_back(std::move(*arena_->Open(k, options)));
    const auto zeros = [](VarId, std::span<float> to) { std::ranges::fill(to, 0.0F); };
    EXPECT_TRUE(stores_[0]->Initialize(zeros).ok());
    for (auto& store : stores_) {
      EXPECT_TRUE(store->WaitUntilInitialized(Deadline::After(kCopyLimit)).ok());
    }
  }
  ~CountingJob() { Stop(); }

  void Start() {
    for (auto& store : stores_) {
      workers_.emplace_back([this, s = store.get()] {
        while (Push(*s)) {
        }
      });
    }
  }
  void Stop() {
    stores_[0]->Stop();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }
  void PushOnce(int worker) { EXPECT_TRUE(Push(*stores_[static_cast<std::size_t>(worker)])); }
  void LeaveAll() {
    for (auto& store : stores_) EXPECT_TRUE(store->LeaveForNow().ok());
  }
  const std::vector<ShardMemory>& shards() const { return shards_; }
  std::int64_t step() const { return shards_[0].state->global_step.load(); }

 private:
  static bool Push(ParameterStore& store) {
    const auto view = store.Pull(PullMode::kView);
    if (!view.ok()) return false;
    const GradientBuffer buffer = store.LendGradient();
    for (VarId id = 0; id < store.variables().size(); ++id) {
      std::ranges::fill(buffer.values(id), -1.0F);
    }
    const auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kCopyLimit));
    return ticket.ok() && store.Wait(*ticket, Deadline::After(kCopyLimit)).ok();
  }

  const std::unique_ptr<InProcessArena> arena_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
  std::vector<ShardMemory> shards_;
  std::vector<std::thread> workers_;
};

struct Copies {
  explicit Copies(const std::vector<ShardMemory>& shards)
      : buffers(std::move(*MakeShardBuffers(shards, /*slots=*/true))) {
    for (const ShardBuffer& buffer : buffers) out.push_back(buffer.contents());
  }
  // The one value that all elements have; -1: they have several.
  float Value() const {
    const float first = out[0][0][0];
    for (const auto& contents : out) {
      const std::span<const float> values(contents[0], kElements);
      if (!std::ranges::all_of(values, [first](float v) { return v == first; })) return -1;
    }
    return first;
  }
  std::vector<ShardBuffer> buffers;
  std::vector<std::vector<float*>> out;
};

// Where updates may meet, and are lost then, one worker trains.
TEST(ConsistentCopyTest, AllElementsAreOfTheStepThatItNames) {
  for (const auto& [mode, workers] :
       {std::pair{"hogwild", 1}, {"ssp=2", 1}, {"locked", 3}, {"barrier", 3}, {"replicas=2", 3}}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::string(mode) + ", threads: " + std::to_string(threads));
      CountingJob job(mode, workers);
      const Copies copies(job.shards());
      job.Start();
      std::int64_t last = -1;
      for (int i = 0; i < 5; ++i) {
        const auto copy = CopyInMeeting(job.shards(), copies.out, {.threads = threads},
                                        Deadline::After(kCopyLimit));
        ASSERT_TRUE(copy.ok()) << copy.status().ToString();
        EXPECT_EQ(copies.Value(), static_cast<float>(copy->global_step));
        EXPECT_EQ(copy->progress.global_step, copy->global_step);
        EXPECT_EQ(copy->progress.shards.size(), 2u);
        EXPECT_GT(copy->cost.held.count(), 0);
        // However soon they meet again: those who train come further.
        EXPECT_GT(copy->global_step, last);
        last = copy->global_step;
      }
    }
  }
}

TEST(ConsistentCopyTest, WhereNobodyRunsItIsMadeAsOftenAsOneLikes) {
  for (const char* mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    CountingJob job(mode, 2);
    job.LeaveAll();
    const Copies copies(job.shards());
    for (int i = 0; i < 3; ++i) {
      const auto copy =
          CopyInMeeting(job.shards(), copies.out, {}, Deadline::After(std::chrono::seconds(5)));
      ASSERT_TRUE(copy.ok()) << copy.status().ToString();
      EXPECT_EQ(copies.Value(), 0);
    }
  }
}

// Who joined saw the former hold end, and goes on while the next one counts on nobody being there.
TEST(ConsistentCopyTest, AMeetingTakenUpAgainIsNotWholeIfItWasPublishedMeanwhile) {
  CountingJob job("hogwild", 1);
  job.LeaveAll();
  const ShardMemory& lead = job.shards()[0];
  {
    Result<Meeting> first = Meeting::Call(lead);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    ASSERT_TRUE(first->Await(Deadline::After(kCopyLimit)).ok());
    ASSERT_TRUE(first->End().ok());
  }
  Result<Meeting> again = Meeting::Call(lead);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  ASSERT_TRUE(again->Await(Deadline::After(kCopyLimit)).ok());
  lead.state->mode.current.store(lead.state->mode.wish.load());
  EXPECT_EQ(again->Await(Deadline::After(kCopyLimit)).status().code(), Code::kAborted);
  EXPECT_EQ(again->End().code(), Code::kAborted);
}

TEST(ConsistentCopyTest, NobodyMeetsAgainWithoutAStepInBetween) {
  CountingJob job("hogwild", 1);
  const ShardMemory& lead = job.shards()[0];
  {
    Result<Meeting> meeting = Meeting::Call(lead);
    ASSERT_TRUE(meeting.ok()) << meeting.status().ToString();
    std::thread worker([&job] { job.PushOnce(0); });
    EXPECT_TRUE(meeting->Await(Deadline::After(kCopyLimit)).ok());
    EXPECT_TRUE(meeting->End().ok());
    worker.join();  // it has gone on
  }
  const Status again = Meeting::Call(lead).status();
  EXPECT_EQ(again.code(), Code::kAlreadyExists);
  EXPECT_THAT(again.message(), HasSubstr("no step since"));
  job.PushOnce(0);
  EXPECT_TRUE(Meeting::Call(lead).ok());
}

TEST(ConsistentCopyTest, WhoIsNotWantedAnyMoreStopsWaiting) {
  CountingJob job("hogwild", 2);  // nobody makes a step
  const Copies copies(job.shards());
  const std::atomic<bool> quit{true};
  const auto copy =
      CopyInMeeting(job.shards(), copies.out, {.quit = &quit}, Deadline::After(kCopyLimit));
  EXPECT_EQ(copy.status().code(), Code::kCancelled);
  const CountingJob other("hogwild", 2);
  const auto late =
      CopyInMeeting(other.shards(), copies.out, {}, Deadline::After(std::chrono::milliseconds(50)));
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr("worker/"));
}

TEST(ShardBufferTest, CopiesWhatIsThereByAnyNumberOfThreads) {
  const CountingJob job("hogwild", 1);
  for (const ShardMemory& shard : job.shards()) {
    for (std::size_t i = 0; i < shard.floats; ++i) shard.values[i] = static_cast<float>(i);
  }
  for (const int threads : {1, 2, 5}) {
    const Copies copies(job.shards());
    int called = 0;
    CopyShards(job.shards(), copies.out, threads, [&called] { ++called; });
    for (const auto& contents : copies.out) {
      for (std::size_t i = 0; i < job.shards()[0].floats; ++i) {
        ASSERT_EQ(contents[0][i], static_cast<float>(i));
      }
    }
  }
}

TEST(ShardBufferTest, NamesTheMemoryThatIsMissing) {
  const CountingJob job("hogwild", 1);
  const Status refused = MakeShardBuffers(job.shards(), true, /*share=*/1e-9).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("a copy of the variables needs"));
}

bool IsResident(const float* at) {
  unsigned char resident = 0;
  void* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) & ~4095UL);
  EXPECT_EQ(::mincore(page, 1, &resident), 0);
  return (resident & 1) != 0;
}

TEST(ShardBufferTest, WhatIsGivenBackIsFreeAndTheRestIsAsItWas) {
  constexpr std::size_t kFloats = (std::size_t{5} << 20) + 1234;
  ShardMemory shape{};
  shape.floats = kFloats;
  shape.num_slots = 2;
  ShardBuffer buffer = std::move((*MakeShardBuffers({&shape, 1}, /*slots=*/true))[0]);
  const std::vector<float*> contents = buffer.contents();
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < kFloats; ++i) contents[k][i] = static_cast<float>(i + k);
  }
  for (const std::size_t given : {std::size_t{0}, std::size_t{1} << 20, std::size_t{3'000'000},
                                  std::size_t{3'000'001}, kFloats}) {
    buffer.GiveBack(given);
    for (std::size_t k = 0; k < 3; ++k) {
      std::size_t wrong = 0;
      for (std::size_t i = given; i < kFloats; ++i) {
        wrong += contents[k][i] != static_cast<float>(i + k);
      }
      EXPECT_EQ(wrong, 0u) << k << ", " << given;
      if (given >= std::size_t{2} << 20) {
        EXPECT_FALSE(IsResident(contents[k] + (std::size_t{1} << 20))) << k << ", " << given;
      }
    }
  }
}

}  // namespace
}  // namespace passel
