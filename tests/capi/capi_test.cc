// Programs in C with a model of their own train alone, and as the workers of a real ps.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capi/job.h"
#include "support/program.h"

namespace passel::testing {
namespace {

TEST(Capi, AloneIsGradientDescentInEveryMode) {
  for (const std::string mode : {"hogwild", "locked", "barrier", "replicas", "ssp"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    const std::string out = sandbox.dir().path() + "/fit";
    Program program = sandbox.StartCommand({PASSEL_LEAST_SQUARES, "200", "3", out, "optimizer=sgd",
                                            "learning_rate=0.1", "mode=" + mode});
    const Outcome outcome = sandbox.Finish(program, 30);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const Fit fit = ReadFit(out);
    EXPECT_EQ(fit.global_step, 200);
    EXPECT_EQ(fit.mode, mode);
    ExpectNear(fit.values, Descent(200, 0.1, 1), 1e-5);
  }
}

TEST(Capi, TwoWorkersInRoundsAreTheMeanOfTheirGradients) {
  Job job(2, {"mode=barrier"});
  job.StartPs();
  for (int i = 0; i < 2; ++i) job.StartWorker(i, 200);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(0);
  for (int i = 0; i < 2; ++i) {
    const Fit fit = ReadFit(job.Out(i));
    EXPECT_EQ(fit.global_step, 200);
    ExpectNear(fit.values, Descent(200, 0.1, 2), 1e-5);
  }
}

TEST(Capi, TwoWorkersInHogwildFindTheSolution) {
  Job job(2, {"mode=hogwild"});
  job.StartPs();
  for (int i = 0; i < 2; ++i) job.StartWorker(i, 3000);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(0);
  for (int i = 0; i < 2; ++i) ExpectNear(ReadFit(job.Out(i)).values, kSolution, 1e-3);
  EXPECT_EQ(std::max(ReadFit(job.Out(0)).global_step, ReadFit(job.Out(1)).global_step), 6000);
}

// The chief is killed, the other goes on; a second life of the chief keeps the values.
void KillTheChief(const std::string& mode) {
  Job job(2, {"mode=" + mode});
  job.StartPs();
  for (int i = 0; i < 2; ++i) job.StartWorker(i, kEndless);
  ASSERT_TRUE(job.sandbox().AwaitStep(2000));
  job.Kill(0);
  const std::int64_t before = job.sandbox().GlobalStep();
  ASSERT_GE(before, 2000);
  EXPECT_TRUE(job.sandbox().Advances(1000)) << "the other stands still";
  job.StartWorker(0, 100);
  job.ExpectDone(0);
  const Fit second_life = ReadFit(job.Out(0));
  EXPECT_GT(second_life.global_step, before + 1000);
  ExpectNear(second_life.values, kSolution, 1e-3);
  // A worker that is told to stop gets PASSEL_CANCELLED, and leaves.
  EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
  job.ExpectDone(1);
  EXPECT_GT(ReadFit(job.Out(1)).global_step, before);
  job.ExpectPsEnds(130);
}
TEST(Capi, AChiefThatIsKilledInHogwildComesBackToTheValues) { KillTheChief("hogwild"); }
TEST(Capi, AChiefThatIsKilledInARoundComesBackToTheValues) { KillTheChief("barrier"); }

TEST(Capi, AWorkerWithOtherShapesIsRefusedAndTheOtherGoesOn) {
  Job job(2, {"mode=hogwild"});
  job.StartPs();
  job.StartWorker(0, 2000);
  job.StartWorker(1, 100, kFeatures + 1);
  const Outcome refused = job.FinishWorker(1);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("passel_open: 1: worker/1 was started with other settings than the "
                             "chief, worker/0: "),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("variable \"w\" has the shape [4] here and [3] there"),
            std::string::npos)
      << refused.err;
  job.ExpectDone(0);
  ExpectNear(ReadFit(job.Out(0)).values, Descent(2000, 0.1, 2), 0.1);
}

TEST(Capi, APsThatIsKilledComesBackToTheArenaOfItsWorker) {
  Job job(1, {"mode=hogwild", "ps_wait=60"});
  job.StartPs();
  job.StartWorker(0, 1'000'000'000);
  ASSERT_TRUE(job.sandbox().AwaitStep(1000));
  const std::int64_t before = job.sandbox().GlobalStep();
  job.KillPs();
  job.StartPs();
  EXPECT_TRUE(job.sandbox().AwaitStep(before + 1000));
  EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
  job.ExpectDone(0);
  EXPECT_GT(ReadFit(job.Out(0)).global_step, before + 1000);
  job.ExpectPsEnds(130);
}

TEST(Capi, APsThatStaysAwayEndsItsWorkersWithASentence) {
  Job job(1, {"mode=hogwild", "ps_wait=0.3"});
  job.StartPs();
  job.StartWorker(0, 1'000'000'000);
  ASSERT_TRUE(job.sandbox().AwaitStep(100));
  job.KillPs();
  const Outcome outcome = job.FinishWorker(0);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("a step: 10: a ps has been gone for "), std::string::npos)
      << outcome.err;
}

TEST(Capi, AWaitThatIsTooShortNamesWhomItWaitsFor) {
  Job job(2, {"mode=barrier"});
  job.sandbox().SetEnv("PATIENCE", "0.3");
  job.StartPs();
  job.StartWorker(0, 10);
  const Outcome outcome = job.FinishWorker(0);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("a step: 11: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("worker/1"), std::string::npos) << outcome.err;
}

TEST(Capi, ASecondProcessAsTheSameWorkerIsRefused) {
  Job job(1, {"mode=hogwild"});
  job.StartPs();
  job.StartWorker(0, 1'000'000'000);
  ASSERT_TRUE(job.sandbox().AwaitStep(10));
  Sandbox& sandbox = job.sandbox();
  std::vector<std::string> command = {PASSEL_LEAST_SQUARES,
                                      "1",
                                      "3",
                                      job.Out(1),
                                      "job_id=" + sandbox.job(),
                                      "optimizer=sgd",
                                      "learning_rate=0.1",
                                      "task_index=0",
                                      "start_wait=5"};
  for (const std::string& flag : sandbox.Task("worker", 0, 1, 1)) {
    if (flag.starts_with("--ps_hosts=") || flag.starts_with("--worker_hosts=")) {
      command.push_back(flag.substr(2));
    }
  }
  Program second = sandbox.StartCommand(command);
  const Outcome refused = sandbox.Finish(second, 20);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("passel_open: 3: "), std::string::npos) << refused.err;
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  job.ExpectDone(0);
  job.ExpectPsEnds(130);
}

}  // namespace
}  // namespace passel::testing
