// Tasks that are started by hand, each a process of its own without a supervisor.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "support/hand_started.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The number behind "(global step: " in a worker's last line of it.
std::int64_t PrintedStep(const std::string& out) {
  const std::size_t at = out.rfind("(global step: ");
  return at == std::string::npos ? -1 : std::atoll(out.c_str() + at + 14);
}

const std::vector<std::string> kShort = {"--train_steps=400", "--start_wait=20"};

TEST(ByHandTest, TasksMeetInAnyOrderAndEndByThemselves) {
  struct Case {
    std::vector<std::string> order;
    int pause_ms;
  };
  for (const Case& c :
       {Case{{"ps/0", "worker/0", "worker/1"}, 150}, Case{{"worker/1", "worker/0", "ps/0"}, 0},
        Case{{"worker/0", "ps/0", "worker/1"}, 0}, Case{{"worker/1", "ps/0", "worker/0"}, 150}}) {
    SCOPED_TRACE(c.order[0] + " " + c.order[1]);
    HandStarted job(1, 2, kShort);
    for (const std::string& task : c.order) {
      job.Start(task);
      std::this_thread::sleep_for(std::chrono::milliseconds(c.pause_ms));
    }
    job.ExpectEnd();  // the token file is gone too
    for (const std::string& task : c.order) {
      EXPECT_EQ(job.Finish(task).errors.size(), 0u) << job[task].Err();
      // There is neither gRPC nor a port.
      for (const char* word : {"grpc", "Grpc", "CreateSession"}) {
        EXPECT_THAT(job[task].Out() + job[task].Err(), Not(HasSubstr(word))) << task;
      }
    }
    EXPECT_THAT(job["worker/0"].Out(), HasSubstr("Session initialization complete"));
    EXPECT_THAT(job["worker/1"].Out(), HasSubstr("worker=1, final accuracy = "));
    if (HasFailure()) return;
  }
}

TEST(ByHandTest, WorkerThatIsDoneDoesNotMissAPsThatEndsBeforeIt) {
  HandStarted job(1, 1, kShort);
  job.Start("ps/0");
  job.Start("worker/0", "worker.left:1:sleep2000");  // as long as a large file takes
  EXPECT_EQ(job.Finish("ps/0").code, 0) << job["ps/0"].Err();
  EXPECT_TRUE(job["worker/0"].Running());
  const Outcome outcome = job.Finish("worker/0");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr(" is gone")));
}

TEST(ByHandTest, ThreePsAndBarrierFinishAndSave) {
  HandStarted job(3, 2, With(kShort, {"--mode=barrier"}));
  const std::string model = job.sandbox().dir().File("m");
  for (const char* task : {"ps/0", "ps/1", "ps/2", "worker/1"}) job.Start(task);
  job.Start("worker/0", "", {"--save=" + model});
  job.ExpectEnd();
  EXPECT_EQ(job.sandbox().Eval(model), 0);
}

TEST(ByHandTest, PsThatComesBackTakesTheArenaOver) {
  HandStarted job(1, 2, kEndless);
  job.StartAll();
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err() << job["ps/0"].Err();
    const std::int64_t step = job.sandbox().GlobalStep();
    job.Kill("ps/0");
    ASSERT_TRUE(job["worker/0"].WaitFor("ps/0 is gone")) << job["worker/0"].Err();
    ASSERT_TRUE(job.Start("ps/0").WaitFor("took the arena of a former ps/0 over"))
        << job["ps/0"].Err();
    ASSERT_TRUE(job["worker/0"].WaitFor("ps/0 is back")) << job["worker/0"].Err();
    ASSERT_TRUE(job.sandbox().AwaitStep(step + 50)) << job["worker/0"].Err();
  }
  job.Stop({"worker/0", "worker/1", "ps/0"});
}

TEST(ByHandTest, WithoutItsPsAWorkerEndsAfterPsWait) {
  HandStarted job(1, 2, With(kEndless, {"--ps_wait=0.7"}));
  job.StartAll();
  ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
  job.Kill("ps/0");
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_TRUE(job["worker/0"].Running());
  for (const char* worker : {"worker/0", "worker/1"}) {
    EXPECT_THAT(job.OnlyErrorOf(worker, 143), HasSubstr("--ps_wait"));
  }
}

TEST(ByHandTest, KilledWorkerJoinsAgain) {
  for (const char* mode : {"--mode=hogwild", "--mode=barrier"}) {
    HandStarted job(1, 2, With(kEndless, {mode}));
    job.StartAll();
    for (const char* victim : {"worker/1", "worker/0"}) {  // 0: the chief
      ASSERT_TRUE(job.Advances(50)) << job["worker/0"].Err() << job["worker/1"].Err();
      job.Kill(victim);
      ASSERT_TRUE(job.Advances(50, 2)) << "the other goes on";
      // Steps are counted over all lives: which number comes first is open.
      ASSERT_TRUE(job.Start(victim).WaitFor(" done (global step: ")) << job[victim].Err();
      EXPECT_GT(PrintedStep(job[victim].Out()), 50);  // values were not begun anew
    }
    for (const char* task : {"ps/0", "worker/0", "worker/1"}) job[task].Signal(SIGINT);
    job.ExpectEnd(130);
  }
}

TEST(ByHandTest, SecondTaskOfTheSameIdentityIsRefused) {
  HandStarted job(1, 1, kEndless);
  ASSERT_TRUE(job.Start("worker/0").WaitFor("Initializing session"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto refused = [&](const std::string& task) {
    EXPECT_THAT(OnlyError(job.sandbox().Run(job.Task(task), 5)),
                AllOf(HasSubstr(task), HasSubstr("running already")));
  };
  refused("worker/0");  // the first still waits for the ps
  job.Start("ps/0");
  ASSERT_TRUE(job.Advances(10));
  refused("worker/0");
  refused("ps/0");
  job["ps/0"].Signal(SIGINT);
  job.ExpectEnd(130);
}

TEST(ByHandTest, OtherSettingsThanTheChiefsAreNamed) {
  HandStarted job(1, 2, kEndless);
  for (const char* task : {"ps/0", "worker/0"}) job.Start(task);
  ASSERT_TRUE(job.Advances(10));
  for (const auto& [flag, word] : {std::pair("--learning_rate=0.5", "learning_rate"),
                                   {"--mode=barrier", "mode"},
                                   {"--hidden_units=77", "77"},
                                   {"--optimizer=sgd", "optimizer"}}) {
    EXPECT_THAT(OnlyError(job.sandbox().Run(job.Task("worker/1", {flag}), 10)),
                AllOf(HasSubstr("other settings than the chief"), HasSubstr(word)));
  }
  EXPECT_TRUE(job.Advances(10));
}

TEST(ByHandTest, TaskThatStaysAloneEndsAfterStartWaitAndSaysWhomItWaitedFor) {
  HandStarted job(1, 2, {"--train_steps=100", "--start_wait=0.8"});
  job.Start("worker/1");
  EXPECT_THAT(job.OnlyErrorOf("worker/1", 143), AllOf(HasSubstr("ps/0"), HasSubstr("0.8 s")));
  job.Start("ps/0");
  job.Start("worker/1");
  EXPECT_THAT(job.OnlyErrorOf("worker/1", 143),
              AllOf(HasSubstr("worker/0"), HasSubstr("0.8 s"), HasSubstr("--start_wait")));
  EXPECT_THAT(job.OnlyErrorOf("ps/0", 143), HasSubstr("worker/0"));
}

TEST(ByHandTest, PsDoesNotWaitForEverForAWorkerThatNeverCame) {
  HandStarted job(1, 2, {"--train_steps=100", "--start_wait=1"});
  const std::string report = job.sandbox().dir().File("report");
  job.Start("ps/0", "", {"--report=" + report});
  job.Start("worker/0");
  job.ExpectEnd();  // the ps keeps the job open for 10 s more
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("worker/1 did not start within 1 s"));
  const std::string fewer =
      "the job finished with fewer workers than it began with: worker/0 done, worker/1 never "
      "started";
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr(fewer));
  EXPECT_EQ(ReadJson(report)["notes"], nlohmann::json::array({fewer}));
}

// In rounds the others wait for it, so they are those who give it up.
TEST(ByHandTest, WhoGoesOnWithoutAWorkerThatNeverCameSaysSoOnce) {
  for (const std::string mode : {"barrier", "replicas"}) {
    SCOPED_TRACE(mode);
    HandStarted job(1, 3, {"--train_steps=100", "--start_wait=1.5", "--mode=" + mode});
    for (const char* task : {"ps/0", "worker/0", "worker/2"}) job.Start(task);
    for (const char* worker : {"worker/0", "worker/2"}) {
      const Outcome end = job.Finish(worker);
      EXPECT_EQ(end.code, 0) << end.err;
      const std::string line =
          "worker/1 did not start within 1.5 s (--start_wait): training goes on without it, 2 of 3 "
          "workers are in the rounds now";
      const std::size_t at = end.err.find(line);
      EXPECT_NE(at, std::string::npos) << end.err;
      EXPECT_EQ(end.err.find("did not start", at + line.size()), std::string::npos) << end.err;
    }
    EXPECT_TRUE(job["ps/0"].WaitFor("(worker/0 done, worker/1 never started, worker/2 done): wait"))
        << job["ps/0"].Err();
    job.Stop({"ps/0"});
  }
}

TEST(ByHandTest, TokenFileOfTasksThatWereAllKilledIsReplaced) {
  HandStarted job(1, 2, {"--start_wait=20"});
  const auto start = [&](const char* steps) {
    for (const char* task : {"ps/0", "worker/0", "worker/1"}) job.Start(task, "", {steps});
  };
  const std::string file =
      fmt::format("{}/passel/{}.token", job.sandbox().runtime(), job.sandbox().job());
  std::string last;
  for (int life = 0; life < 3; ++life) {
    start("--train_steps=100000000");
    ASSERT_TRUE(job.sandbox().AwaitStep(20)) << job["worker/0"].Err();
    const std::string token = ReadText(file);
    EXPECT_EQ(token.size(), 32u);
    EXPECT_NE(token, last) << "a token of dead tasks is in use";
    last = token;
    // One that is alone left keeps the token: who comes back finds it.
    for (const char* task : {"ps/0", "worker/0"}) job.Kill(task);
    EXPECT_EQ(ReadText(file), token);
    job.Kill("worker/1");
    EXPECT_EQ(ReadText(file), token) << "killed tasks remove nothing";
  }
  start("--train_steps=400");
  job.ExpectEnd();
}

TEST(ByHandTest, TokenFileOfAKilledPsIsRemovedByTheStartOfAnotherJob) {
  HandStarted job(1, 1, kEndless);
  Sandbox& sandbox = job.sandbox();
  ASSERT_TRUE(job.Start("ps/0").WaitFor("is ready for its workers")) << job["ps/0"].Err();
  job.Kill("ps/0");
  const std::string left = fmt::format("{}/passel/{}.token", sandbox.runtime(), sandbox.job());
  ASSERT_TRUE(std::filesystem::exists(left));
  std::vector<std::string> next = job.Task("ps/0");
  for (std::string& argument : next) {
    if (argument.starts_with("--job_id=")) argument += "-next";
  }
  Program other = sandbox.Start(next);
  ASSERT_TRUE(other.WaitFor("is ready for its workers")) << other.Err();
  EXPECT_FALSE(std::filesystem::exists(left));
  sandbox.Interrupt(other);
}

TEST(ByHandTest, TaskInAnotherTimeNamespaceIsToldWhyItCannotJoin) {
  Sandbox sandbox;
  const std::vector<std::string> elsewhere = {"unshare", "--time", "--boottime=100000", "--fork"};
  const auto behind = [](const std::vector<std::string>& command,
                         const std::vector<std::string>& task) {
    return With(With(command, {PASSEL_PROGRAM}), task);
  };
  Program probe = sandbox.StartCommand(behind(elsewhere, {"--version"}));
  if (sandbox.Finish(probe).code != 0) GTEST_SKIP() << "no time namespace can be made here";
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kShort));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers")) << ps.Err();
  const std::vector<std::string> second = sandbox.Task("worker", 1, 1, 2, kShort);
  Program refused = sandbox.StartCommand(behind(elsewhere, second));
  EXPECT_THAT(
      OnlyError(sandbox.Finish(refused, 10)),
      AllOf(HasSubstr("worker/1 is in another time namespace"), HasSubstr("boottime 100000 0")));
  // Another namespace with the same clocks is none, and a whole job may be in one.
  Program first = sandbox.Start(sandbox.Task("worker", 0, 1, 2, kShort));
  Program joined = sandbox.StartCommand(behind({"unshare", "--time", "--fork"}, second));
  for (Program* task : {&first, &joined, &ps}) {
    EXPECT_EQ(sandbox.Finish(*task, 20).code, 0) << task->Err();
  }
  Program job = sandbox.StartCommand(
      behind(With(elsewhere, {"--monotonic=5000"}),
             {"train", "--data_dir=" + Digits(), "--train_steps=100", "--mode=barrier"}));
  EXPECT_EQ(sandbox.Finish(job, 20).code, 0) << job.Err();
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Slow: the line comes every 10 s.
TEST(SlowByHandTest, WaitingTaskSaysEveryTenSecondsForWhom) {
  HandStarted job(2, 1, kEndless);
  Program& worker = job.Start("worker/0");
  EXPECT_TRUE(worker.WaitFor("still waiting for ps/0\n", 15));
  // All who are missing, not only the first.
  EXPECT_TRUE(worker.WaitFor("still waiting for ps/1\n", 1));
  EXPECT_THAT(worker.Err(), Not(HasSubstr("CreateSession")));
  Program& ps = job.Start("ps/0");
  EXPECT_EQ(job.Finish("worker/0").code, 143);  // --start_wait=20
  job.sandbox().Interrupt(ps);
}

TEST(SlowByHandTest, WhoWaitsForTheChiefNamesIt) {
  HandStarted job(1, 2, kEndless);
  for (const char* task : {"ps/0", "worker/1", "evaluator/0"}) job.Start(task);
  for (const char* waiting : {"worker/1", "evaluator/0"}) {
    EXPECT_TRUE(job[waiting].WaitFor("still waiting for worker/0\n", 15));
  }
  EXPECT_TRUE(job["ps/0"].WaitFor("still waiting for the plan of the chief, worker/0", 5));
  for (const char* task : {"ps/0", "worker/1", "evaluator/0"}) job[task].Signal(SIGINT);
  job.ExpectEnd(130);
}

TEST(ByHandTest, InterruptEndsAWorkerAloneAndAPsWithAll) {
  HandStarted job(1, 2, kEndless);
  job.StartAll();
  ASSERT_TRUE(job.Advances(50));
  job["worker/1"].Signal(SIGINT);
  EXPECT_EQ(job.Finish("worker/1", 2).code, 130);
  EXPECT_TRUE(job.Advances(50, 2));
  job["ps/0"].Signal(SIGINT);
  job.ExpectEnd(130);
}

TEST(ByHandTest, InterruptWhileWaitingEndsAtOnce) {
  HandStarted job(2, 1, kEndless);
  struct Case {
    const char* task;
    const char* ready;
    int signal, code;
  };
  for (const Case& c : {Case{"worker/0", "Initializing session", SIGINT, 130},
                        Case{"worker/0", "Initializing session", SIGTERM, 143},
                        Case{"ps/0", "is ready for its workers", SIGINT, 130}}) {
    ASSERT_TRUE(job.Start(c.task).WaitFor(c.ready));
    job[c.task].Signal(c.signal);
    EXPECT_EQ(job.Finish(c.task, 2).code, c.code);
  }
  EXPECT_EQ(job.sandbox().Leftovers(), "");
}

TEST(ByHandTest, StopBeforeTheChiefCameEndsAllWhoWait) {
  HandStarted job(1, 2, kEndless);
  ASSERT_TRUE(job.Start("ps/0").WaitFor("is ready for its workers"));
  ASSERT_TRUE(job.Start("worker/1").WaitFor("Waiting for session"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  job.Stop({"ps/0", "worker/1"});
}

TEST(ByHandTest, TermOfThePsLeavesTheArenaToItsNextLife) {
  HandStarted job(1, 1, kEndless);
  job.StartAll();
  ASSERT_TRUE(job.Advances(50));
  job["ps/0"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("ps/0", 2).code, 143);
  EXPECT_TRUE(job.Start("ps/0").WaitFor("took the arena")) << job["ps/0"].Err();
  EXPECT_TRUE(job.sandbox().AwaitStep(60));
  job["worker/0"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("worker/0", 2).code, 143);
}

// Before ps/0 has looked, the values of ps/1 are there alone when no worker is left.
TEST(ByHandTest, APsThatIsDrainedEarlyGivesItsValuesToPs0) {
  HandStarted job(2, 2, kEndless);
  const std::string folder = "--checkpoint_dir=" + job.sandbox().dir().File("checkpoints");
  job.Start("ps/0", "keeper.hold:1:sleep2000", {folder});
  job.Start("ps/1", "", {folder});
  for (const char* worker : {"worker/0", "worker/1"}) job.Start(worker, "", {folder});
  ASSERT_TRUE(job["worker/1"].WaitFor("training step ")) << job["worker/1"].Err();
  job.Kill("worker/0");
  job["worker/1"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("worker/1").code, 143);
  for (const char* ps : {"ps/1", "ps/0"}) job[ps].Signal(SIGTERM);
  for (const char* ps : {"ps/0", "ps/1"}) EXPECT_EQ(job.Finish(ps).code, 143) << job[ps].Err();
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("saved checkpoint"));
  EXPECT_EQ(job.sandbox().Leftovers(), "");
}

// What has not begun loses nothing, and says so.
TEST(ByHandTest, APsThatIsDrainedBeforeThereAreValuesSaysSo) {
  HandStarted job(1, 1, kEndless);
  job.Start("ps/0");
  ASSERT_TRUE(job.Start("worker/0", "chief.before_open:1:stop").WaitFor("Initializing session"));
  const Deadline soon = Deadline::After(Scaled(20));
  while (job.sandbox().Status()["arena"].is_null() && !soon.Expired()) {
  }
  job["ps/0"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("ps/0").code, 143);
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("its variables have no values yet, so nothing is lost"));
  job.Kill("worker/0");
}

TEST(ByHandTest, StatusOfTheMostWorkersThereMayBeIsWhole) {
  HandStarted job(1, 256, kEndless);
  for (const char* task : {"ps/0", "worker/0"}) job.Start(task);
  ASSERT_TRUE(job.sandbox().AwaitStep(1)) << job["worker/0"].Err();
  EXPECT_EQ(job.sandbox().Status()["arena"]["workers"].size(), 256u);
  job["ps/0"].Signal(SIGINT);  // 255 of them it would wait for
  job.ExpectEnd(130);
}

}  // namespace
}  // namespace passel::testing
