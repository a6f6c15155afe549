// The mode changes, and workers meet, while worker processes are killed, stopped and started again:
// every change comes to an end, and where nothing may be lost nothing is.

#include "base/random.h"
#include "conformance/mode_plans.h"
#include "conformance/still_values.h"
#include "multiprocess/engine_job.h"
#include "store/meeting.h"
#include "support/sanitized.h"
#include "support/temp_marker.h"

namespace passel::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);  // only its plan is used here

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kWorkers = 3;
constexpr milliseconds kAtOnce{5000};  // a change, on a busy machine

bool AwaitMode(const EngineJob& job, std::uint32_t number) {
  return Await(kAtOnce, [&] { return CurrentMode(job.memory(0)).number >= number; });
}

bool AwaitSteps(const EngineJob& job, std::int64_t more) {
  const std::int64_t target = job.global_step() + more;
  return Await(kPatience, [&] { return job.global_step() >= target; });
}

// The first one that has ended; -1: none.
int AwaitDeath(std::vector<Child>& workers) {
  int dead = -1;
  (void)Await(kPatience, [&] {
    for (int k = 0; k < kWorkers && dead < 0; ++k) {
      if (workers[static_cast<std::size_t>(k)].WaitEnded(milliseconds(0))) dead = k;
    }
    return dead >= 0;
  });
  return dead;
}

class ModeChangeFailpoint
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(ModeChangeFailpoint, WhoeverDiesThereTheOthersGoOnInTheNewModeAndItsNextLifeToo) {
  const auto& [place, from, wanted] = GetParam();
  const std::string to = std::string(wanted) == from ? "locked" : wanted;
  for (const int shards : {1, 3}) {
    SCOPED_TRACE(std::to_string(shards) + " shards");
    EngineJob job(PlanIn(Setting(from), shards, kWorkers), /*counting=*/true);
    const TempMarker marker;
    const std::string failpoint = std::string(place) + ":1:kill:" + marker.path();
    std::vector<Child> workers;
    for (int k = 0; k < kWorkers; ++k) workers.push_back(job.Start(k, 0, failpoint));
    ASSERT_TRUE(Await(kPatience, [&] { return job.AllTakePart(); }));
    const Result<std::uint32_t> number = WishForMode(job.memory(0), Setting(to));
    ASSERT_TRUE(number.ok());
    const int dead = AwaitDeath(workers);
    ASSERT_GE(dead, 0) << "nobody passed the place";
    Child& victim = workers[static_cast<std::size_t>(dead)];
    EXPECT_EQ(victim.code(), -SIGKILL);
    ASSERT_TRUE(AwaitMode(job, *number));
    ASSERT_TRUE(AwaitSteps(job, 20)) << "without it";
    const std::uint64_t acked = job.board().acked[dead].load();
    victim = job.Start(dead, 0);
    ASSERT_TRUE(Await(kPatience, [&] { return job.board().acked[dead].load() > acked + 5; }));
    EXPECT_EQ(CurrentMode(job.memory(0)).number, *number) << "it changed once";
    job.Stop();
    for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
    if (IsLossless(Setting(from).mode) && IsLossless(Setting(to).mode)) {
      job.ExpectNothingLost(0);  // it was killed between two steps
    }
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kill, ModeChangeFailpoint,
    ::testing::Combine(
        ::testing::Values("mode.due", "mode.arrived", "mode.prepared", "mode.published"),
        ::testing::ValuesIn(Cases<const char*>({"locked", "barrier", "replicas=2"}, {"barrier"})),
        ::testing::Values("replicas=5", "ssp=1", "barrier", "hogwild")),
    [](const auto& test) {
      return NameOf(std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param) + "_" +
                    std::get<2>(test.param));
    });

// It has agreed with the others on nothing yet, or on everything; when it wakes up, that is
// history.
TEST(ModeChangeStops, WhoSleepsInTheMiddleOfAChangeSpoilsNothingWhenItWakesUp) {
  for (const std::string place : {"mode.prepared", "mode.published", "mode.arrived"}) {
    for (const int shards : {1, 3}) {
      SCOPED_TRACE(place + ", " + std::to_string(shards) + " shards");
      EngineJob job(PlanIn(Setting("locked"), shards, kWorkers), /*counting=*/true);
      const TempMarker marker;
      std::vector<Child> workers;
      for (int k = 0; k < kWorkers; ++k) {
        workers.push_back(job.Start(k, 0, place + ":1:stop:" + marker.path()));
      }
      ASSERT_TRUE(Await(kPatience, [&] { return job.AllTakePart(); }));
      Result<std::uint32_t> number = WishForMode(job.memory(0), Setting("replicas=2"));
      ASSERT_TRUE(number.ok());
      ASSERT_TRUE(AwaitMode(job, *number)) << "the others do not need it";
      // Backup workers: the two others go on without it, in rounds that it knows nothing of.
      ASSERT_TRUE(AwaitSteps(job, 200));
      const auto asleep = std::find_if(workers.begin(), workers.end(), [](Child& worker) {
        return worker.WaitStopped(milliseconds(0));
      });
      ASSERT_NE(asleep, workers.end());
      asleep->Kill(SIGCONT);
      ASSERT_TRUE(AwaitSteps(job, 50));
      for (const char* next : {"locked", "barrier", "replicas=4", "locked"}) {
        number = WishForMode(job.memory(0), Setting(next));
        ASSERT_TRUE(number.ok()) << number.status().ToString();
        ASSERT_TRUE(AwaitMode(job, *number)) << next;
        ASSERT_TRUE(AwaitSteps(job, 20));
      }
      job.Stop();
      for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
      job.ExpectNothingLost(0);
      ASSERT_FALSE(HasFailure());
    }
  }
}

void ChangeAndKillAtRandom(bool lossless, int shards) {
  Random random(TestSeed());
  const std::vector<std::string> settings =
      lossless ? std::vector<std::string>{"locked",     "barrier",    "replicas=2",
                                          "replicas=3", "replicas=5", "replicas=1"}
               : std::vector<std::string>{"hogwild",    "locked", "barrier", "replicas=2",
                                          "replicas=5", "ssp=0",  "ssp=2"};
  EngineJob job(PlanIn(Setting("barrier"), shards, kWorkers), /*counting=*/true);
  std::vector<Child> workers = job.StartAll(0);
  ASSERT_TRUE(Await(kPatience, [&] { return job.AllTakePart(); }));
  std::uint32_t last = 0;
  std::int64_t longest_ns = 0;
  const int kills = ManyTurns() ? 1000 : 40;
  for (int kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    const std::string& wanted = settings[random.Below(settings.size())];
    ::usleep(static_cast<useconds_t>(random.Below(2000)));
    const Result<std::uint32_t> number = WishForMode(job.memory(0), Setting(wanted));
    ASSERT_TRUE(number.ok()) << number.status().ToString();
    const std::int64_t begin = MonotonicNs();
    ::usleep(static_cast<useconds_t>(random.Below(1500)));
    const auto k = static_cast<std::size_t>(random.Below(kWorkers));
    workers[k].Kill(SIGKILL);
    ASSERT_TRUE(workers[k].WaitEnded(kPatience));
    // Now and then the next life comes while the change is still under way.
    if (random.Below(2) == 0) workers[k] = job.Start(static_cast<int>(k), 0);
    ASSERT_TRUE(AwaitMode(job, *number)) << "mode " << wanted;
    longest_ns = std::max(longest_ns, MonotonicNs() - begin);
    EXPECT_EQ(CurrentMode(job.memory(0)).setting.mode, Setting(wanted).mode);
    last = *number;
    ASSERT_TRUE(AwaitSteps(job, 2)) << "mode " << wanted;
    if (workers[k].code() != -1000) workers[k] = job.Start(static_cast<int>(k), 0);
  }
  ASSERT_TRUE(AwaitSteps(job, 20));
  job.Stop();
  for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
  if (lossless) job.ExpectNothingLost(kills);
  std::printf("%d kills, %u changes, %lld updates; the longest change took %.1f ms\n", kills, last,
              static_cast<long long>(job.global_step()), 1e-6 * static_cast<double>(longest_ns));
}

TEST(ModeChangeKills, AtRandomMomentsWhereNothingMayBeLost) {
  for (const int shards : {1, 3}) ASSERT_NO_FATAL_FAILURE(ChangeAndKillAtRandom(true, shards));
}

TEST(ModeChangeKills, AtRandomMomentsInEveryMode) {
  for (const int shards : {1, 3}) ASSERT_NO_FATAL_FAILURE(ChangeAndKillAtRandom(false, shards));
}

// --- Meetings ------------------------------------------------------------------------------------

std::vector<ShardMemory> MemoryOf(const EngineJob& job) {
  std::vector<ShardMemory> memory;
  for (int s = 0; s < job.shards(); ++s) memory.push_back(job.memory(s));
  return memory;
}

class MeetingFailpoint : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(MeetingFailpoint, WhoeverDiesThereTheOthersMeetAndGoOn) {
  const auto& [place, mode] = GetParam();
  for (const int shards : {1, 3}) {
    SCOPED_TRACE(std::to_string(shards) + " shards");
    EngineJob job(PlanIn(Setting(mode), shards, kWorkers), /*counting=*/true);
    const TempMarker marker;
    std::vector<Child> workers;
    for (int k = 0; k < kWorkers; ++k) {
      workers.push_back(job.Start(k, 0, std::string(place) + ":1:kill:" + marker.path()));
    }
    ASSERT_TRUE(Await(kPatience, [&] { return job.AllTakePart(); }));
    Result<Meeting> meeting = Meeting::Call(job.memory(0));
    ASSERT_TRUE(meeting.ok()) << meeting.status().ToString();
    const Result<std::int64_t> step = meeting->Await(Deadline::After(kPatience));
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    ExpectStill(MemoryOf(job));
    EXPECT_EQ(job.global_step(), *step);
    EXPECT_TRUE(meeting->End().ok());
    ASSERT_TRUE(AwaitMode(job, 1));
    const int dead = AwaitDeath(workers);
    ASSERT_GE(dead, 0) << "nobody passed the place";
    ASSERT_TRUE(AwaitSteps(job, 20)) << "without it";
    Child& victim = workers[static_cast<std::size_t>(dead)];
    const std::uint64_t acked = job.board().acked[dead].load();
    victim = job.Start(dead, 0);
    ASSERT_TRUE(Await(kPatience, [&] { return job.board().acked[dead].load() > acked + 5; }));
    EXPECT_EQ(CurrentMode(job.memory(0)).number, 1u) << "they met once";
    job.Stop();
    for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
    if (IsLossless(Setting(mode).mode)) job.ExpectNothingLost(0);
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kill, MeetingFailpoint,
    ::testing::Combine(::testing::Values("mode.due", "mode.arrived", "mode.prepared",
                                         "mode.published"),
                       ::testing::ValuesIn(Cases<const char*>(
                           {"hogwild", "locked", "barrier", "replicas=2", "ssp=1"}, {"barrier"}))),
    [](const auto& test) {
      return NameOf(std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param));
    });

TEST(MeetingKills, CallerThatDiesWhileAllWaitForItCostsTheLease) {
  EngineJob job(PlanIn(Setting("barrier"), 1, kWorkers), /*counting=*/true);
  std::vector<Child> workers = job.StartAll(0);
  ASSERT_TRUE(Await(kPatience, [&] { return job.AllTakePart(); }));
  const pid_t caller = ::fork();
  if (caller == 0) {
    Result<Meeting> meeting = Meeting::Call(job.memory(0));
    if (meeting.ok() && meeting->Await(Deadline::After(kPatience)).ok()) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(caller, &status, 0), caller);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::int64_t step = job.global_step();
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(AwaitSteps(job, 1));
  const std::int64_t waited = MonotonicNs() - begin;
  EXPECT_GT(waited, std::chrono::nanoseconds(Meeting::kLease).count() / 2);
  EXPECT_LT(waited, std::chrono::nanoseconds(Meeting::kLease + kAtOnce).count());
  EXPECT_GT(job.global_step(), step);
  Result<Meeting> next = Meeting::Call(job.memory(0));
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_TRUE(next->Await(Deadline::After(kPatience)).ok());
  EXPECT_TRUE(next->End().ok());
  job.Stop();
  for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
  job.ExpectNothingLost(0);
}

// All die in the middle of a round: its half is no state to copy. The next life makes it whole.
TEST(MeetingKills, RoundThatNobodyIsLeftToFinishIsWaitedFor) {
  EngineJob job(PlanIn(Setting("barrier"), 1, 1), /*counting=*/true);
  Child worker = job.Start(0, 0, "round.applied:5:kill");
  EXPECT_EQ(worker.End(), -SIGKILL);
  Result<Meeting> meeting = Meeting::Call(job.memory(0));
  ASSERT_TRUE(meeting.ok()) << meeting.status().ToString();
  const Result<std::int64_t> early = meeting->Await(Deadline::After(milliseconds(300)));
  ASSERT_EQ(early.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(early.status().message(), ::testing::HasSubstr("round"));
  worker = job.Start(0, 0);
  const Result<std::int64_t> step = meeting->Await(Deadline::After(kPatience));
  ASSERT_TRUE(step.ok()) << step.status().ToString();
  ExpectStill(MemoryOf(job), milliseconds(30));
  const auto [smallest, largest] = job.Range();
  EXPECT_EQ(smallest, static_cast<float>(*step));
  EXPECT_EQ(largest, static_cast<float>(*step));
  EXPECT_TRUE(meeting->End().ok());
  ASSERT_TRUE(AwaitSteps(job, 5));
  job.Stop();
  EXPECT_EQ(worker.End(), 0);
}

TEST(MeetingKills, AtRandomMomentsOfAMeeting) {
  Random random(TestSeed());
  const int kills = ManyTurns() ? 400 : 15;
  for (const char* mode : {"locked", "barrier", "replicas=2"}) {
    SCOPED_TRACE(mode);
    EngineJob job(PlanIn(Setting(mode), 3, kWorkers), /*counting=*/true);
    std::vector<Child> workers = job.StartAll(0);
    ASSERT_TRUE(Await(kPatience, [&] { return job.AllTakePart(); }));
    for (int kill = 0; kill < kills; ++kill) {
      Result<Meeting> meeting = Meeting::Call(job.memory(0));
      ASSERT_TRUE(meeting.ok()) << meeting.status().ToString();
      const auto k = static_cast<std::size_t>(random.Below(kWorkers));
      const bool early = random.Below(2) == 0;
      const auto kill_one = [&] {
        ::usleep(static_cast<useconds_t>(random.Below(500)));
        workers[k].Kill(SIGKILL);
      };
      if (early) kill_one();
      const Result<std::int64_t> step = meeting->Await(Deadline::After(kPatience));
      ASSERT_TRUE(step.ok()) << step.status().ToString();
      if (!early) kill_one();
      ASSERT_TRUE(workers[k].WaitEnded(kPatience));
      // Its next life comes while they are held, or afterwards.
      if (random.Below(2) == 0) workers[k] = job.Start(static_cast<int>(k), 0);
      ExpectStill(MemoryOf(job));
      EXPECT_EQ(job.global_step(), *step);
      const std::uint32_t number = CurrentMode(job.memory(0)).number;
      EXPECT_TRUE(meeting->End().ok());
      ASSERT_TRUE(AwaitMode(job, number + 1));
      ASSERT_TRUE(AwaitSteps(job, 2));
      if (workers[k].code() != -1000) workers[k] = job.Start(static_cast<int>(k), 0);
      ASSERT_FALSE(HasFailure());
    }
    ASSERT_TRUE(AwaitSteps(job, 20));
    job.Stop();
    for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
    job.ExpectNothingLost(static_cast<std::uint64_t>(kills));
  }
}

}  // namespace
}  // namespace passel::testing
