// Stopped tasks, and signals that ask a job to end.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A job that trains until it is told to end.
Program StartEndless(Sandbox& sandbox, const std::vector<std::string>& more) {
  return sandbox.Start(sandbox.Train(With(more, {"--pin=none", "--train_steps=100000000"})));
}

std::string Phase(Sandbox& sandbox, std::size_t worker) {
  const nlohmann::json status = sandbox.Status();
  if (!status.is_object() || !status.contains("arena")) return "";
  return status["arena"]["workers"][worker]["phase"].get<std::string>();
}

bool AwaitPhase(Sandbox& sandbox, std::size_t worker, const std::string& phase) {
  const Deadline deadline = Deadline::After(Scaled(5.0));
  while (!deadline.Expired()) {
    if (Phase(sandbox, worker) == phase) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST(StoppedWorkerTest, AsynchronousOthersGoOnAndItComesBack) {
  for (const char* mode : {"--mode=hogwild", "--mode=locked"}) {
    Sandbox sandbox;
    // Stopped in its computation, not while it holds a block: that is the engine's own test.
    sandbox.SetEnv("PASSEL_FAILPOINT", "worker.computed:20:stop:" + sandbox.dir().File("stopped"));
    Program train = StartEndless(sandbox, {mode, "--workers=3"});
    ASSERT_TRUE(sandbox.Advances(200)) << train.Err();
    ASSERT_TRUE(sandbox.Advances(200, 2)) << train.Err();
    pid_t stopped = 0;
    for (const auto& [pid, command] : sandbox.Processes()) {
      const std::string stat = ReadText(fmt::format("/proc/{}/stat", pid));
      if (stat.find(") T ") != std::string::npos) stopped = pid;
    }
    ASSERT_NE(stopped, 0);
    ::kill(stopped, SIGCONT);
    ASSERT_TRUE(sandbox.Advances(200, 2)) << train.Err();
    for (std::size_t w = 0; w < 3; ++w) EXPECT_EQ(Phase(sandbox, w), "running");
    sandbox.Interrupt(train);
  }
}

// Each worker sleeps for most of a step, so that it is of no use to the others that one is stopped.
TEST(StoppedWorkerTest, TheOthersKeepTheirSpeed) {
  Sandbox sandbox;
  Program train = StartEndless(sandbox, {"--workers=3", "--hidden_units=16", "--batch_size=20",
                                         "--slow_worker=0:10ms,1:10ms,2:10ms"});
  ASSERT_TRUE(sandbox.Advances(50)) << train.Err();
  const auto speed = [&] {
    const std::int64_t begin = sandbox.GlobalStep(), begin_ns = MonotonicNs();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    const std::int64_t end = sandbox.GlobalStep(), end_ns = MonotonicNs();
    return 1e9 * static_cast<double>(end - begin) / static_cast<double>(end_ns - begin_ns);
  };
  const pid_t stopped = sandbox.TaskPid("worker", 1);
  ASSERT_NE(stopped, 0);
  // On a busy machine the best of some pairs tells what the one that is stopped costs.
  double all = 1, others = 0;
  for (int pair = 0; pair < 8 && others < 0.9 * all * 2 / 3; ++pair) {
    all = speed();
    ::kill(stopped, SIGSTOP);
    others = speed();
    ::kill(stopped, SIGCONT);
  }
  EXPECT_GE(others, 0.9 * all * 2 / 3) << all << " steps/s of all";
  sandbox.Interrupt(train);
}

TEST(StoppedWorkerTest, BarrierEvictsAndKillsIt) {
  Sandbox sandbox;
  Program train = StartEndless(sandbox, {"--mode=barrier", "--workers=3", "--stall_limit=0.5"});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const pid_t victim = sandbox.TaskPid("worker", 1);
  ::kill(victim, SIGSTOP);
  ASSERT_TRUE(AwaitPhase(sandbox, 1, "evicted"));
  ASSERT_TRUE(train.WaitFor("worker/1 was evicted: it did not answer for 0.5 s", 5)) << train.Err();
  EXPECT_EQ(::kill(victim, 0), -1) << "it is there still";
  ASSERT_TRUE(sandbox.Advances(50, 2)) << train.Err();
  sandbox.Interrupt(train);
}

TEST(InterruptedWorkerTest, SigintToOneAloneIsNamedLikeAnyOtherSignal) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("report.json");
  Program train = StartEndless(sandbox, {"--workers=3", "--max_restarts=1", "--report=" + report});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const pid_t first = sandbox.TaskPid("worker", 1);
  ASSERT_NE(first, 0);
  ::kill(first, SIGINT);
  ASSERT_TRUE(train.WaitFor("worker/1 was ended by SIGINT (2); starting it again")) << train.Err();
  const pid_t second = sandbox.AwaitTask("worker", 1, first);
  ASSERT_NE(second, 0);
  ASSERT_TRUE(AwaitPhase(sandbox, 1, "running"));
  ::kill(second, SIGINT);
  ASSERT_TRUE(train.WaitFor("worker/1 was ended by SIGINT (2); the others go on")) << train.Err();
  ASSERT_TRUE(sandbox.Advances(50, 2)) << train.Err();
  // Those who leave because the job is stopped are not named.
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(train, 4).code, 130);
  const nlohmann::json json = ReadJson(report);
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["deaths"].size(), 2u) << json["deaths"];
  for (const nlohmann::json& death : json["deaths"]) {
    EXPECT_EQ(death["task"], "worker/1");
    EXPECT_EQ(death["cause"], "was ended by SIGINT (2)");
  }
  ASSERT_EQ(json["notes"].size(), 1u) << json["notes"];
  EXPECT_THAT(json["notes"][0].get<std::string>(), HasSubstr("stopped on request"));
  EXPECT_EQ(train.Err().find("worker/0 was ended"), std::string::npos);
  EXPECT_EQ(json["workers"][1]["exit"], "was ended by SIGINT (2)") << json["workers"].dump();
  EXPECT_EQ(json["workers"][0]["exit"], "exited with 130");
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(StoppedWorkerTest, EvictedOneJoinsAgainIfRestartsAreLeft) {
  Sandbox sandbox;
  Program train = StartEndless(
      sandbox, {"--mode=barrier", "--workers=3", "--stall_limit=0.5", "--max_restarts=1"});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const pid_t victim = sandbox.TaskPid("worker", 2);
  ::kill(victim, SIGSTOP);
  EXPECT_NE(sandbox.AwaitTask("worker", 2, victim), 0);
  EXPECT_TRUE(AwaitPhase(sandbox, 2, "running")) << train.Err();
  ASSERT_TRUE(sandbox.Advances(50, 2)) << train.Err();
  sandbox.Interrupt(train);
}

// A stall limit above the turns in which a worker waits.
TEST(StoppedWorkerTest, OneThatStopsInsideADecidedRoundIsEvicted) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "round.saved:300:stop:" + sandbox.dir().File("stopped"));
  Program train = StartEndless(sandbox, {"--mode=barrier", "--workers=3", "--stall_limit=1"});
  const Deadline deadline = Deadline::After(Scaled(15.0));
  while (::access(sandbox.dir().File("stopped").c_str(), F_OK) != 0 && !deadline.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_FALSE(deadline.Expired()) << train.Err();
  EXPECT_TRUE(sandbox.Advances(50, 6)) << train.Err();
  sandbox.Interrupt(train);
}

// For who debugs it.
TEST(StoppedWorkerTest, OnStallWaitEvictsNobody) {
  Sandbox sandbox;
  Program train = StartEndless(
      sandbox, {"--mode=barrier", "--workers=2", "--stall_limit=0.3", "--on_stall=wait"});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const pid_t stopped = sandbox.TaskPid("worker", 1);
  ::kill(stopped, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(Phase(sandbox, 1), "running");
  ::kill(stopped, SIGCONT);
  ASSERT_TRUE(sandbox.Advances(20, 2)) << train.Err();
  sandbox.Interrupt(train);
}

TEST(StoppedWorkerTest, OnStallFailEndsTheJobAndSaysForWhom) {
  Sandbox sandbox;
  Program train = StartEndless(sandbox, {"--mode=barrier", "--workers=3", "--stall_limit=0.5",
                                         "--grace=2", "--on_stall=fail"});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  ::kill(sandbox.TaskPid("worker", 1), SIGSTOP);
  const Outcome outcome = sandbox.Finish(train, 10);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("worker/1 (process "));
  EXPECT_THAT(outcome.err, HasSubstr("has not answered for 0.5 s"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// A paused container: nobody is late when it goes on.
TEST(StoppedWorkerTest, JobThatWasFrozenAsAWholeEvictsNobody) {
  Sandbox sandbox;
  Program train = StartEndless(
      sandbox, {"--mode=barrier", "--workers=3", "--slow_worker=1:100ms", "--stall_limit=0.7"});
  ASSERT_TRUE(sandbox.Advances(5, 15)) << train.Err();
  std::vector<pid_t> all = {train.pid()};
  for (const char* job : {"ps", "worker"}) {
    for (int i = 0; i < (job[0] == 'p' ? 1 : 3); ++i) all.push_back(sandbox.TaskPid(job, i));
  }
  for (const pid_t pid : all) ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  // Who waits for the slow one looks first.
  for (auto pid = all.rbegin(); pid != all.rend(); ++pid) ::kill(*pid, SIGCONT);
  ASSERT_TRUE(sandbox.Advances(5, 10)) << train.Err();
  for (std::size_t w = 0; w < 3; ++w) EXPECT_EQ(Phase(sandbox, w), "running");
  sandbox.Interrupt(train);
}

TEST(StoppedWorkerTest, JobWhoseOthersAreGoneDoesNotWaitForItForEver) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r");
  Program train = StartEndless(sandbox, {"--workers=2", "--stall_limit=1", "--report=" + report});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  ::kill(sandbox.TaskPid("worker", 1), SIGSTOP);
  ::kill(sandbox.TaskPid("worker", 0), SIGKILL);
  const Outcome outcome = sandbox.Finish(train, 10);
  EXPECT_THAT(OnlyError(outcome, 1), HasSubstr("; worker/0 died first, after "));
  EXPECT_THAT(outcome.err, HasSubstr("the first worker was gone (--stall_limit): killing it"));
  const nlohmann::json deaths = ReadJson(report)["deaths"];
  ASSERT_EQ(deaths.size(), 2u) << deaths;
  EXPECT_EQ(deaths[0]["cause"], "was killed by SIGKILL (9)");
  EXPECT_EQ(deaths[1]["cause"],
            "was evicted: it did not answer for 1 s (--stall_limit) and was killed");
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// It was taken for dead while it joined, and says so; the job goes on.
TEST(StoppedWorkerTest, OneThatIsHeldUpWhileItJoinsIsStartedAgain) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().File("later");
  sandbox.SetEnv("PASSEL_FAILPOINT", "join.claimed:1:sleep1800:" + folder + "/marker");
  Program train = StartEndless(sandbox, {"--mode=barrier", "--workers=3", "--max_restarts=5"});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ::kill(sandbox.TaskPid("worker", 2), SIGKILL);
  ASSERT_TRUE(train.WaitFor("worker/2 exited with 143", 10)) << train.Err();
  EXPECT_TRUE(AwaitPhase(sandbox, 2, "running")) << train.Err();
  sandbox.Interrupt(train);
}

TEST(StoppedWorkerTest, JobThatIsDoneEndsWithoutItAsOnStallSays) {
  struct Case {
    const char* on_stall;
    int code;
    const char *says, *does_not_say;
  };
  for (const Case& c : {Case{"evict", 0, "killing it", "keeps the job from ending"},
                        Case{"fail", 1, "keeps the job from ending, and has not answered for 0.5 s",
                             "killing it"}}) {
    SCOPED_TRACE(c.on_stall);
    Sandbox sandbox;
    sandbox.SetEnv("PASSEL_FAILPOINT", "worker.computed:20:stop:" + sandbox.dir().File("stopped"));
    const Outcome outcome =
        sandbox.Run(sandbox.Train({"--workers=3", "--pin=none", "--stall_limit=0.5", "--grace=2",
                                   "--train_steps=1000", std::string("--on_stall=") + c.on_stall}),
                    15);
    EXPECT_EQ(outcome.code, c.code) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(c.says), Not(HasSubstr(c.does_not_say))));
    if (c.code == 0) {
      EXPECT_THAT(outcome.out, HasSubstr("the job finished with 2 of its 3 workers"));
    }
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

// At any time after the workers have its memory.
void StopPs(int runs) {
  Random random(TestSeed());
  for (int run = 0; run < runs; ++run) {
    SCOPED_TRACE(run);
    Sandbox sandbox;
    Program train = sandbox.Start(
        sandbox.Train({run % 2 == 0 ? "--mode=hogwild" : "--mode=barrier", "--train_steps=3000",
                       "--pin=none", "--hidden_units=16", "--batch_size=20",
                       "--slow_worker=0:1ms,1:1ms", "--report=" + sandbox.dir().File("r")}));
    ASSERT_TRUE(sandbox.Advances(10)) << train.Err();
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(100'000)));
    if (const pid_t ps = sandbox.TaskPid("ps", 0); ps != 0) ::kill(ps, SIGSTOP);
    const Outcome outcome = sandbox.Finish(train, 30);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_GE(ReadJson(sandbox.dir().File("r"))["global_step"], 3000);
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(StoppedPsTest, NobodyNeedsIt) { StopPs(2); }
TEST(SlowStoppedPsTest, NobodyNeedsIt) { StopPs(30); }

// Whether a process has a handler for SIGTERM.
bool HandlesSignals(pid_t pid) {
  const std::string status = ReadText(fmt::format("/proc/{}/status", pid));
  const std::size_t at = status.find("SigCgt:\t");
  return at != std::string::npos &&
         (std::stoull(status.substr(at + 8, 16), nullptr, 16) >> (SIGTERM - 1) & 1) != 0 &&
         ReadText(fmt::format("/proc/{}/comm", pid)) == "passel\n";
}

// SIGINT, SIGTERM, SIGHUP: the code, and whether anything is left.
void InterruptAt(double delay, int signal, const std::vector<std::string>& flags) {
  SCOPED_TRACE(fmt::format("{} after {:.4f} s, {}", SignalName(signal), delay, flags[0]));
  Sandbox sandbox;
  const std::string model = sandbox.dir().File("m");
  Program train =
      sandbox.Start(sandbox.Train(With(flags, {"--train_steps=100000000", "--save=" + model})));
  std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  // Earlier it is the shell that gets it, or the loader of the program: not ours to answer.
  const Deadline limit = Deadline::After(Scaled(20.0));
  while (train.Running() && !HandlesSignals(train.pid())) ASSERT_FALSE(limit.Expired());
  if (delay >= 0.5) {  // time to train, however slow the machine or the build is
    ASSERT_TRUE(train.WaitFor("steps/s", 20)) << train.Err();
  }
  train.Signal(signal);
  const Outcome outcome = sandbox.Finish(train, 3);
  EXPECT_EQ(outcome.code, signal == SIGINT ? 130 : 143) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
  if (delay < 0.5) return;
  EXPECT_EQ(sandbox.Eval(model), 0) << outcome.err;
}

TEST(InterruptTest, AtAnyTimeEndsWithResultsAndLeavesNothing) {
  Random random(TestSeed());
  const std::vector<std::vector<std::string>> jobs = {{"--mode=hogwild"},
                                                      {"--mode=locked", "--ps=2"},
                                                      {"--mode=barrier", "--workers=3"},
                                                      {"--ps=0", "--workers=1"}};
  for (int i = 0; i < 16; ++i) {
    const double longest = i % 2 == 0 ? 0.06 : 1;
    const double delay = longest * static_cast<double>(random.Below(1'000'000)) * 1e-6;
    const int signal = std::vector<int>{SIGINT, SIGINT, SIGTERM, SIGHUP}[random.Below(4)];
    InterruptAt(delay, signal, jobs[random.Below(jobs.size())]);
    if (HasFailure()) return;
  }
}

TEST(InterruptTest, WithTimeToTrainTheModelIsSaved) {
  InterruptAt(0.6, SIGINT, {"--mode=hogwild"});
  InterruptAt(0.6, SIGTERM, {"--mode=barrier"});
  InterruptAt(0.6, SIGINT, {"--ps=0", "--workers=1"});
}

// Workers that do not leave: nobody waits for them after a second interrupt, or beyond --grace.
TEST(InterruptTest, SecondOneOrTheGraceEndsTheWaitForWhoDoesNotLeave) {
  for (const bool second : {true, false}) {
    SCOPED_TRACE(second);
    Sandbox sandbox;
    sandbox.SetEnv("PASSEL_FAILPOINT", "worker.computed:20:sleep60000");
    Program train = StartEndless(sandbox, {second ? "--grace=10" : "--grace=0.5"});
    ASSERT_TRUE(train.WaitFor("steps/s", 10)) << train.Err();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // both are asleep by now
    if (second) {
      train.Signal(SIGINT);
      ASSERT_TRUE(train.WaitFor("once more to end at once", 5));
      EXPECT_FALSE(train.Wait(0.3).has_value());
      sandbox.Interrupt(train, 2);
    } else {
      train.Signal(SIGTERM);
      const Outcome outcome = sandbox.Finish(train, 3);
      EXPECT_EQ(outcome.code, 143) << outcome.err;
      EXPECT_THAT(outcome.out, HasSubstr("were killed"));
    }
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

// Who drains a node kills what is left at the end of its patience: results come before that.
TEST(GraceTest, EvaluationThatTakesTooLongIsGivenUpForTheFiles) {
  for (const std::vector<std::string>& processes :
       {std::vector<std::string>{"--pin=none"}, {"--ps=0", "--workers=1"}}) {
    SCOPED_TRACE(processes[0]);
    Sandbox sandbox;
    const std::string model = sandbox.dir().File("m"), report = sandbox.dir().File("r");
    sandbox.SetEnv("PASSEL_FAILPOINT", "train.evaluating:1:sleep700");
    Program train =
        sandbox.Start(sandbox.Train(With(processes, {"--train_steps=100000000", "--grace=0.5",
                                                     "--save=" + model, "--report=" + report})));
    ASSERT_TRUE(train.WaitFor("steps/s", 10)) << train.Err();
    train.Signal(SIGTERM);
    const Outcome outcome = sandbox.Finish(train, 3);
    EXPECT_EQ(outcome.code, 143) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("not evaluated"), HasSubstr("saved " + model)));
    EXPECT_THAT(ReadJson(report)["notes"].dump(),
                HasSubstr("the evaluation was given up, so that the job ends within --grace"));
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

// A control group whose processes SIGKILL does not reach while it is frozen.
class Freezer {
 public:
  Freezer() : path_(fmt::format("/sys/fs/cgroup/freezer/passel-test-{}", ::getpid())) {
    usable_ = ::mkdir(path_.c_str(), 0700) == 0;
  }
  ~Freezer() {
    if (!usable_) return;
    Thaw();
    const Deadline limit = Deadline::After(Scaled(5.0));
    while (::rmdir(path_.c_str()) != 0 && !limit.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  bool usable() const { return usable_; }
  void Freeze(pid_t pid) const {
    WriteText(path_ + "/cgroup.procs", std::to_string(pid));
    WriteText(path_ + "/freezer.state", "FROZEN");
  }
  void Thaw() const { WriteText(path_ + "/freezer.state", "THAWED"); }

 private:
  std::string path_;
  bool usable_ = false;
};

TEST(GraceTest, ProcessThatCannotBeKilledIsNamedAndLeftBehind) {
  const Freezer freezer;
  if (!freezer.usable()) GTEST_SKIP() << "no cgroup with the freezer of v1 can be made here";
  Sandbox sandbox;
  const std::string model = sandbox.dir().File("m"), report = sandbox.dir().File("r");
  Program train = StartEndless(sandbox, {"--grace=2", "--save=" + model, "--report=" + report});
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const pid_t frozen = sandbox.TaskPid("worker", 1);
  freezer.Freeze(frozen);
  train.Signal(SIGTERM);
  const Outcome outcome = sandbox.Finish(train, 4);
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("worker/1 (process {}, state D) did not end after "
                                                 "SIGKILL and was left behind",
                                                 frozen)));
  const nlohmann::json json = ReadJson(report);
  EXPECT_EQ(json["workers"][1]["exit"], "was left behind");
  EXPECT_EQ(json["deaths"].size(), 0u) << json["deaths"];
  EXPECT_THAT(outcome.out, HasSubstr("saved " + model));
  freezer.Thaw();
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(InterruptTest, IgnoredHangUpStaysIgnored) {
  Sandbox sandbox;
  Program train = sandbox.StartCommand(
      With({"nohup", PASSEL_PROGRAM}, sandbox.Train({"--train_steps=100000000"})));
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  train.Signal(SIGHUP);
  EXPECT_TRUE(sandbox.Advances(20, 2)) << train.Err();
  sandbox.Interrupt(train);
}

TEST(PinTest, WorkersGetCoresOfTheirOwnWhereThereAreEnough) {
  const std::size_t cores = UsableCpus().size();
  if (cores < 2) GTEST_SKIP() << "one core: nothing to pin";
  for (const bool pin : {true, false}) {
    Sandbox sandbox;
    Program train = sandbox.Start(
        sandbox.Train({"--train_steps=100000000", pin ? "--pin=cores" : "--pin=none"}));
    ASSERT_TRUE(sandbox.Advances(10)) << train.Err();
    std::set<std::string> allowed;
    for (int worker = 0; worker < 2; ++worker) {
      const std::string status =
          ReadText(fmt::format("/proc/{}/status", sandbox.TaskPid("worker", worker)));
      const std::size_t at = status.find("Cpus_allowed_list:\t") + 19;
      allowed.insert(status.substr(at, status.find('\n', at) - at));
    }
    if (pin) {
      EXPECT_EQ(allowed.size(), 2u);
      for (const std::string& list : allowed) {
        EXPECT_EQ(list.find_first_of(",-"), std::string::npos) << list;
      }
    } else {
      EXPECT_EQ(allowed.size(), 1u);
    }
    sandbox.Interrupt(train);
  }
}

}  // namespace
}  // namespace passel::testing
