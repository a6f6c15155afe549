// What the modes promise, as programs in C see it: real processes, and beside them gradient descent
// that is computed here.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>

#include "capi/job.h"
#include "support/program.h"

namespace passel::testing {
namespace {

// Steps of that worker, as the job counts them; -1: the job says nothing yet.
std::int64_t StepsOf(Job& job, int worker) {
  const nlohmann::json status = job.sandbox().Status();
  if (!status.is_object() || !status.contains("arena") || !status["arena"].is_object()) return -1;
  return status["arena"]["workers"][worker]["local_steps"];
}

bool AwaitStepsOf(Job& job, int worker, std::int64_t steps) {
  const auto end = std::chrono::steady_clock::now() + Scaled(20);
  while (StepsOf(job, worker) < steps) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

TEST(CapiConformance, AScheduleOfModesOnSeveralPsIsStillGradientDescent) {
  Job job(2, {"mode=barrier", "mode_schedule=40:replicas=2,90:barrier,120:replicas=1,140:barrier"},
          2);
  job.StartPs();
  for (int i = 0; i < 2; ++i) job.StartWorker(i, 120);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(0);
  for (int i = 0; i < 2; ++i) {
    const Fit fit = ReadFit(job.Out(i));
    EXPECT_EQ(fit.global_step, 120);
    ExpectNear(fit.values, Descent(120, 0.1, 2), 1e-5);
  }
}

TEST(CapiConformance, InSspAFastWorkerWaitsForOneThatIsStopped) {
  Job job(2, {"mode=ssp", "staleness_bound=3"});
  job.StartPs();
  job.StartWorker(0, kEndless);
  Program& slow = job.StartWorker(1, kEndless);
  ASSERT_TRUE(AwaitStepsOf(job, 0, 100));
  ASSERT_TRUE(AwaitStepsOf(job, 1, 100));
  slow.Signal(SIGSTOP);
  // It stands still soon: by how many steps is for tests/python/test_conformance.py.
  std::int64_t fast = -1;
  int same = 0;
  for (int i = 0; i < 400 && same < 5; ++i) {
    const std::int64_t now = StepsOf(job, 0);
    same = now == fast ? same + 1 : 0;
    fast = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(same, 5);
  EXPECT_GE(fast, 100);
  slow.Signal(SIGCONT);
  EXPECT_TRUE(AwaitStepsOf(job, 0, fast + 100));
  EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(130);
}

TEST(CapiConformance, AWorkerThatIsStoppedIsEvictedAndItsNextLifeIsInTheRounds) {
  Job job(2, {"mode=barrier", "stall_limit=6"});
  job.StartPs({"--stall_limit=6"});
  job.StartWorker(0, kEndless);
  Program& stopped = job.StartWorker(1, kEndless);
  ASSERT_TRUE(AwaitStepsOf(job, 1, 100));
  stopped.Signal(SIGSTOP);
  const Outcome evicted = job.FinishWorker(1);
  EXPECT_EQ(evicted.code, 1000 + SIGKILL) << evicted.err;
  EXPECT_TRUE(job.sandbox().Advances(100)) << "the other waits for it";
  // Rounds are of both again, so that the new life ends after as many of them.
  const std::int64_t before = job.sandbox().GlobalStep();
  job.StartWorker(1, 100);
  job.ExpectDone(1);
  const Fit fit = ReadFit(job.Out(1));
  EXPECT_GE(fit.global_step, before + 100);
  ExpectNear(fit.values, kSolution, 1e-3);
  EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
  job.ExpectDone(0);
  job.ExpectPsEnds(130);
}

TEST(CapiConformance, StalenessIsMeasured) {
  // In rounds every gradient is of the values that it updates; between others came in between.
  for (const std::string mode : {"barrier", "ssp"}) {
    SCOPED_TRACE(mode);
    Job job(2, {"mode=" + mode});
    if (mode == "ssp") job.Set("staleness_bound=2");
    job.StartPs();
    for (int i = 0; i < 2; ++i) job.StartWorker(i, kEndless);
    ASSERT_TRUE(AwaitStepsOf(job, 0, 500));
    const nlohmann::json seen = job.sandbox().Status()["arena"]["staleness"];
    EXPECT_GE(seen["count"], 500);
    // (N - 1) * (2 s + 1) in ssp: docs/modes.md.
    EXPECT_LE(seen["max"], mode == "barrier" ? 0 : 5) << seen.dump();
    EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
    for (int i = 0; i < 2; ++i) job.ExpectDone(i);
    job.ExpectPsEnds(130);
  }
}

}  // namespace
}  // namespace passel::testing
