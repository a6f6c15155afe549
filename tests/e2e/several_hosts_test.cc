// Tasks by hand on two hosts, that have a cable between them and nothing else.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "e2e/hosts_job.h"
#include "store/mode.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using SlowSeveralHostsTest = SeveralHostsTest;

TEST_F(SeveralHostsTest, WorkersOfAnotherHostTrainInEveryModeAndSave) {
  for (const ModeTraits& mode : kModes) {
    SCOPED_TRACE(mode.name);
    HostsJob job =
        Job(1, 2, {"worker/0", "worker/1"}, With(kShort, {fmt::format("--mode={}", mode.name)}));
    const std::string model = job.sandbox().dir().File("m");
    const std::string report = job.sandbox().dir().File("report");
    job.Start("ps/0", {"--data_dir=/not/there", "--report=" + report});  // it reads none
    ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
    job.Start("worker/0", {"--save=" + model});
    job.Start("worker/1");
    job.ExpectEnd();
    EXPECT_EQ(ReadJson(report)["data"], Digits());
    EXPECT_THAT(job["worker/1"].Err(),
                HasSubstr("worker/1 is on another host than ps/0 at 10.77.0.1:2222: parameters "
                          "travel by TCP, sealed"));
    EXPECT_EQ(job.sandbox().Eval(model), 0);
    if (HasFailure()) return;
  }
}

TEST_F(SeveralHostsTest, NoMemoryIsSharedBetweenHostsAndTheJobCanBeAskedAndStopped) {
  HostsJob job = Job(1, 3, {"worker/1", "worker/2"}, kEndless);
  // It waits for the token, which comes to a folder that both hosts have.
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/1"].WaitFor("waiting for it; start ps/0 on 10.77.0.1"))
      << job["worker/1"].Err();
  for (const char* task : {"ps/0", "worker/0", "worker/2"}) job.Start(task);
  for (const char* task : {"worker/0", "worker/1", "worker/2"}) {
    ASSERT_TRUE(job[task].WaitFor("Session initialization complete")) << job[task].Err();
  }
  ASSERT_TRUE(job.sandbox().Advances(50));
  EXPECT_EQ(hosts_->watch().Look(), "");
  EXPECT_FALSE(MappedMemoryFiles(job["ps/0"].pid()).empty());
  // One of the same host shares it.
  EXPECT_THAT(job["worker/0"].Err(), Not(HasSubstr("by TCP")));
  const nlohmann::json status = job.sandbox().Status();
  const nlohmann::json& workers = status["arena"]["workers"];
  ASSERT_EQ(workers.size(), 3u) << status.dump();
  EXPECT_EQ(workers[0]["remote"], false);
  EXPECT_EQ(workers[1]["remote"], true);
  EXPECT_EQ(workers[2]["pid"], job["worker/2"].pid());
  EXPECT_GT(workers[2]["local_steps"], 0);
  job.Stop();
  job.ExpectEnd(130);
}

// Rounds have the same bits, wherever their workers are.
TEST_F(SeveralHostsTest, BarrierHasTheBitsOfOneHost) {
  std::string one_host;
  for (const std::set<std::string>& there :
       {std::set<std::string>{}, {"worker/1"}, {"worker/0", "worker/1"}}) {
    SCOPED_TRACE(there.size());
    HostsJob job = Job(1, 2, there, With(kShort, {"--mode=barrier"}));
    const std::string model = job.sandbox().dir().File("m");
    job.StartAll({"--save=" + model});
    job.ExpectEnd();
    const std::string saved = ReadText(model);
    if (there.empty()) one_host = saved;
    EXPECT_FALSE(saved.empty());
    EXPECT_TRUE(saved == one_host);
  }
}

// Each worker shares the memory of the ps of its own host, and reaches the other by messages.
TEST_F(SeveralHostsTest, PsOfBothHostsServeWorkersOfBothWithTheBitsOfOneHost) {
  std::string one_host;
  for (const std::set<std::string>& there :
       {std::set<std::string>{}, {"ps/1", "worker/1"}, {"ps/1", "worker/0"}}) {
    SCOPED_TRACE(there.empty() ? "" : *there.rbegin());
    HostsJob job = Job(2, 2, there, With(kShort, {"--mode=barrier"}));
    const std::string model = job.sandbox().dir().File("m");
    job.StartAll({"--save=" + model});
    job.ExpectEnd();
    const std::string saved = ReadText(model);
    EXPECT_FALSE(saved.empty());
    if (there.empty()) one_host = saved;
    EXPECT_TRUE(saved == one_host);
    if (there.empty()) continue;
    for (const int worker : {0, 1}) {
      const std::string name = fmt::format("worker/{}", worker);
      const int own = there.contains(name) ? 1 : 0;
      EXPECT_THAT(
          job[name].Err(),
          AllOf(HasSubstr(fmt::format("{} is on another host than ps/{} at", name, 1 - own)),
                HasSubstr(fmt::format("{} shares the memory of ps/{}\n", name, own))));
    }
    const char* const beside = there.contains("worker/0") ? "worker/1" : "worker/0";
    EXPECT_THAT(job["ps/0"].Err(), Not(HasSubstr(fmt::format("{} of another host", beside))));
  }
}

TEST_F(SeveralHostsTest, MemoryIsSharedWithTheOwnHostsPsAloneAndOutlivesIt) {
  HostsJob job = Job(2, 2, {"ps/1", "worker/1"}, With(kEndless, {"--mode=locked"}));
  job.StartAll();
  for (const char* task : {"worker/0", "worker/1"}) {
    ASSERT_TRUE(job[task].WaitFor("Session initialization complete")) << job[task].Err();
  }
  ASSERT_TRUE(job.sandbox().Advances(50));
  EXPECT_EQ(hosts_->watch().Look(), "");
  for (const int host : {0, 1}) {
    const std::set<std::string> ps = MappedMemoryFiles(job[fmt::format("ps/{}", host)].pid());
    const std::set<std::string> worker =
        MappedMemoryFiles(job[fmt::format("worker/{}", host)].pid());
    EXPECT_TRUE(std::ranges::any_of(worker, [&](const auto& file) { return ps.contains(file); }));
  }
  // Who shares it keeps it for the next life of the ps; who does not must begin anew there.
  job.Kill("ps/1");
  job.Start("ps/1");
  ASSERT_TRUE(job["ps/1"].WaitFor("took the arena of a former ps/1 over from worker/1"));
  EXPECT_EQ(job.Finish("worker/0").code, 143) << job["worker/0"].Err();
  job.Start("worker/0");
  ASSERT_TRUE(job["worker/0"].WaitFor("Session initialization complete")) << job["worker/0"].Err();
  ASSERT_TRUE(job.sandbox().Advances(50));
  job.Stop();
  job.ExpectEnd(130);
}

TEST_F(SeveralHostsTest, TwoPsOfOneHostServeWorkersOfBoth) {
  HostsJob job = Job(2, 2, {"worker/1"}, With(kShort, {"--mode=replicas"}));
  job.StartAll();
  job.ExpectEnd();
}

TEST_F(SeveralHostsTest, WhatIsWrongIsSaidInOneSentence) {
  HostsJob job = Job(1, 2, {"worker/1"}, kEndless);
  job.StartBare("worker/1");
  EXPECT_THAT(
      job.OnlyErrorOf("worker/1"),
      AllOf(HasSubstr("--token_file FILE"), HasSubstr("scp -p"), HasSubstr("--insecure_no_auth")));
  job.Start("worker/1", {"--start_wait=0.3"});
  EXPECT_THAT(job.OnlyErrorOf("worker/1", 143),
              AllOf(HasSubstr("none came within 0.3 s"),
                    HasSubstr(fmt::format("scp -p 10.77.0.1:{0} {0}", job.token()))));
  job.Start("worker/0", {"--start_wait=0.3"});
  EXPECT_THAT(job.OnlyErrorOf("worker/0", 143),
              AllOf(HasSubstr("ps/0 of job"), HasSubstr("10.77.0.1:2222"),
                    HasSubstr("raise --start_wait")));
  job.Start("worker/1", {"--start_wait=0.3", "--ps_hosts=no.such.host.invalid:2222"});
  EXPECT_THAT(job.OnlyErrorOf("worker/1", 143), HasSubstr("no.such.host.invalid"));
  job.Start("ps/0", {"--ps_hosts=127.0.0.1:2222"});
  EXPECT_THAT(job.OnlyErrorOf("ps/0"), HasSubstr("no other host reaches"));
  job.Start("ps/0", {"--lease=0.5"});
  EXPECT_THAT(job.OnlyErrorOf("ps/0"),
              AllOf(HasSubstr("--lease"), HasSubstr("1 to 3600 s"), HasSubstr("0.5")));
  job.Start("ps/0", {"--ps_hosts=0.0.0.0:2222"});
  EXPECT_THAT(job.OnlyErrorOf("ps/0"), HasSubstr("no other host finds it there"));
  job.Start("ps/0", {"--insecure_no_auth"});
  EXPECT_THAT(job.OnlyErrorOf("ps/0"), HasSubstr("and --token_file names one"));
  job.Start("ps/0", {"--ps_hosts=10.77.0.2:2222"});
  EXPECT_THAT(job.OnlyErrorOf("ps/0"), HasSubstr("ps/0 cannot listen at 10.77.0.2:2222"));

  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready"));
  job.Start("worker/0");
  ASSERT_TRUE(job["worker/0"].WaitFor("Session initialization complete")) << job["worker/0"].Err();
  const std::string other = job.sandbox().dir().File("other");
  WriteText(other, std::string(32, 'x'));
  std::filesystem::permissions(other, std::filesystem::perms::owner_read);
  const std::string other_data = job.sandbox().dir().File("data");
  std::filesystem::copy(Digits(), other_data);
  const std::string labels = other_data + "/train-labels-idx1-ubyte";
  std::string bytes = ReadText(labels);
  bytes[100] = static_cast<char>(bytes[100] == 1 ? 2 : 1);
  WriteText(labels, bytes);
  job.StartBare("worker/1", {"--token_file=" + other});
  EXPECT_THAT(job.OnlyErrorOf("worker/1"),
              AllOf(HasSubstr("ps/0 at 10.77.0.1:2222"), HasSubstr("token")));
  job.StartBare("worker/1", {"--insecure_no_auth"});
  EXPECT_THAT(job.OnlyErrorOf("worker/1"), HasSubstr("ps/0 at 10.77.0.1:2222"));
  job.Start("worker/1", {"--worker_hosts=10.77.0.1:3222,10.77.0.2:4000"});
  EXPECT_THAT(job.OnlyErrorOf("worker/1"), HasSubstr("the same --ps_hosts and --worker_hosts"));
  job.Start("worker/1", {"--data_dir=" + other_data});
  EXPECT_THAT(job.OnlyErrorOf("worker/1"), HasSubstr("give all tasks the same data set"));
  job.Start("worker/1", {"--learning_rate=0.123"});
  EXPECT_THAT(job.OnlyErrorOf("worker/1"), HasSubstr("with other settings than the chief"));
  ASSERT_TRUE(job.sandbox().Advances(50)) << "nobody else is disturbed";
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete")) << job["worker/1"].Err();
  job.Stop();
  job.ExpectEnd(130);
}

TEST_F(SeveralHostsTest, WithoutAuthenticationAllMustWantThat) {
  HostsJob job = Job(1, 1, {"worker/0"}, With(kShort, {"--insecure_no_auth"}));
  job.StartBare("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor("lets everybody in")) << job["ps/0"].Err();
  job.StartBare("worker/0");
  job.ExpectEnd();
  EXPECT_THAT(job["worker/0"].Err(), Not(HasSubstr("sealed")));
}

void KillAndRestart(HostsJob job) {
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"));
  ASSERT_TRUE(job.sandbox().Advances(20));
  const pid_t first = job["worker/1"].pid();
  const auto begin = std::chrono::steady_clock::now();
  job.Kill("worker/1");
  EXPECT_TRUE(job["ps/0"].WaitFor("worker/1 is gone: ", 2));
  EXPECT_TRUE(job.sandbox().Advances(20)) << "the others go on";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Scaled(4.0));
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete")) << job["worker/1"].Err();
  ASSERT_TRUE(job.sandbox().Advances(20));
  EXPECT_NE(job.sandbox().Status()["arena"]["workers"][1]["pid"], first);
  // One that is told to go leaves, and may come back.
  job["worker/1"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("worker/1").code, 143);
  EXPECT_TRUE(job.sandbox().Advances(20));
  job.Stop();
  EXPECT_EQ(job.Finish("worker/0").code, 130);
  EXPECT_EQ(job.Finish("ps/0").code, 130);
}

TEST_F(SeveralHostsTest, KilledWorkerOfAnotherHostComesBack) {
  KillAndRestart(Job(1, 2, {"worker/1"}, kEndless));
}

// Its connection has ended, so a round waits for it for 1.5 s; for one that is only silent, longer.
TEST_F(SeveralHostsTest, KilledWorkerOfAnotherHostHoldsRoundsUpForAMomentAndComesBack) {
  KillAndRestart(Job(1, 2, {"worker/1"}, With(kEndless, {"--mode=barrier"})));
}

// A worker of its host has kept the memory: nothing is lost. In rounds no update is cut in half,
// which would end the worker of the other host with 143.
TEST_F(SeveralHostsTest, PsThatComesBackIsFoundAgain) {
  HostsJob job = Job(1, 2, {"worker/1"}, With(kEndless, {"--mode=barrier"}));
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"));
  ASSERT_TRUE(job.sandbox().Advances(20));
  const std::int64_t before = job.sandbox().GlobalStep();
  job.Kill("ps/0");
  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor("took the arena")) << job["ps/0"].Err();
  ASSERT_TRUE(job.sandbox().Advances(20));
  EXPECT_GT(job.sandbox().GlobalStep(), before);
  const auto steps = [&] {
    return job.sandbox().Status()["arena"]["workers"][1]["local_steps"].get<int>();
  };
  const int now = steps();
  for (int i = 0; i < 500 && steps() <= now; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(steps(), now) << job["worker/1"].Err();
  job.Stop();
  job.ExpectEnd(130);
}

TEST_F(SeveralHostsTest, PsThatTakesTheMemoryWithItEndsItsWorkersInTime) {
  for (const char* mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    HostsJob job = Job(1, 2, {"worker/0", "worker/1"},
                       With(kEndless, {std::string("--mode=") + mode, "--ps_wait=1"}));
    job.StartAll();
    for (const char* task : {"worker/0", "worker/1"}) {
      ASSERT_TRUE(job[task].WaitFor("Session initialization complete")) << job[task].Err();
    }
    ASSERT_TRUE(job.sandbox().Advances(20));
    job.Kill("ps/0");
    for (const char* task : {"worker/0", "worker/1"}) {
      EXPECT_THAT(job.OnlyErrorOf(task, 143), HasSubstr("ps")) << task;
    }
    // All are started again, by whoever started them.
    job.StartAll();
    EXPECT_TRUE(job.sandbox().Advances(20));
    job.Stop();
    job.ExpectEnd(130);
  }
}

// Nobody has kept them: who trained on them ends at once, and not because nobody were there.
TEST_F(SeveralHostsTest, PsThatComesBackWithoutItsValuesSaysSoAndAStopReachesWhoJoins) {
  HostsJob job =
      Job(1, 2, {"worker/0", "worker/1"}, With(kEndless, {"--mode=barrier", "--ps_wait=600"}));
  job.StartAll();
  for (const char* task : {"worker/0", "worker/1"}) {
    ASSERT_TRUE(job[task].WaitFor("Session initialization complete")) << job[task].Err();
  }
  job.Kill("ps/0");
  job.Start("ps/0");
  for (const char* task : {"worker/0", "worker/1"}) {
    EXPECT_THAT(job.OnlyErrorOf(task, 143),
                AllOf(HasSubstr("ps/0 was started again without its values"),
                      HasSubstr(std::string("start ") + task + " again")));
  }
  // One that waits for the chief's plan, when the job is stopped.
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/1"].WaitFor("worker/1 is on another host than ps/0"))
      << job["worker/1"].Err();
  job.Stop();
  for (const char* task : {"ps/0", "worker/1"}) {
    EXPECT_EQ(job.Finish(task).code, 130) << task << job[task].Err();
  }
  EXPECT_THAT(job["worker/1"].Err(), HasSubstr("the job was stopped before this worker"));
}

// It has said that it ends: it is not waited for, and has not died.
TEST_F(SeveralHostsTest, WorkerOfAnotherHostThatFailsHasLeft) {
  HostsJob job = Job(1, 1, {"worker/0"}, With(kEndless, {"--learning_rate=1e30"}));
  job.StartAll();
  EXPECT_EQ(job.Finish("worker/0").code, 1) << job["worker/0"].Err();
  EXPECT_TRUE(job["ps/0"].WaitFor(
      fmt::format("worker/0 (process {}) left before it was done", job["worker/0"].pid())))
      << job["ps/0"].Err();
  job.Stop();
  EXPECT_EQ(job.Finish("ps/0").code, 130);
  EXPECT_THAT(job["ps/0"].Err(), AllOf(Not(HasSubstr("is gone")), Not(HasSubstr("died"))));
}

// Before it trains, too: a question to a ps that was answered already is asked again.
TEST_F(SeveralHostsTest, CableThatIsPulledBeforeTheJobBeginsCostsTimeAlone) {
  HostsJob job = Job(1, 2, {"worker/1"}, kShort);
  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready"));
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/1"].WaitFor("worker/1 is on another host than ps/0"));
  ASSERT_TRUE(hosts_->Cable(false));
  // It gets no answer for so long that the system gives the other host up.
  std::this_thread::sleep_for(std::chrono::seconds(5));
  ASSERT_TRUE(hosts_->Cable(true));
  job.Start("worker/0");
  job.ExpectEnd();
}

// Longer than the lease and --ps_wait: the others go on, and the worker ends with 143, to be
// started again.
TEST_F(SlowSeveralHostsTest, PulledCableHoldsNobodyElseUp) {
  HostsJob job = Job(1, 2, {"worker/1"}, kEndless);
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"));
  ASSERT_TRUE(job.sandbox().Advances(20));
  ASSERT_TRUE(hosts_->Cable(false));
  const Outcome gone = job.Finish("worker/1", 40);
  EXPECT_EQ(gone.code, 143) << gone.err;
  EXPECT_TRUE(job.sandbox().Advances(100));
  ASSERT_TRUE(hosts_->Cable(true));
  job.Start("worker/1");
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete")) << job["worker/1"].Err();
  job.Stop();
  job.ExpectEnd(130);
}

// A name that is misspelt is not waited for in silence.
TEST_F(SlowSeveralHostsTest, WhyAPsIsNotReachedIsSaidWhileItIsWaitedFor) {
  HostsJob job = Job(1, 1, {"worker/0"}, {"--start_wait=300"});
  job.Start("ps/0");  // which makes the token
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  job.Start("worker/0", {"--ps_hosts=no-such-host.invalid:2222"});
  EXPECT_TRUE(job["worker/0"].WaitFor(
      "ps/0 at no-such-host.invalid:2222: the host no-such-host.invalid cannot be found"))
      << job["worker/0"].Err();
  for (const char* task : {"worker/0", "ps/0"}) {
    job[task].Signal(SIGINT);
    EXPECT_EQ(job.Finish(task).code, 130) << task;
  }
}

}  // namespace
}  // namespace passel::testing
