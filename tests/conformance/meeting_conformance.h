// Workers meet between two steps, in every mode: nothing moves until they are let go, nothing is
// computed otherwise than without, and who dies, joins, stops or does not answer holds nobody up.

#pragma once

#include "conformance/mode_change_conformance.h"
#include "conformance/still_values.h"
#include "store/meeting.h"

namespace passel::testing {
namespace meeting {

using mode_change::Job;
using mode_change::kSettings;
using mode_change::kWorkers;
using mode_change::Quick;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Calls, awaits, looks that nothing moves, lets go. Returns the step.
inline std::int64_t Meet(const std::vector<ShardMemory>& memory,
                         milliseconds time = milliseconds(3)) {
  Result<Meeting> called = Meeting::Call(memory[0]);
  EXPECT_TRUE(called.ok()) << called.status().ToString();
  if (!called.ok()) return -1;
  const Result<std::int64_t> step = called->Await(Deadline::After(kLong / 2));
  EXPECT_TRUE(step.ok()) << step.status().ToString();
  if (!step.ok()) return -1;
  EXPECT_EQ(*step, memory[0].state->global_step.load());
  ExpectStill(memory, time);
  EXPECT_EQ(Look(memory).mixed, 0);
  EXPECT_TRUE(called->Renew().ok());
  const Status ended = called->End();
  EXPECT_TRUE(ended.ok()) << ended.ToString();
  return *step;
}

// Stores whose first values are there.
struct Stores {
  Stores(const StoreCase& on, const StorePlan& plan, const WaitOptions& options = Quick())
      : host(on.make(plan)), memory(host->Memory()), wait(options) {
    for (int k = 0; k < plan.num_workers; ++k) Open(k);
    InitializeTo(*stores[0], 0);
    for (const auto& s : stores) EXPECT_TRUE(s->WaitUntilInitialized(Deadline::After(kLong)).ok());
  }
  void Open(int k) {
    stores.resize(std::max(stores.size(), static_cast<std::size_t>(k) + 1));
    auto opened = host->Open(k, wait);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    stores[static_cast<std::size_t>(k)] = std::move(*opened);
  }
  ParameterStore& operator[](int k) { return *stores[static_cast<std::size_t>(k)]; }
  const ShardMemory& lead() const { return memory[0]; }

  const std::unique_ptr<StoreHost> host;
  const std::vector<ShardMemory> memory;
  const WaitOptions wait;
  std::vector<std::unique_ptr<ParameterStore>> stores;
};

class MeetingConformance : public ::testing::TestWithParam<StoreCase> {
 protected:
  int shards() const { return GetParam().shards; }
  StorePlan Plan(const char* mode, int workers = kWorkers) const {
    return PlanIn(Setting(mode), shards(), workers);
  }
};

TEST_P(MeetingConformance, NothingMovesInAnyModeAndAllGoOnAsBefore) {
  for (const char* mode : kSettings) {
    SCOPED_TRACE(mode);
    Job job(Plan(mode), GetParam(), 5);
    const std::vector<ShardMemory> memory = job.host().Memory();
    job.Start();
    constexpr std::uint32_t kMeetings = 3;
    for (std::uint32_t i = 0; i < kMeetings; ++i) {
      ASSERT_TRUE(job.AwaitStep(job.global_step() + 5));
      ASSERT_GE(Meet(memory), 0);
    }
    ASSERT_TRUE(job.AwaitStep(job.global_step() + 5));
    job.End();
    ASSERT_NO_FATAL_FAILURE(job.Check(kMeetings));
    EXPECT_EQ(ModesSoFar(job.lead()).size(), 1u);
    if (Setting(mode).mode == Mode::kSsp) {
      for (int k = 0; k < kWorkers; ++k) {
        EXPECT_LE(job.lead().tasks[k].counters.max_clock_lead.load(),
                  static_cast<std::uint64_t>(Setting(mode).number));
      }
    }
    ASSERT_FALSE(HasFailure());
  }
}

// The math of `barrier` is the same to the last bit.
TEST_P(MeetingConformance, RoundsWithMeetingsComputeWhatTheyComputeWithout) {
  Everything ends[2];
  for (const bool meet : {false, true}) {
    OptimizerConfig adam = *ParseOptimizer("adam");
    adam.learning_rate = 0.05;
    Stores job(GetParam(), TestPlan(Mode::kBarrier, shards(), kWorkers, adam));
    constexpr int kRounds = 120;
    std::atomic<int> running{kWorkers};
    std::vector<std::thread> workers;
    for (int k = 0; k < kWorkers; ++k) {
      workers.emplace_back([&, k] {
        ParameterStore& store = job[k];
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          const Result<ParamView> view = store.Pull(PullMode::kView);
          ASSERT_TRUE(view.ok()) << view.status().ToString();
          EXPECT_EQ(view->version(), round - 1);
          GradientBuffer buffer = store.LendGradient();
          FillTestGradient(store, buffer, k, round);
          const auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
          ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
          const auto outcome = store.Wait(*ticket, Deadline::After(kLong));
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          EXPECT_TRUE(outcome->applied);
          std::this_thread::sleep_for(microseconds(200));
        }
        running.fetch_sub(1);
      });
    }
    int meetings = 0;
    while (meet && running.load() == kWorkers && meetings < 20) {
      Result<Meeting> called = Meeting::Call(job.lead());
      if (!called.ok()) {  // they have not gone on since the last one
        EXPECT_EQ(called.status().code(), Code::kAlreadyExists);
        std::this_thread::sleep_for(microseconds(100));
        continue;
      }
      // Behind its last round a worker does not arrive.
      if (called->Await(Deadline::After(milliseconds(300))).ok()) ++meetings;
      EXPECT_TRUE(called->End().ok());
    }
    for (std::thread& worker : workers) worker.join();
    if (meet) {
      EXPECT_GT(meetings, 10);
    }
    ends[meet] = Look(job.memory);
  }
  EXPECT_EQ(ends[0].counts, ends[1].counts);
  EXPECT_EQ(std::memcmp(ends[0].floats.data(), ends[1].floats.data(),
                        ends[0].floats.size() * sizeof(float)),
            0);
}

TEST_P(MeetingConformance, WhoJoinsMeanwhileWaitsBeforeItsFirstStep) {
  for (const char* mode : {"hogwild", "locked", "barrier", "replicas=2", "ssp=1"}) {
    for (const int others : {0, 1}) {
      SCOPED_TRACE(std::string(mode) + ", others: " + std::to_string(others));
      Stores job(GetParam(), Plan(mode, 2));
      // With `others` 0 nobody runs when they meet.
      ASSERT_TRUE(job[1].LeaveForNow().ok());
      if (others == 0) {
        ASSERT_TRUE(job[0].LeaveForNow().ok());
      }
      Result<Meeting> called = Meeting::Call(job.lead());
      ASSERT_TRUE(called.ok()) << called.status().ToString();
      std::vector<std::thread> workers;
      std::atomic<int> through{0};
      const auto one_step = [&](int k) {
        ASSERT_TRUE(PushConstant(job[k], -1).ok());
        through.fetch_add(1);
      };
      if (others > 0) workers.emplace_back([&] { one_step(0); });
      ASSERT_TRUE(called->Await(Deadline::After(kBound)).ok());
      const Everything before = Look(job.memory);
      job.Open(1);
      workers.emplace_back([&] {
        const Status ready = job[1].WaitUntilInitialized(Deadline::After(kLong));
        ASSERT_TRUE(ready.ok()) << ready.ToString();
        one_step(1);
      });
      std::this_thread::sleep_for(milliseconds(30));
      EXPECT_EQ(through.load(), 0);
      Everything after = Look(job.memory);
      after.counts.back() = before.counts.back();  // ssp: it gets a clock
      EXPECT_TRUE(after == before);
      EXPECT_TRUE(called->Await(Deadline::After(kBound)).ok()) << "once more";
      EXPECT_TRUE(called->End().ok());
      if (others > 0) {  // a round of two
        workers[0].join();
        workers[0] = std::thread([&] { one_step(0); });
      }
      for (std::thread& worker : workers) worker.join();
      EXPECT_EQ(through.load(), 1 + 2 * others);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(MeetingConformance, WhoDiesIsNotWaitedFor) {
  for (const char* mode : {"hogwild", "barrier", "replicas=2", "ssp=1"}) {
    SCOPED_TRACE(mode);
    Stores job(GetParam(), Plan(mode));
    const auto die = [&](int k) {
      for (const ShardMemory& m : job.memory) MarkDead(m, k, 1);
    };
    Result<Meeting> called = Meeting::Call(job.lead());
    ASSERT_TRUE(called.ok()) << called.status().ToString();
    std::thread goes_on([&] { EXPECT_TRUE(PushConstant(job[0], -1).ok()); });
    std::thread dies([&] { EXPECT_EQ(PushConstant(job[2], -1).status().code(), Code::kAborted); });
    const Result<std::int64_t> early = called->Await(Deadline::After(milliseconds(60)));
    EXPECT_EQ(early.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(early.status().message(), ::testing::HasSubstr("worker/"));
    die(1);
    const Result<std::int64_t> step = called->Await(Deadline::After(kBound));
    EXPECT_TRUE(step.ok()) << step.status().ToString();
    die(2);  // it has arrived
    ExpectStill(job.memory);
    EXPECT_TRUE(called->End().ok());
    goes_on.join();
    dies.join();
    EXPECT_EQ(job.lead().state->global_step.load(), IsRoundMode(Setting(mode).mode) ? 1 : 2);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(MeetingConformance, WhoWaitsInAMeetingForLongIsNotTakenForStalled) {
  WaitOptions options = Quick();
  options.stall_limit = milliseconds(200);
  Stores job(GetParam(), Plan("barrier", 2), options);
  Result<Meeting> called = Meeting::Call(job.lead());
  ASSERT_TRUE(called.ok()) << called.status().ToString();
  std::vector<std::thread> workers;
  for (int k = 0; k < 2; ++k) {
    workers.emplace_back([&, k] {
      EXPECT_TRUE(PushConstant(job[k], -1).ok());
      EXPECT_TRUE(PushConstant(job[k], -1).ok());
    });
  }
  EXPECT_TRUE(called->Await(Deadline::After(kBound)).ok());
  ExpectStill(job.memory, milliseconds(600));
  EXPECT_TRUE(called->End().ok());
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(job.lead().state->global_step.load(), 2);
}

TEST_P(MeetingConformance, CallersThatDoNotAnswerAreWaitedForNoLongerThanTheLease) {
  Job job(Plan("barrier"), GetParam(), 9);
  job.Start();
  ASSERT_TRUE(job.AwaitStep(5));
  Result<Meeting> called = Meeting::Call(job.lead());
  ASSERT_TRUE(called.ok());
  const Result<std::int64_t> step = called->Await(Deadline::After(kBound));
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  std::this_thread::sleep_for(Meeting::kLease / 2);
  EXPECT_EQ(job.global_step(), *step);
  ASSERT_TRUE(called->Renew().ok());
  std::this_thread::sleep_for(Meeting::kLease / 2 + milliseconds(200));
  EXPECT_EQ(job.global_step(), *step) << "renewed";
  ASSERT_TRUE(job.AwaitStep(*step + 5));
  EXPECT_EQ(called->Renew().code(), Code::kAborted);
  EXPECT_EQ(called->Await(Deadline::After(kBound)).status().code(), Code::kAborted);
  EXPECT_EQ(called->End().code(), Code::kAborted);
  EXPECT_GE(Meet(job.host().Memory()), *step + 5) << "the next one";
  job.End();
  ASSERT_NO_FATAL_FAILURE(job.Check(2));
}

TEST_P(MeetingConformance, StopEndsTheWaitOfAllAndNothingMoves) {
  for (const char* mode : {"hogwild", "barrier", "replicas=2", "ssp=0"}) {
    SCOPED_TRACE(mode);
    Job job(Plan(mode), GetParam(), 3);
    const std::vector<ShardMemory> memory = job.host().Memory();
    job.Start();
    ASSERT_TRUE(job.AwaitStep(5));
    Result<Meeting> called = Meeting::Call(job.lead());
    ASSERT_TRUE(called.ok());
    ASSERT_TRUE(called->Await(Deadline::After(kBound)).ok());
    const Everything before = Look(memory);
    job.Stop();
    job.Join();
    EXPECT_TRUE(Look(memory) == before);
    EXPECT_TRUE(called->Await(Deadline::After(kBound)).ok()) << "nobody runs";
    EXPECT_TRUE(called->End().ok());
    const Status again = Meeting::Call(job.lead()).status();
    EXPECT_EQ(again.code(), Code::kFailedPrecondition);
    EXPECT_THAT(again.message(), ::testing::HasSubstr("ending"));
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(MeetingConformance, OthersAreToldThatTheyMeetAndTheModeChangesAfterwards) {
  Job job(Plan("locked"), GetParam(), 4);
  job.Start();
  Result<Meeting> called = Meeting::Call(job.lead());
  ASSERT_TRUE(called.ok());
  ASSERT_TRUE(called->Await(Deadline::After(kBound)).ok());
  EXPECT_EQ(Meeting::Call(job.lead()).status().code(), Code::kAlreadyExists);
  const Status wish = WishForMode(job.lead(), Setting("barrier")).status();
  EXPECT_EQ(wish.code(), Code::kAlreadyExists);
  EXPECT_THAT(wish.message(), ::testing::HasSubstr("meet"));
  EXPECT_TRUE(WishForMode(job.lead(), Setting("locked")).ok()) << "it is in force";
  EXPECT_FALSE(WishedMode(job.lead()).has_value());
  EXPECT_EQ(ModesSoFar(job.lead()).size(), 1u);
  EXPECT_TRUE(called->End().ok());
  ASSERT_TRUE(job.AwaitMode(1));
  ASSERT_NO_FATAL_FAILURE(job.ChangeTo(Setting("barrier")));
  ASSERT_TRUE(job.AwaitStep(job.global_step() + 1));
  // More than there are records.
  constexpr std::uint32_t kMeetings = 20;
  for (std::uint32_t i = 0; i < kMeetings; ++i) {
    const std::uint32_t number = CurrentMode(job.lead()).number;
    const std::int64_t step = Meet(job.host().Memory(), milliseconds(0));
    ASSERT_GE(step, 0);
    ASSERT_TRUE(job.AwaitMode(number + 1));
    ASSERT_TRUE(job.AwaitStep(step + 1)) << "before that nobody can have them meet";
  }
  ASSERT_NO_FATAL_FAILURE(job.ChangeTo(Setting("locked")));
  const std::vector<PastMode> modes = ModesSoFar(job.lead());
  ASSERT_EQ(modes.size(), 3u);
  EXPECT_EQ(modes[0].setting, Setting("locked"));
  EXPECT_EQ(modes[1].setting, Setting("barrier"));
  EXPECT_EQ(modes[2].setting, Setting("locked"));
  EXPECT_EQ(modes[2].number, CurrentMode(job.lead()).number);
  job.End();
  ASSERT_NO_FATAL_FAILURE(job.Check(1 + kMeetings));
}

TEST_P(MeetingConformance, TheScheduleIsKeptToTheStepWhoeverMeets) {
  StorePlan plan = Plan("barrier");
  plan.schedule = {{30, Setting("replicas=2")}, {60, Setting("barrier")}, {90, Setting("ssp=1")}};
  ASSERT_TRUE(plan.Validate().ok());
  Job job(plan, GetParam(), 11);
  const std::vector<ShardMemory> memory = job.host().Memory();
  job.Start();
  std::uint32_t met = 0;
  while (job.global_step() < 120) {
    Result<Meeting> called = Meeting::Call(job.lead());
    if (called.status().code() == Code::kAlreadyExists) continue;  // the mode changes
    const ModeWord before = CurrentMode(job.lead());               // not while it is held
    ASSERT_TRUE(called.ok()) << called.status().ToString();
    const Result<std::int64_t> step = called->Await(Deadline::After(kBound));
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    EXPECT_TRUE(called->End().ok());
    ASSERT_TRUE(job.AwaitMode(before.number + 1));
    // Every round mode has a step at least. Else workers that are slower than we are would go from
    // one meeting to the next.
    if (!IsRoundMode(CurrentMode(job.lead()).setting.mode)) {
      ASSERT_TRUE(job.AwaitStep(*step + 1));
    }
    met += CurrentMode(job.lead()).scheduled == before.scheduled;
  }
  job.End();
  EXPECT_GT(met, 5u);
  EXPECT_EQ(CurrentMode(job.lead()).scheduled, 3u);
  const std::vector<PastMode> modes = ModesSoFar(job.lead());
  std::string seen;
  for (const PastMode& mode : modes) {
    seen += " " + mode.setting.ToString() + " since " + std::to_string(mode.since) + ", change " +
            std::to_string(mode.number) + ";";
  }
  ASSERT_EQ(modes.size(), 4u) << seen;
  for (std::size_t i = 1; i < modes.size(); ++i) {
    EXPECT_EQ(modes[i].setting, plan.schedule[i - 1].setting);
    EXPECT_EQ(modes[i].since, plan.schedule[i - 1].step);
  }
}

TEST_P(MeetingConformance, WithoutFirstValuesNobodyMeets) {
  const auto host = GetParam().make(Plan("hogwild"));
  const ShardMemory lead = host->Memory()[0];
  EXPECT_EQ(Meeting::Call(lead).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(CurrentMode(lead).number, 0u);
}

// Its caller died before it asked for the change, and somebody else asks for one.
TEST_P(MeetingConformance, HoldWithoutAMeetingDelaysAChangeByTheLeaseAtMost) {
  Job job(Plan("hogwild"), GetParam(), 6);
  job.Start();
  const auto until = static_cast<std::uint64_t>(MonotonicNs()) / 1'000'000 + 300;
  job.lead().state->mode.hold.store(AgreedNumber{1, until}.Pack());
  EXPECT_EQ(Meeting::Call(job.lead()).status().code(), Code::kAlreadyExists);
  const std::int64_t begin = MonotonicNs();
  ASSERT_NO_FATAL_FAILURE(job.ChangeTo(Setting("locked")));
  EXPECT_GT(MonotonicNs() - begin, 200'000'000);
  job.End();
  ASSERT_NO_FATAL_FAILURE(job.Check());
}

}  // namespace meeting

using MeetingConformance = meeting::MeetingConformance;

}  // namespace passel::testing
