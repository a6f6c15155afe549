// Tasks that are started by hand, each a process of its own without a supervisor.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

bool Reaches(Sandbox& sandbox, std::int64_t step, double seconds = 10) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  while (!deadline.Expired()) {
    if (sandbox.GlobalStep() >= step) return true;
  }
  return false;
}

// The number behind "(global step: " in a worker's last line of it.
std::int64_t PrintedStep(const std::string& out) {
  const std::size_t at = out.rfind("(global step: ");
  return at == std::string::npos ? -1 : std::atoll(out.c_str() + at + 14);
}

const std::vector<std::string> kEndless = {"--train_steps=100000000", "--start_wait=20"};
const std::vector<std::string> kShort = {"--train_steps=400", "--start_wait=20"};

std::vector<std::string> With(std::vector<std::string> flags, const std::string& more) {
  flags.push_back(more);
  return flags;
}

TEST(ByHandTest, TasksMeetInAnyOrderAndEndByThemselves) {
  const std::vector<std::vector<std::string>> orders = {{"ps/0", "worker/0", "worker/1"},
                                                        {"worker/1", "worker/0", "ps/0"},
                                                        {"worker/0", "ps/0", "worker/1"},
                                                        {"worker/1", "ps/0", "worker/0"}};
  for (const std::vector<std::string>& order : orders) {
    for (const int pause_ms : {0, 150}) {
      SCOPED_TRACE(order[0] + " " + order[1] + " " + std::to_string(pause_ms));
      Sandbox sandbox;
      std::map<std::string, Program> tasks;
      for (const std::string& task : order) {
        const std::string job = task.substr(0, task.size() - 2);
        tasks.emplace(task, sandbox.Start(sandbox.Task(job, task.back() - '0', 1, 2, kShort)));
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      }
      for (auto& [name, program] : tasks) {
        const Outcome outcome = sandbox.Finish(program, 15);
        EXPECT_EQ(outcome.code, 0) << name << outcome.err << outcome.out;
        EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
        // There is neither gRPC nor a port.
        for (const char* word : {"grpc", "Grpc", "CreateSession"}) {
          EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr(word))) << name;
        }
      }
      EXPECT_THAT(tasks.at("worker/0").Out(), HasSubstr("Session initialization complete"));
      EXPECT_THAT(tasks.at("worker/1").Out(), HasSubstr("worker=1, final accuracy = "));
      EXPECT_EQ(sandbox.Leftovers(), "");  // the token file too
      if (HasFailure()) return;
    }
  }
}

TEST(ByHandTest, WorkerThatIsDoneDoesNotMissAPsThatEndsBeforeIt) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kShort));
  sandbox.SetEnv("PASSEL_FAILPOINT", "worker.left:1:sleep2000");  // as long as a large file takes
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kShort));
  EXPECT_EQ(sandbox.Finish(ps, 15).code, 0) << ps.Err();
  EXPECT_TRUE(worker.Running());
  const Outcome outcome = sandbox.Finish(worker, 15);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr(" is gone")));
}

TEST(ByHandTest, ThreePsAndBarrierFinishAndSave) {
  Sandbox sandbox;
  const std::vector<std::string> flags = With(kShort, "--mode=barrier");
  std::vector<Program> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(sandbox.Start(sandbox.Task("ps", i, 3, 2, flags)));
  tasks.push_back(sandbox.Start(sandbox.Task("worker", 1, 3, 2, flags)));
  tasks.push_back(sandbox.Start(
      sandbox.Task("worker", 0, 3, 2, With(flags, "--save=" + sandbox.dir().File("m")))));
  for (Program& task : tasks) {
    const Outcome outcome = sandbox.Finish(task, 20);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
  EXPECT_EQ(
      sandbox.Run({"eval", "--model=" + sandbox.dir().File("m"), "--data_dir=" + Digits()}).code,
      0);
}

TEST(ByHandTest, PsThatComesBackTakesTheArenaOver) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
  Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 2, kEndless));
  Program other = sandbox.Start(sandbox.Task("worker", 1, 1, 2, kEndless));
  std::int64_t step = 100;
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(Reaches(sandbox, step)) << chief.Err() << ps.Err();
    step = sandbox.GlobalStep();
    ps.Signal(SIGKILL);
    ps.Wait();
    ASSERT_TRUE(chief.WaitFor("ps/0 is gone")) << chief.Err();
    ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
    ASSERT_TRUE(ps.WaitFor("took the arena of a former ps/0 over")) << ps.Err();
    ASSERT_TRUE(chief.WaitFor("ps/0 is back")) << chief.Err();
    ASSERT_TRUE(Reaches(sandbox, step + 50)) << chief.Err();
    const std::int64_t now = sandbox.GlobalStep();
    EXPECT_GT(now, step);
    step = now + 100;
  }
  EXPECT_TRUE(chief.Running());
  EXPECT_TRUE(other.Running());
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(chief, 5).code, 130);
  EXPECT_EQ(sandbox.Finish(other, 5).code, 130);
  EXPECT_EQ(sandbox.Finish(ps, 5).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, WithoutItsPsAWorkerEndsAfterPsWait) {
  Sandbox sandbox;
  const std::vector<std::string> flags = With(kEndless, "--ps_wait=0.7");
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, flags));
  Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 2, flags));
  Program other = sandbox.Start(sandbox.Task("worker", 1, 1, 2, flags));
  ASSERT_TRUE(Reaches(sandbox, 100)) << chief.Err();
  ps.Signal(SIGKILL);
  ps.Wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_TRUE(chief.Running());
  for (Program* worker : {&chief, &other}) {
    const Outcome outcome = sandbox.Finish(*worker, 3);
    EXPECT_EQ(outcome.code, 143) << outcome.err;
    ASSERT_EQ(outcome.errors.size(), 1u) << outcome.err;
    EXPECT_THAT(outcome.errors[0], HasSubstr("--ps_wait"));
  }
}

TEST(ByHandTest, KilledWorkerJoinsAgain) {
  for (const char* mode : {"--mode=hogwild", "--mode=barrier"}) {
    Sandbox sandbox;
    const std::vector<std::string> flags = With(kEndless, mode);
    Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, flags));
    Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 2, flags));
    Program other = sandbox.Start(sandbox.Task("worker", 1, 1, 2, flags));
    std::int64_t step = 50;
    for (const int victim : {1, 0}) {  // 0: the chief
      ASSERT_TRUE(Reaches(sandbox, step)) << chief.Err() << other.Err();
      Program& program = victim == 0 ? chief : other;
      program.Signal(SIGKILL);
      program.Wait();
      ASSERT_TRUE(Reaches(sandbox, sandbox.GlobalStep() + 50, 2)) << "the other goes on";
      program = sandbox.Start(sandbox.Task("worker", victim, 1, 2, flags));
      ASSERT_TRUE(program.WaitFor("Training begins")) << program.Err();
      step = sandbox.GlobalStep() + 100;
      // Steps are counted over all lives: which number comes first is open.
      ASSERT_TRUE(program.WaitFor(" done (global step: ")) << program.Err();
      EXPECT_GT(PrintedStep(program.Out()), 50);  // values were not begun anew
    }
    for (Program* p : {&ps, &chief, &other}) p->Signal(SIGINT);
    for (Program* p : {&ps, &chief, &other}) EXPECT_EQ(sandbox.Finish(*p, 4).code, 130) << p->Err();
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(ByHandTest, SecondTaskOfTheSameIdentityIsRefused) {
  Sandbox sandbox;
  Program waiting = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kEndless));
  ASSERT_TRUE(waiting.WaitFor("Initializing session"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto refused = [&](const std::string& job) {
    const Outcome second = sandbox.Run(sandbox.Task(job, 0, 1, 1, kEndless), 5);
    EXPECT_EQ(second.code, 2);
    ASSERT_EQ(second.errors.size(), 1u) << second.err;
    EXPECT_THAT(second.errors[0], HasSubstr(job + "/0"));
    EXPECT_THAT(second.errors[0], HasSubstr("running already"));
  };
  refused("worker");  // the first still waits for the ps
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kEndless));
  ASSERT_TRUE(Reaches(sandbox, 10));
  refused("worker");
  refused("ps");
  EXPECT_TRUE(waiting.Running());
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(ps, 4).code, 130);
  EXPECT_EQ(sandbox.Finish(waiting, 4).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, OtherSettingsThanTheChiefsAreNamed) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
  Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 2, kEndless));
  ASSERT_TRUE(Reaches(sandbox, 10));
  struct Case {
    const char* flag;
    const char* word;
  };
  for (const Case& c :
       {Case{"--learning_rate=0.5", "learning_rate"}, Case{"--mode=barrier", "mode"},
        Case{"--hidden_units=77", "77"}, Case{"--optimizer=sgd", "optimizer"}}) {
    const Outcome worker = sandbox.Run(sandbox.Task("worker", 1, 1, 2, With(kEndless, c.flag)), 10);
    EXPECT_EQ(worker.code, 2) << c.flag;
    ASSERT_EQ(worker.errors.size(), 1u) << worker.err;
    EXPECT_THAT(worker.errors[0], HasSubstr("other settings than the chief"));
    EXPECT_THAT(worker.errors[0], HasSubstr(c.word));
  }
  EXPECT_TRUE(Reaches(sandbox, sandbox.GlobalStep() + 10));
}

TEST(ByHandTest, OtherHostListsAreRefused) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  const Outcome worker = sandbox.Run(sandbox.Task("worker", 0, 1, 3, kEndless), 10);
  EXPECT_EQ(worker.code, 2);
  ASSERT_EQ(worker.errors.size(), 1u) << worker.err;
  EXPECT_THAT(worker.errors[0], HasSubstr("--worker_hosts"));
}

TEST(ByHandTest, TaskThatStaysAloneEndsAfterStartWaitAndSaysWhomItWaitedFor) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--train_steps=100", "--start_wait=0.8"};
  const Outcome worker = sandbox.Run(sandbox.Task("worker", 1, 1, 2, flags), 5);
  EXPECT_EQ(worker.code, 143);
  ASSERT_EQ(worker.errors.size(), 1u) << worker.err;
  EXPECT_THAT(worker.errors[0], HasSubstr("ps/0"));
  EXPECT_THAT(worker.errors[0], HasSubstr("0.8 s"));
  const Outcome ps = sandbox.Run(sandbox.Task("ps", 0, 1, 2, flags), 5);
  EXPECT_EQ(ps.code, 143);
  ASSERT_EQ(ps.errors.size(), 1u) << ps.err;
  EXPECT_THAT(ps.errors[0], HasSubstr("worker/0"));
  Program other_ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, flags));
  const Outcome no_chief = sandbox.Run(sandbox.Task("worker", 1, 1, 2, flags), 5);
  EXPECT_EQ(no_chief.code, 143);
  ASSERT_EQ(no_chief.errors.size(), 1u) << no_chief.err;
  for (const char* word : {"worker/0", "0.8 s", "--start_wait"}) {
    EXPECT_THAT(no_chief.errors[0], HasSubstr(word));
  }
  EXPECT_EQ(sandbox.Finish(other_ps, 5).code, 143);
}

TEST(ByHandTest, PsDoesNotWaitForEverForAWorkerThatNeverCame) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--train_steps=100", "--start_wait=1"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, flags));
  EXPECT_EQ(sandbox.Run(sandbox.Task("worker", 0, 1, 2, flags), 10).code, 0);
  const Outcome end = sandbox.Finish(ps, 20);  // it keeps the job open for 10 s more
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("worker/1 did not start within 1 s"));
  EXPECT_THAT(end.err, HasSubstr("the job finished with fewer workers than it began with: worker/0 "
                                 "done, worker/1 never started"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// In rounds the others wait for it, so they are those who give it up.
TEST(ByHandTest, WhoGoesOnWithoutAWorkerThatNeverCameSaysSoOnce) {
  for (const std::string mode : {"barrier", "replicas"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    const std::vector<std::string> flags = {"--train_steps=100", "--start_wait=1.5",
                                            "--mode=" + mode};
    Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 3, flags));
    std::vector<Program> workers;
    for (const int k : {0, 2})
      workers.push_back(sandbox.Start(sandbox.Task("worker", k, 1, 3, flags)));
    for (Program& worker : workers) {
      const Outcome end = sandbox.Finish(worker, 15);
      EXPECT_EQ(end.code, 0) << end.err;
      const std::string line =
          "worker/1 did not start within 1.5 s (--start_wait): training goes on without it, 2 of 3 "
          "workers are in the rounds now";
      const std::size_t at = end.err.find(line);
      EXPECT_NE(at, std::string::npos) << end.err;
      EXPECT_EQ(end.err.find("did not start", at + line.size()), std::string::npos) << end.err;
    }
    const Outcome end = sandbox.Finish(ps, 20);  // it keeps the job open for 10 s more
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_THAT(end.err, HasSubstr("the job finished with fewer workers than it began with: "
                                   "worker/0 done, worker/1 never started, worker/2 done"));
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(ByHandTest, TokenFileOfTasksThatWereAllKilledIsReplaced) {
  Sandbox sandbox;
  const auto token_file = [&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(sandbox.runtime())) {
      if (entry.path().extension() == ".token") return entry.path().string();
    }
    return std::string();
  };
  std::vector<Program> tasks;
  const auto start = [&](const std::vector<std::string>& flags) {
    tasks.clear();
    tasks.push_back(sandbox.Start(sandbox.Task("ps", 0, 1, 2, flags)));
    for (int k = 0; k < 2; ++k) {
      tasks.push_back(sandbox.Start(sandbox.Task("worker", k, 1, 2, flags)));
    }
  };
  std::string last;
  for (int life = 0; life < 3; ++life) {
    start(kEndless);
    ASSERT_TRUE(Reaches(sandbox, 20)) << tasks[1].Err();
    ASSERT_NE(token_file(), "");
    const std::string token = ReadText(token_file());
    EXPECT_EQ(token.size(), 32u);
    EXPECT_NE(token, last) << "a token of dead tasks is in use";
    last = token;
    // One that is alone left keeps the token: who comes back finds it.
    for (int victim : {0, 1}) {
      tasks[victim].Signal(SIGKILL);
      tasks[victim].Wait();
    }
    EXPECT_EQ(ReadText(token_file()), token);
    tasks[2].Signal(SIGKILL);
    tasks[2].Wait();
    EXPECT_NE(token_file(), "") << "killed tasks remove nothing";
  }
  start(kShort);
  for (Program& task : tasks) EXPECT_EQ(sandbox.Finish(task, 20).code, 0) << task.Err();
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, TokenFileOfAKilledPsIsRemovedByTheStartOfAnotherJob) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kEndless));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers")) << ps.Err();
  ps.Signal(SIGKILL);
  ps.Wait();
  const std::string left = fmt::format("{}/passel/{}.token", sandbox.runtime(), sandbox.job());
  ASSERT_TRUE(std::filesystem::exists(left));
  std::vector<std::string> next = sandbox.Task("ps", 0, 1, 1, kEndless);
  for (std::string& argument : next) {
    if (argument.starts_with("--job_id=")) argument += "-next";
  }
  Program other = sandbox.Start(next);
  ASSERT_TRUE(other.WaitFor("is ready for its workers")) << other.Err();
  EXPECT_FALSE(std::filesystem::exists(left));
  other.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(other, 5).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, TaskInAnotherTimeNamespaceIsToldWhyItCannotJoin) {
  Sandbox sandbox;
  const std::vector<std::string> elsewhere = {"unshare", "--time", "--boottime=100000", "--fork"};
  const auto behind = [](std::vector<std::string> command, const std::vector<std::string>& task) {
    command.push_back(PASSEL_PROGRAM);
    command.insert(command.end(), task.begin(), task.end());
    return command;
  };
  Program probe = sandbox.StartCommand(behind(elsewhere, {"--version"}));
  if (sandbox.Finish(probe).code != 0) GTEST_SKIP() << "no time namespace can be made here";
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kShort));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers")) << ps.Err();
  const std::vector<std::string> second = sandbox.Task("worker", 1, 1, 2, kShort);
  Program refused = sandbox.StartCommand(behind(elsewhere, second));
  const Outcome outcome = sandbox.Finish(refused, 10);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  ASSERT_EQ(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_THAT(outcome.errors[0], HasSubstr("worker/1 is in another time namespace"));
  EXPECT_THAT(outcome.errors[0], HasSubstr("boottime 100000 0"));
  // Another namespace with the same clocks is none, and a whole job may be in one.
  Program first = sandbox.Start(sandbox.Task("worker", 0, 1, 2, kShort));
  Program joined = sandbox.StartCommand(behind({"unshare", "--time", "--fork"}, second));
  for (Program* task : {&first, &joined, &ps}) {
    EXPECT_EQ(sandbox.Finish(*task, 20).code, 0) << task->Err();
  }
  std::vector<std::string> whole = elsewhere;
  whole.push_back("--monotonic=5000");
  Program job = sandbox.StartCommand(
      behind(whole, {"train", "--data_dir=" + Digits(), "--train_steps=100", "--mode=barrier"}));
  EXPECT_EQ(sandbox.Finish(job, 20).code, 0) << job.Err();
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Slow: the line comes every 10 s.
TEST(SlowByHandTest, WaitingTaskSaysEveryTenSecondsForWhom) {
  Sandbox sandbox;
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 2, 1, kEndless));
  EXPECT_TRUE(worker.WaitFor("still waiting for ps/0\n", 15));
  // All who are missing, not only the first.
  EXPECT_TRUE(worker.WaitFor("still waiting for ps/1\n", 1));
  EXPECT_THAT(worker.Err(), Not(HasSubstr("CreateSession")));
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 2, 1, kEndless));
  EXPECT_EQ(sandbox.Finish(worker, 15).code, 143);  // --start_wait=20
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(ps, 5).code, 130);
}

TEST(SlowByHandTest, WhoWaitsForTheChiefNamesIt) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
  Program worker = sandbox.Start(sandbox.Task("worker", 1, 1, 2, kEndless));
  Program evaluator = sandbox.Start(sandbox.Task("evaluator", 0, 1, 2, kEndless));
  for (Program* waiting : {&worker, &evaluator}) {
    EXPECT_TRUE(waiting->WaitFor("still waiting for worker/0\n", 15));
  }
  EXPECT_TRUE(ps.WaitFor("still waiting for the plan of the chief, worker/0", 5));
  for (Program* task : {&worker, &evaluator, &ps}) {
    task->Signal(SIGINT);
    EXPECT_EQ(sandbox.Finish(*task, 5).code, 130);
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, WrongTokenFileIsRefusedInOneSentence) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("token");
  WriteText(path, std::string(32, 'x'));
  ::chmod(path.c_str(), 0400);
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kEndless));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  const Outcome worker =
      sandbox.Run(sandbox.Task("worker", 0, 1, 1, With(kEndless, "--token_file=" + path)), 5);
  EXPECT_EQ(worker.code, 2);
  ASSERT_EQ(worker.errors.size(), 1u) << worker.err;
  EXPECT_THAT(worker.errors[0], HasSubstr("token"));
  EXPECT_TRUE(ps.Running());
}

TEST(ByHandTest, InterruptEndsAWorkerAloneAndAPsWithAll) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
  Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 2, kEndless));
  Program other = sandbox.Start(sandbox.Task("worker", 1, 1, 2, kEndless));
  ASSERT_TRUE(Reaches(sandbox, 50));
  other.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(other, 2).code, 130);
  EXPECT_TRUE(Reaches(sandbox, sandbox.GlobalStep() + 50, 2));
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(ps, 2).code, 130);
  EXPECT_EQ(sandbox.Finish(chief, 4).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, InterruptWhileWaitingEndsAtOnce) {
  Sandbox sandbox;
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 2, 1, kEndless));
  ASSERT_TRUE(worker.WaitFor("Initializing session"));
  worker.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(worker, 2).code, 130);
  Program again = sandbox.Start(sandbox.Task("worker", 0, 2, 1, kEndless));
  ASSERT_TRUE(again.WaitFor("Initializing session"));
  again.Signal(SIGTERM);
  EXPECT_EQ(sandbox.Finish(again, 2).code, 143);
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 2, 1, kEndless));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(ps, 2).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, StopBeforeTheChiefCameEndsAllWhoWait) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, kEndless));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  Program worker = sandbox.Start(sandbox.Task("worker", 1, 1, 2, kEndless));
  ASSERT_TRUE(worker.WaitFor("Waiting for session"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(ps, 3).code, 130);
  EXPECT_EQ(sandbox.Finish(worker, 3).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ByHandTest, TermOfThePsLeavesTheArenaToItsNextLife) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kEndless));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kEndless));
  ASSERT_TRUE(Reaches(sandbox, 50));
  ps.Signal(SIGTERM);
  EXPECT_EQ(sandbox.Finish(ps, 2).code, 143);
  Program next = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kEndless));
  EXPECT_TRUE(next.WaitFor("took the arena")) << next.Err();
  EXPECT_TRUE(Reaches(sandbox, 60));
  worker.Signal(SIGTERM);
  EXPECT_EQ(sandbox.Finish(worker, 2).code, 143);
}

TEST(ByHandTest, StatusOfTheMostWorkersThereMayBeIsWhole) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 256, kEndless));
  Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 256, kEndless));
  const Deadline deadline = Deadline::After(Scaled(20.0));
  while (sandbox.GlobalStep() < 1) ASSERT_FALSE(deadline.Expired()) << chief.Err();
  EXPECT_EQ(sandbox.Status()["arena"]["workers"].size(), 256u);
  ps.Signal(SIGINT);  // 255 of them it would wait for
  EXPECT_EQ(sandbox.Finish(chief, 20).code, 130);
  EXPECT_EQ(sandbox.Finish(ps, 20).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing
