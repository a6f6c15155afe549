// What an operator does from a host that has neither the ps nor their arenas.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "e2e/hosts_job.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SeveralHostsAwayTest : public SeveralHostsTest {};

TEST_F(SeveralHostsAwayTest, CtlAsksAndStopsAJobOfAnotherHost) {
  HostsJob job = Job(1, 1, {"worker/0"}, kEndless);
  job.StartAll();
  ASSERT_TRUE(job["worker/0"].WaitFor("Session initialization complete")) << job["worker/0"].Err();
  const std::vector<std::string> named = {"--ps_hosts=10.77.0.1:2222",
                                          "--token_file=" + job.token()};
  const auto ctl = [&](std::vector<std::string> words, const std::vector<std::string>& flags) {
    return job.RunThere(With(With({"ctl"}, words), flags));
  };
  Outcome said = ctl({"status", job.job_id()}, named);
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("job " + job.job_id() + ", ps/0 is process"),
                              HasSubstr("worker/0 running")));
  said = ctl({"status", "--json", job.job_id()}, named);
  EXPECT_EQ(nlohmann::json::parse(said.out)["arena"]["workers"][0]["remote"], true);
  said = ctl({"set-mode", job.job_id(), "locked"}, named);
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("mode locked since global step"));
  EXPECT_EQ(job.sandbox().Status()["arena"]["mode"], "locked");
  EXPECT_THAT(OnlyError(ctl({"scale", job.job_id(), "--workers=2"}, named)),
              HasSubstr("were started by hand"));
  // Its name is made from the address of ps/0, unless it was given one.
  EXPECT_THAT(OnlyError(ctl({"list"}, named)), HasSubstr("ps/0 at 10.77.0.1:2222"));
  EXPECT_THAT(ctl({"list"}, With(named, {"--job_id=" + job.job_id()})).out,
              HasSubstr(job.job_id()));
  EXPECT_THAT(OnlyError(ctl({"list"}, {named[0]})), HasSubstr("--token_file FILE"));
  EXPECT_THAT(OnlyError(ctl({"list"}, {named[1]})), HasSubstr("--ps_hosts"));
  const std::string other = job.sandbox().dir().File("other");
  WriteText(other, std::string(32, 'x'));
  std::filesystem::permissions(other, std::filesystem::perms::owner_read);
  EXPECT_THAT(OnlyError(ctl({"stop", job.job_id()}, {named[0], "--token_file=" + other})),
              AllOf(HasSubstr("ps/0 at 10.77.0.1:2222"), HasSubstr("token")));
  EXPECT_THAT(OnlyError(ctl({"stop", job.job_id()}, {"--ps_hosts=10.77.0.1:9", named[1]})),
              HasSubstr("ps/0 at 10.77.0.1:9"));
  ASSERT_TRUE(job.sandbox().Advances(20)) << "nobody was disturbed";
  said = ctl({"stop", job.job_id()}, named);
  EXPECT_EQ(said.code, 0) << said.err;
  job.ExpectEnd(130);
}

// The last line of standard output.
std::string LastLine(const Program& program) {
  std::string out = program.Out();
  while (out.ends_with('\n')) out.pop_back();
  return out.substr(out.rfind('\n') + 1);
}

// Copies come by the sealed connections. One of the host of the ps sees the same at the end.
TEST_F(SeveralHostsAwayTest, EvaluatorOfAnotherHostSeesTheSameLastValues) {
  HostsJob job = Job(2, 1, {"worker/0", "evaluator/0"},
                     With(kShort, {"--mode=barrier", "--eval_interval=0.2"}));
  job.Start("evaluator/0");
  Program here = job.sandbox().StartCommand(
      With({PASSEL_PROGRAM}, job.Task("evaluator/0", {"--token_file=" + job.token()})));
  job.StartAll();
  job.ExpectEnd();
  EXPECT_EQ(job.sandbox().Finish(here, 20).code, 0) << here.Err();
  EXPECT_THAT(job["evaluator/0"].Err(),
              HasSubstr("evaluator/0 is on another host than ps/0 at 10.77.0.1:2222, ps/1 at "
                        "10.77.0.1:2223: it is sent copies of the values by TCP, sealed"));
  EXPECT_THAT(LastLine(here), HasSubstr("final evaluation at global step 60: test accuracy"));
  EXPECT_EQ(LastLine(job["evaluator/0"]), LastLine(here));

  job.Start("ps/0");
  job.Start("ps/1");
  job.Start("worker/0");
  job.Start("evaluator/0", {"--eval_consistent"});
  EXPECT_THAT(job.OnlyErrorOf("evaluator/0"), HasSubstr("host of ps/0"));
}

// Nor is it forgotten: it reads the last values once it goes on.
TEST_F(SeveralHostsAwayTest, TheLastSaveDoesNotWaitForAnEvaluatorThatHangs) {
  HostsJob job = Job(1, 1, {"worker/0", "evaluator/0"}, With(kEndless, {"--eval_interval=0.2"}));
  const std::string folder = "--checkpoint_dir=" + job.sandbox().dir().File("checkpoints");
  job.StartAll({folder});
  ASSERT_TRUE(job["ps/0"].WaitFor("saved checkpoint")) << job["ps/0"].Err();
  ASSERT_TRUE(job.Start("evaluator/0").WaitFor("evaluation at global step "))
      << job["evaluator/0"].Err();
  ASSERT_TRUE(job.sandbox().Advances(50));
  const std::size_t before = job["ps/0"].Err().size();
  job["evaluator/0"].Signal(SIGSTOP);
  job.Stop();
  EXPECT_EQ(job.Finish("worker/0").code, 130);
  const Deadline soon = Deadline::After(std::chrono::seconds(30));
  while (job["ps/0"].Err().find("saved checkpoint", before) == std::string::npos) {
    ASSERT_FALSE(soon.Expired()) << job["ps/0"].Err();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  job["evaluator/0"].Signal(SIGCONT);
  job.ExpectEnd(130);
}

// Without a checkpoint the chief gives the job up, on all hosts.
TEST_F(SeveralHostsAwayTest, LossOfTheValuesOfAnotherHostEndsTheJob) {
  HostsJob job = Job(2, 2, {"ps/1", "worker/1"}, With(kEndless, {"--ps_wait=1"}));
  job.StartAll();
  ASSERT_TRUE(job["worker/0"].WaitFor("training step 100 done")) << job["worker/0"].Err();
  for (const char* task : {"ps/1", "worker/1"}) job.Kill(task);
  EXPECT_EQ(job.Finish("worker/0").code, 143);
  for (const char* task : {"ps/1", "worker/1", "worker/0"}) job.Start(task);
  for (const char* task : {"worker/0", "worker/1", "ps/0", "ps/1"}) {
    EXPECT_THAT(job.OnlyErrorOf(task, 1), AllOf(HasSubstr("ps/1 has lost its values while ps/0"),
                                                HasSubstr("the job is lost; start it anew")))
        << task;
  }
}

// At one moment, of both hosts: ps/0 gives each another place.
TEST_F(SeveralHostsAwayTest, WorkersOfBothHostsJoinAJobThatRuns) {
  HostsJob job = Job(1, 2, {"worker/1", "joins/0", "joins/1"}, With(kEndless, {"--max_workers=6"}));
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete")) << job["worker/1"].Err();
  const std::vector<std::string> joining = {"joins/0", "joins/1", "joins/2", "joins/3"};
  for (const std::string& task : joining) job.StartJoining(task);
  std::set<std::string> places;
  const std::string said = "joins job " + job.job_id() + " as ";
  for (const std::string& task : joining) {
    ASSERT_TRUE(job[task].WaitFor("Session initialization complete")) << job[task].Err();
    const std::string err = job[task].Err();
    places.insert(err.substr(err.find(said) + said.size(), 8));
  }
  EXPECT_THAT(places, ElementsAre("worker/2", "worker/3", "worker/4", "worker/5"));
  EXPECT_THAT(OnlyError(job.sandbox().Finish(job.StartJoining("joins/4"), 20)),
              HasSubstr("places for 6 workers, and all are taken"));
  ASSERT_TRUE(job.sandbox().Advances(50));
  int remote = 0;
  const nlohmann::json status = job.sandbox().Status();
  for (const nlohmann::json& worker : status["arena"]["workers"]) {
    EXPECT_EQ(worker["phase"], "running");
    remote += worker["remote"] == true;
  }
  EXPECT_EQ(remote, 3);
  job["joins/0"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("joins/0").code, 143);
  ASSERT_TRUE(job.sandbox().Advances(50));
  job.Stop();
  for (const char* task : {"ps/0", "worker/0", "worker/1", "joins/1", "joins/2", "joins/3"}) {
    EXPECT_EQ(job.Finish(task).code, 130) << task;
  }
}

}  // namespace
}  // namespace passel::testing
