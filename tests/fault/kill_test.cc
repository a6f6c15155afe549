// kill -9 at any time: survivors go on or end as shm and tools promise, and nothing is left.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "support/hand_started.h"
#include "support/program.h"
#include "support/whole_checkpoints.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kLiveness = 5;  // seconds

struct Plan {
  std::string victim;  // "worker", "ps" or "supervisor"
  int index = 0;
  double delay = 0;  // seconds after the start
  int ps = 1;
  int workers = 2;
  std::string mode;
  int max_restarts = 0;
  std::string ToString() const {
    return fmt::format(
        "kill {}/{} after {:.4f} s: --ps={} --workers={} --mode={} --max_restarts={}", victim,
        index, delay, ps, workers, mode, max_restarts);
  }
};

// A start takes about 30 ms: half of the kills hit it. The others come within `longest` seconds.
double DrawDelay(Random& random, double longest) {
  const double most = random.Below(2) == 0 ? 0.04 : longest;
  return most * static_cast<double>(random.Below(1'000'000)) * 1e-6;
}

Plan Draw(Random& random, double longest) {
  Plan plan;
  plan.ps = 1 + static_cast<int>(random.Below(2));
  plan.workers = 2 + static_cast<int>(random.Below(2));
  plan.mode = std::vector<const char*>{"hogwild", "locked", "barrier"}[random.Below(3)];
  plan.max_restarts = static_cast<int>(random.Below(2));
  plan.victim = std::vector<const char*>{"worker", "ps", "supervisor"}[random.Below(3)];
  if (plan.victim == "worker") {
    plan.index = static_cast<int>(random.Below(static_cast<std::uint64_t>(plan.workers)));
  }
  if (plan.victim == "ps") {
    plan.index = static_cast<int>(random.Below(static_cast<std::uint64_t>(plan.ps)));
  }
  plan.delay = DrawDelay(random, longest);
  return plan;
}

std::ptrdiff_t OwnDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

void KillOnce(const Plan& plan) {
  SCOPED_TRACE(plan.ToString());
  Sandbox sandbox;
  const std::string report_path = sandbox.dir().File("r.json");
  Program train = sandbox.Start(sandbox.Train(
      {"--train_steps=100000000", fmt::format("--ps={}", plan.ps),
       fmt::format("--workers={}", plan.workers), "--mode=" + plan.mode, "--hidden_units=16",
       "--batch_size=20", fmt::format("--max_restarts={}", plan.max_restarts), "--pin=none",
       "--report=" + report_path, "--save=" + sandbox.dir().File("m")}));
  std::this_thread::sleep_for(std::chrono::duration<double>(plan.delay));
  if (plan.victim == "supervisor") {
    train.Signal(SIGKILL);
    const auto end = train.Wait(kLiveness);
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->signalled && end->code == SIGKILL) << end->ToString();
    EXPECT_EQ(sandbox.Leftovers(2), "");
    return;
  }
  const pid_t victim = sandbox.AwaitTask(plan.victim, plan.index);
  ASSERT_NE(victim, 0) << train.Err();
  const std::int64_t before =
      plan.delay > 0.2 ? std::max<std::int64_t>(0, sandbox.GlobalStep()) : 0;
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  ASSERT_TRUE(sandbox.AwaitStep(1 + before, kLiveness))
      << "global step " << sandbox.GlobalStep() << ", was " << before << "\n"
      << train.Err() << sandbox.Status().dump(2);
  if (plan.victim == "ps" || plan.max_restarts > 0) {
    EXPECT_NE(sandbox.AwaitTask(plan.victim, plan.index, victim), 0) << train.Err();
  }
  // Before the job is told to end: deaths after that are not worth a line.
  EXPECT_TRUE(train.WaitFor(fmt::format("{}/{} was killed by SIGKILL (9)", plan.victim, plan.index),
                            kLiveness))
      << train.Err();
  train.Signal(SIGINT);
  const Outcome outcome = sandbox.Finish(train, kLiveness + 2);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(kLiveness), "");
  EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  const nlohmann::json report = ReadJson(report_path);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["ps_restarts"], plan.victim == "ps" ? 1 : 0);
  const auto global = report["global_step"].get<std::int64_t>();
  EXPECT_GE(global, before);
  if (plan.mode != "barrier") {
    // Each kill may fall between an update and its count.
    const auto local = report["local_steps"].get<std::int64_t>();
    EXPECT_LE(std::abs(global - local), 1) << "global " << global << ", local " << local;
  }
  EXPECT_EQ(sandbox.Eval(sandbox.dir().File("m")), 0);
}

// Several jobs at a time: most of the time they wait. `victim`: "" for any.
void KillMany(int count, double longest, const std::string& victim = "") {
  constexpr int kLanes = 3;
  const std::uint64_t seed = TestSeed();
  {
    Random random(seed);
    KillOnce(Draw(random, longest));  // what is opened once and for all, is
  }
  const std::ptrdiff_t descriptors = OwnDescriptors();
  std::atomic<int> next{1};
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes.emplace_back([&] {
      for (int turn = next++; turn < count && !::testing::Test::HasFailure(); turn = next++) {
        Random random(StreamSeed(seed, static_cast<std::uint64_t>(turn)));
        Plan plan = Draw(random, longest);
        if (!victim.empty()) plan.victim = victim;
        KillOnce(plan);
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(OwnDescriptors(), descriptors);
}

TEST(RandomKillTest, AnyKillLeavesAWorkingJobOrNothing) { KillMany(12, 0.2); }
TEST(SlowRandomKillTest, AThousandKillsLeaveAWorkingJobOrNothing) { KillMany(1000, 1); }

TEST(RandomKillTest, ASupervisorLeavesNobody) { KillMany(15, 0.1, "supervisor"); }
TEST(SlowRandomKillTest, TwoHundredSupervisorsLeaveNobody) { KillMany(200, 0.3, "supervisor"); }

TEST(WorkerKillTest, JobFinishesWithTheOthersAndSaysSo) {
  for (const char* mode : {"--mode=hogwild", "--mode=locked", "--mode=barrier"}) {
    Sandbox sandbox;
    const std::string report_path = sandbox.dir().File("r.json");
    // Half a second at least after the step at which the victim dies.
    const int steps = mode == std::string("--mode=barrier") ? 300 : 900;
    Program train = sandbox.Start(
        sandbox.Train({mode, "--workers=3", fmt::format("--train_steps={}", steps), "--pin=none",
                       "--hidden_units=16", "--batch_size=20", "--slow_worker=0:2ms,1:2ms,2:2ms",
                       "--report=" + report_path}));
    const pid_t victim = sandbox.AwaitTask("worker", 1);
    ASSERT_TRUE(sandbox.AwaitStep(50, 10)) << train.Err();
    ::kill(victim, SIGKILL);
    const Outcome outcome = sandbox.Finish(train);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("worker/1 was killed by SIGKILL (9); the others go on"));
    EXPECT_THAT(outcome.out, HasSubstr("the job finished with 2 of its 3 workers"));
    const nlohmann::json report = ReadJson(report_path);
    EXPECT_EQ(report["workers"][1]["exit"], "was killed by SIGKILL (9)");
    EXPECT_TRUE(report["workers"][1]["final_accuracy"].is_null());
    EXPECT_EQ(report["workers"][0]["exit"], "exited with 0");
    ASSERT_EQ(report["deaths"].size(), 1u) << report["deaths"];
    EXPECT_EQ(report["deaths"][0]["cause"], "was killed by SIGKILL (9)");
    EXPECT_GE(report["global_step"], steps);
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(WorkerKillTest, AllWorkersKilledIsAFailedJob) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=100000000", "--save=" + sandbox.dir().File("m")}));
  const pid_t first = sandbox.AwaitTask("worker", 0);
  const pid_t second = sandbox.AwaitTask("worker", 1);
  ASSERT_TRUE(sandbox.AwaitStep(50, 10));
  ::kill(first, SIGKILL);
  ::kill(second, SIGKILL);
  const Outcome outcome = sandbox.Finish(train, kLiveness + 1);
  EXPECT_THAT(OnlyError(outcome, 1),
              ::testing::ContainsRegex("no worker is left: .*; worker/[01] died first, after "
                                       "[0-9.]+ s: it was killed by SIGKILL \\(9\\)"));
  EXPECT_THAT(outcome.out, HasSubstr("no worker is left"));
  EXPECT_EQ(sandbox.Leftovers(), "");
  // What was trained is not lost.
  EXPECT_EQ(sandbox.Eval(sandbox.dir().File("m")), 0);
}

TEST(WorkerKillTest, MaxRestartsIsTheNumberOfFurtherLives) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=100000000", "--ps=1", "--workers=1", "--max_restarts=2"}));
  pid_t former = 0;
  for (int life = 0; life < 3; ++life) {
    const std::int64_t step = sandbox.GlobalStep();
    const pid_t pid = sandbox.AwaitTask("worker", 0, former);
    ASSERT_NE(pid, 0) << train.Err();
    ASSERT_TRUE(sandbox.AwaitStep(1 + std::max<std::int64_t>(step, 0), 5)) << train.Err();
    ::kill(pid, SIGKILL);
    former = pid;
  }
  const Outcome outcome = sandbox.Finish(train, kLiveness + 1);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(WorkerKillTest, RestartedWorkerGoesOnWithTheBatchThatWouldHaveCome) {
  // One worker that is killed between steps gives the same model as one that is not: what it had
  // pushed is in the arena, and so is its place in the data.
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--workers=1", "--train_steps=200", "--max_restarts=1",
                                          "--optimizer=sgd", "--save=" + sandbox.dir().File("m")};
  ASSERT_EQ(sandbox.Run(sandbox.Train(flags)).code, 0);
  const std::string undisturbed = ReadText(sandbox.dir().File("m"));
  sandbox.SetEnv("PASSEL_FAILPOINT",
                 "worker.computed:100:kill:" + sandbox.dir().File("killed-once"));
  const Outcome outcome = sandbox.Run(sandbox.Train(flags));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("starting it again"));
  EXPECT_TRUE(undisturbed == ReadText(sandbox.dir().File("m")));
}

// Supervised: every life of a ps serves the same arena, and no update is lost. A ps whose lives are
// all shorter than a second is started again later each time, and in the end not at all.
void KillPs(int lives, std::chrono::milliseconds least) {
  Sandbox sandbox;
  Random random(TestSeed());
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=100000000", "--ps=2", "--workers=3", "--hidden_units=16",
                     "--batch_size=20", "--report=" + sandbox.dir().File("r.json")}));
  ASSERT_TRUE(sandbox.AwaitStep(10, 10));
  pid_t former[2] = {0, 0};
  std::vector<double> away;  // ms, of ps/0, until it answers
  for (int life = 0; life < lives; ++life) {
    const int index = life % 2;
    const pid_t pid = sandbox.AwaitTask("ps", index, former[index]);
    ASSERT_NE(pid, 0) << train.Err();
    std::this_thread::sleep_for(least + std::chrono::microseconds(random.Below(40'000)));
    ASSERT_TRUE(sandbox.AwaitStep(0, kLiveness)) << train.Err();
    const std::int64_t step = sandbox.GlobalStep();
    former[index] = pid;
    const std::int64_t begin_ns = MonotonicNs();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_TRUE(sandbox.AwaitStep(1 + step, kLiveness)) << train.Err();
    if (index == 0) away.push_back(1e-6 * static_cast<double>(MonotonicNs() - begin_ns));
  }
  for (const int index : {0, 1}) ASSERT_NE(sandbox.AwaitTask("ps", index, former[index]), 0);
  train.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(train, kLiveness + 1).code, 130);
  const nlohmann::json report = ReadJson(sandbox.dir().File("r.json"));
  EXPECT_EQ(report["ps_restarts"], lives);
  EXPECT_EQ(report["local_steps"], report["global_step"]);
  EXPECT_EQ(sandbox.Leftovers(), "");
  std::ranges::sort(away);
  const double middle = away[away.size() / 2];
  fmt::print("ps/0 answered after {:.0f} ms (median of {}), {:.0f} at most\n", middle, away.size(),
             away.back());
  if (lives >= 20) {  // enough for a median
    EXPECT_LT(middle, 1e3 * std::chrono::duration<double>(Scaled(0.1)).count());
  }
}

TEST(PsKillTest, EveryLifeServesTheSameArena) { KillPs(6, std::chrono::milliseconds(0)); }
TEST(SlowPsKillTest, EveryLifeServesTheSameArena) { KillPs(100, std::chrono::milliseconds(1100)); }

// By hand: the arena outlives its ps with the workers, and the next life takes it over.
void KillPsByHand(int lives) {
  Random random(TestSeed());
  HandStarted job(1, 2, With(kEndless, {"--hidden_units=16", "--batch_size=20"}));
  job.StartAll();
  for (int life = 0; life < lives; ++life) {
    ASSERT_TRUE(job.Advances(20)) << job["worker/0"].Err();
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(40'000)));
    const std::int64_t step = job.sandbox().GlobalStep();
    job.Kill("ps/0");
    ASSERT_TRUE(job.Start("ps/0").WaitFor("took the arena of a former ps/0 over"))
        << job["ps/0"].Err();
    ASSERT_TRUE(job.sandbox().AwaitStep(step)) << job["ps/0"].Err();
  }
  job.Stop({"ps/0", "worker/0", "worker/1"});
}

TEST(PsKillTest, ByHandTheNextLifeTakesTheArenaOver) { KillPsByHand(3); }
TEST(SlowPsKillTest, ByHandTheNextLifeTakesTheArenaOver) { KillPsByHand(50); }

// And where there is no next life, the workers wait for --ps_wait, say "start me again", and the
// job goes on from its newest checkpoint.
void LosePsByHand(int lives) {
  Random random(TestSeed());
  Sandbox place;
  const std::string folder = place.dir().path() + "/c";
  std::int64_t before = -1;
  for (int life = 0; life < lives; ++life) {
    HandStarted job(1, 2,
                    With(kEndless, {"--hidden_units=16", "--batch_size=20", "--ps_wait=2",
                                    "--save_steps=20", "--checkpoint_dir=" + folder}));
    job.StartAll();
    ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
    EXPECT_EQ(job["worker/0"].Err().find(fmt::format("goes on from {}/model.ckpt-{},", folder,
                                                     before)) != std::string::npos,
              life > 0)
        << job["worker/0"].Err();
    ASSERT_TRUE(job["worker/1"].WaitFor(" done (global step")) << job["worker/1"].Err();
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(60'000)));
    job.Kill("ps/0");
    for (const char* worker : {"worker/0", "worker/1"}) {
      EXPECT_THAT(job.OnlyErrorOf(worker, 143), HasSubstr("--ps_wait"));
    }
    const std::int64_t step = WholeStep(folder);
    ASSERT_GT(step, before);
    before = step;
    EXPECT_EQ(job.sandbox().Leftovers(), "");
  }
}

TEST(SlowPsKillTest, ByHandWithoutANextLifeTheJobGoesOnFromItsCheckpoint) { LosePsByHand(50); }

}  // namespace
}  // namespace passel::testing
