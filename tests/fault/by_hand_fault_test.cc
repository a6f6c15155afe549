// Tasks that were started by hand and are killed, stopped and told to go.

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

// Small, and no faster than somebody who looks on: 100 steps of a worker take 0.1 s at least.
const std::vector<std::string> kPaced = {"--hidden_units=16", "--batch_size=20",
                                         "--slow_worker=0:1ms,1:1ms"};

TEST(ByHandFaultTest, PsComesBackWhileAWorkerIsStopped) {
  for (const std::string stopped : {"worker/0", "worker/1"}) {
    SCOPED_TRACE(stopped);
    HandStarted job(1, 2, kEndless);
    job.StartAll();
    ASSERT_TRUE(job.Advances(50)) << job["worker/0"].Err();
    job[stopped].Signal(SIGSTOP);
    job.Kill("ps/0");
    Program& ps = job.Start("ps/0");
    ASSERT_TRUE(ps.WaitFor("took the arena of a former ps/0 over")) << ps.Err();
    EXPECT_TRUE(ps.WaitFor(stopped + " (process ")) << ps.Err();
    EXPECT_THAT(ps.Err(), HasSubstr("does not answer"));
    ASSERT_TRUE(job.Advances(50)) << ps.Err();
    // It does not miss the ps that came back meanwhile.
    job[stopped].Signal(SIGCONT);
    EXPECT_TRUE(job[stopped].WaitFor("ps/0 is back")) << job[stopped].Err();
    ASSERT_TRUE(job.Advances(50));
    job.Stop({"ps/0", "worker/0", "worker/1"});
  }
}

TEST(ByHandFaultTest, StoppedWorkerThatHoldsTheOnlyArenaIsNamed) {
  HandStarted job(1, 1, kEndless);
  job.StartAll();
  ASSERT_TRUE(job.Advances(50)) << job["worker/0"].Err();
  job["worker/0"].Signal(SIGSTOP);
  job.Kill("ps/0");
  job.Start("ps/0");
  EXPECT_THAT(job.OnlyErrorOf("ps/0", 143),
              AllOf(HasSubstr("worker/0 (process "), HasSubstr("does not answer"),
                    HasSubstr("the only one")));
  job["worker/0"].Signal(SIGCONT);
  EXPECT_TRUE(job.Start("ps/0").WaitFor("took the arena")) << job["ps/0"].Err();
  ASSERT_TRUE(job.Advances(50));
  job.Stop({"ps/0", "worker/0"});
}

TEST(ByHandFaultTest, WorkersThatAreAllToldToGoAreWaitedFor) {
  HandStarted job(1, 2, kEndless);
  job.StartAll();
  ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
  const std::int64_t step = job.sandbox().GlobalStep();
  for (const char* worker : {"worker/0", "worker/1"}) job[worker].Signal(SIGTERM);
  for (const char* worker : {"worker/0", "worker/1"}) EXPECT_EQ(job.Finish(worker).code, 143);
  ASSERT_TRUE(job["ps/0"].WaitFor("no worker is running (worker/0 left, worker/1 left): waiting"))
      << job["ps/0"].Err();
  for (const char* worker : {"worker/0", "worker/1"}) job.Start(worker);
  ASSERT_TRUE(job.Advances(50)) << job["worker/0"].Err();
  EXPECT_GT(job.sandbox().GlobalStep(), step);
  job.Stop({"ps/0", "worker/0", "worker/1"});
}

TEST(ByHandFaultTest, WorkerThatWasToldToGoIsNotDoneWhenTheOthersAre) {
  HandStarted job(1, 2, {"--train_steps=600", "--slow_worker=0:2ms,1:2ms", "--start_wait=20"});
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("training step 100 done")) << job["worker/1"].Err();
  job["worker/1"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("worker/1").code, 143);
  EXPECT_EQ(job.Finish("worker/0", 30).code, 0);
  EXPECT_TRUE(job["ps/0"].WaitFor("no worker is running (worker/0 done, worker/1 left): waiting"))
      << job["ps/0"].Err();
  job.Stop({"ps/0"});
}

// Which model a job in rounds has after a step is certain, to the last bit.
TEST(ByHandFaultTest, ChiefThatIsToldToGoSavesTheValuesOfOneRound) {
  const std::vector<std::string> flags = {"--mode=barrier", "--start_wait=20",
                                          "--threads_per_worker=1", "--slow_worker=1:20ms"};
  HandStarted job(1, 2, With(flags, {"--train_steps=100000000"}));
  const std::string saved = job.sandbox().dir().File("model");
  job.Start("ps/0");
  job.Start("worker/0", "worker.saving:1:sleep500", {"--save=" + saved});
  job.Start("worker/1");
  ASSERT_TRUE(job.Advances(10)) << job["worker/0"].Err();
  job["worker/0"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("worker/0").code, 143) << job["worker/0"].Err();
  ASSERT_TRUE(job.Advances(10)) << "the other goes on";
  job.Stop({"ps/0", "worker/1"});

  const std::string text = ReadText(saved);
  const std::size_t at = text.find("\"global_step\":\"");
  ASSERT_NE(at, std::string::npos);
  const std::int64_t step = std::atoll(text.c_str() + at + 15);
  HandStarted again(1, 2, With(flags, {fmt::format("--train_steps={}", step)}));
  const std::string whole = again.sandbox().dir().File("model");
  again.Start("ps/0");
  again.Start("worker/0", "", {"--save=" + whole});
  again.Start("worker/1");
  for (const char* task : {"worker/0", "worker/1", "ps/0"}) EXPECT_EQ(again.Finish(task).code, 0);
  EXPECT_TRUE(ReadText(whole) == text) << "of step " << step;
}

TEST(ByHandFaultTest, PsComesBackBeforeTheChiefHasTheArenasOfTheOthers) {
  HandStarted job(2, 2, With(kEndless, {"--ps_wait=0.6"}));
  job.Start("ps/0");
  job.Start("ps/1", "arena.reserved:1:sleep2000");  // as long as a large one takes
  for (const char* worker : {"worker/0", "worker/1"}) job.Start(worker);
  const Deadline deadline = Deadline::After(Scaled(10.0));
  while (!job.sandbox().Status().contains("arena")) {
    ASSERT_FALSE(deadline.Expired()) << job["worker/0"].Err();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it is handed over at once
  job.Kill("ps/0");
  Program& ps = job.Start("ps/0");
  ASSERT_TRUE(ps.WaitFor("took the arena of a former ps/0 over from worker/", 2)) << ps.Err();
  for (const char* worker : {"worker/0", "worker/1"}) {
    ASSERT_TRUE(job[worker].WaitFor("training step 100 done")) << job[worker].Err();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(900));  // --ps_wait
  ASSERT_TRUE(job.Advances(50)) << job["worker/0"].Err();
  job.Stop({"ps/0", "ps/1", "worker/0", "worker/1"});
}

TEST(ByHandFaultTest, WorkerThatDiedWhileItJoinedHoldsUpNoPsThatCameBack) {
  HandStarted job(2, 2, kEndless);
  for (const char* task : {"ps/0", "ps/1", "worker/0"}) job.Start(task);
  ASSERT_TRUE(job.Advances(10)) << job["worker/0"].Err();
  const std::string marker = job.sandbox().dir().File("joins");
  job.Start("worker/1", "join.claimed:1:stop:" + marker);
  const Deadline deadline = Deadline::After(Scaled(10.0));
  while (!std::filesystem::exists(marker)) ASSERT_FALSE(deadline.Expired());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.Kill("ps/0");  // first: it would see the end of the connection
  job.Kill("worker/1");
  ASSERT_TRUE(job.Start("ps/0").WaitFor("took the arena")) << job["ps/0"].Err();
  EXPECT_TRUE(job["ps/0"].WaitFor("worker/1 died", 5)) << job["ps/0"].Err();
  ASSERT_TRUE(job.Advances(10));
  job.Stop({"ps/0", "ps/1", "worker/0"});
}

TEST(ByHandFaultTest, JoinerThatOthersHoldUpNamesThemAndNotTheChief) {
  HandStarted job(1, 3, {"--train_steps=100000000", "--mode=barrier", "--on_stall=wait"});
  const std::string marker = job.sandbox().dir().File("applies");
  job.Start("ps/0");
  job.Start("worker/1", "round.piece:20:stop:" + marker);
  for (const char* task : {"worker/0", "worker/2"}) job.Start(task);
  const Deadline deadline = Deadline::After(Scaled(10.0));
  while (!std::filesystem::exists(marker)) ASSERT_FALSE(deadline.Expired());
  job.Kill("worker/2");
  job.Start("worker/2", "", {"--start_wait=2"});
  EXPECT_THAT(job.OnlyErrorOf("worker/2", 143),
              AllOf(HasSubstr("this task cannot begin"), HasSubstr("worker/1"),
                    Not(HasSubstr("initialised"))));
  job["worker/1"].Signal(SIGCONT);
  ASSERT_TRUE(job.Advances(10)) << job["worker/1"].Err();
  job.Stop({"ps/0", "worker/0", "worker/1"});
}

// Where nobody waits for anybody it is the ps alone that a stopped worker holds up.
TEST(ByHandFaultTest, StoppedWorkerDoesNotKeepAJobFromEndingForEver) {
  for (const bool stop : {false, true}) {
    SCOPED_TRACE(stop ? "the job is stopped" : "the other one is done");
    HandStarted job(
        1, 2,
        With(kPaced, {stop ? "--train_steps=100000000" : "--train_steps=1000", "--stall_limit=1"}));
    job.StartAll();
    ASSERT_TRUE(job["worker/1"].WaitFor("training step 100 done")) << job["worker/1"].Err();
    job["worker/1"].Signal(SIGSTOP);
    if (stop) job.AskToStop();
    EXPECT_EQ(job.Finish("worker/0", 30).code, stop ? 130 : 0);
    EXPECT_EQ(job.Finish("worker/1").code, 1000 + SIGKILL);
    EXPECT_TRUE(job["ps/0"].WaitFor("did not answer, and was evicted")) << job["ps/0"].Err();
    if (!stop) {
      EXPECT_TRUE(job["ps/0"].WaitFor("no worker is running (worker/0 done, worker/1 "));
      job.AskToStop();
    }
    EXPECT_EQ(job.Finish("ps/0").code, 130) << job["ps/0"].Err();
    EXPECT_EQ(job.sandbox().Leftovers(), "");
  }
}

TEST(ByHandFaultTest, StoppedWorkerEndsAJobThatItKeepsFromEndingAsOnStallSays) {
  const std::vector<std::string> flags = With(kPaced, {"--train_steps=1000", "--stall_limit=0.5"});
  {
    HandStarted job(1, 2, With(flags, {"--on_stall=fail"}));
    job.StartAll();
    ASSERT_TRUE(job["worker/1"].WaitFor("training step 100 done")) << job["worker/1"].Err();
    job["worker/1"].Signal(SIGSTOP);
    EXPECT_EQ(job.Finish("worker/0", 30).code, 0);
    EXPECT_THAT(
        job.OnlyErrorOf("ps/0", 1),
        HasSubstr(fmt::format("worker/1 (process {}) keeps the job from", job["worker/1"].pid())));
    job["worker/1"].Signal(SIGCONT);
    EXPECT_EQ(job.Finish("worker/1").code, 0) << "the last step was made without it";
  }
  HandStarted job(1, 2, With(flags, {"--on_stall=wait"}));
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("training step 100 done")) << job["worker/1"].Err();
  job["worker/1"].Signal(SIGSTOP);
  EXPECT_EQ(job.Finish("worker/0", 30).code, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  job["worker/1"].Signal(SIGCONT);
  EXPECT_EQ(job.Finish("worker/1").code, 0);
  EXPECT_EQ(job.Finish("ps/0").code, 0);
}

TEST(ByHandFaultTest, StoppedJobWaitsForNobodyWhoNeverCame) {
  HandStarted job(2, 2, kEndless);
  for (const char* task : {"ps/0", "ps/1", "worker/0"}) job.Start(task);
  ASSERT_TRUE(job.Advances(10)) << job["worker/0"].Err();
  const Deadline deadline = Deadline::After(Scaled(8.0));
  job.Stop({"ps/0", "ps/1", "worker/0"});
  EXPECT_FALSE(deadline.Expired()) << job["ps/1"].Err();
}

TEST(ByHandFaultTest, DeathIsToldOnceByThePsAndByTheOtherWorkers) {
  for (const char* mode : {"--mode=hogwild", "--mode=barrier"}) {
    SCOPED_TRACE(mode);
    HandStarted job(1, 3, With(kEndless, {mode}));
    job.StartAll();
    for (const char* worker : {"worker/0", "worker/1", "worker/2"}) {
      ASSERT_TRUE(job[worker].WaitFor("training step 100 done")) << job[worker].Err();
    }
    const std::string line = fmt::format("worker/1 (process {}) died\n", job["worker/1"].pid());
    job.Kill("worker/1");
    for (const char* task : {"ps/0", "worker/0", "worker/2"}) {
      EXPECT_TRUE(job[task].WaitFor(line, 5)) << task << job[task].Err();
    }
    ASSERT_TRUE(job.Advances(50));
    // The next life of the ps does not tell it again.
    job.Kill("ps/0");
    ASSERT_TRUE(job.Start("ps/0").WaitFor("took the arena")) << job["ps/0"].Err();
    job["worker/2"].Signal(SIGTERM);
    EXPECT_EQ(job.Finish("worker/2").code, 143);
    EXPECT_TRUE(job["ps/0"].WaitFor(") left before it was done\n", 5)) << job["ps/0"].Err();
    EXPECT_THAT(job["ps/0"].Err(), Not(HasSubstr("died")));
    job.Stop({"ps/0", "worker/0"});
    const std::string err = job["worker/0"].Err();
    const std::size_t at = err.find(line);
    EXPECT_EQ(err.find("died", at + line.size()), std::string::npos) << err;
  }
}

// Without a checkpoint, that is. All hear of it, and nobody waits for the others.
TEST(ByHandFaultTest, LossOfTheValuesOfPs0EndsTheJob) {
  HandStarted job(2, 2, {"--train_steps=100000000", "--start_wait=300"});
  job.StartAll();
  ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
  for (const char* task : {"worker/0", "worker/1", "ps/0"}) job.Kill(task);
  for (const char* task : {"ps/0", "worker/1"}) job.Start(task);
  const Deadline soon = Deadline::After(Scaled(20));
  while (job.sandbox().Status()["joined"] != nlohmann::json{1}) {
    ASSERT_FALSE(soon.Expired()) << job["worker/1"].Err();
  }
  job.Start("worker/0");
  for (const char* task : {"worker/0", "worker/1", "ps/0", "ps/1"}) {
    EXPECT_THAT(job.OnlyErrorOf(task, 1),
                AllOf(HasSubstr("ps/0 has lost its values while ps/1 still has those of "),
                      HasSubstr("the job is lost; start it anew, with --checkpoint_dir")))
        << task;
  }
  EXPECT_EQ(job.sandbox().Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing
