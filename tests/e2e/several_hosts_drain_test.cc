// A host of a job on two hosts is drained: what its ps has is saved before that goes.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "e2e/hosts_job.h"
#include "support/temp_dir.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SeveralHostsDrainTest : public SeveralHostsTest {
 protected:
  // Of a job that has its first checkpoint and has trained on, the other host's tasks among them.
  void Train(HostsJob& job) {
    job.StartAll();
    ASSERT_TRUE(job["ps/0"].WaitFor("saved checkpoint")) << job["ps/0"].Err();
    ASSERT_TRUE(job.sandbox().Advances(50)) << job["worker/0"].Err();
  }
  // "model.ckpt-N" of the line that says what was saved for the ps that goes.
  static std::string SavedFor(const std::string& log) {
    const std::size_t line = log.find("ps/0 has saved checkpoint ");
    if (line == log.npos) return "";
    const std::size_t name = log.find("model.ckpt-", line);
    return log.substr(name, log.find(' ', name) - name);
  }
};

// A checkpoint of now, whatever --save_secs says; a job of the same tasks goes on from it.
TEST_F(SeveralHostsDrainTest, APsOfAnotherHostIsSavedBeforeItGoes) {
  for (const char* mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    const TempDir dir;
    const std::string folder = dir.File("checkpoints");
    HostsJob job = Job(2, 2, {"ps/1", "worker/1"},
                       {"--start_wait=20", std::string("--mode=") + mode, "--ps_wait=1",
                        "--checkpoint_dir=" + folder, "--train_steps=100000000"});
    ASSERT_NO_FATAL_FAILURE(Train(job));
    for (const char* task : {"ps/1", "worker/1"}) job[task].Signal(SIGTERM);
    for (const char* task : {"ps/1", "worker/1"}) {
      EXPECT_EQ(job.Finish(task).code, 143) << job[task].Err();
    }
    const std::string saved = SavedFor(job["ps/1"].Err());
    ASSERT_NE(saved, "") << job["ps/1"].Err() << job["ps/0"].Err();
    EXPECT_THAT(job["ps/0"].Err(), AllOf(HasSubstr("ps/1 is told to go: a checkpoint is saved"),
                                         HasSubstr("saved checkpoint " + folder + "/" + saved)));
    if (std::string(mode) == "hogwild") {
      for (const char* task : {"worker/0", "ps/0"}) job.Kill(task);
      continue;
    }
    // The others wait for it, and are to be started again then.
    for (const char* task : {"worker/0", "ps/0"}) {
      EXPECT_EQ(job.Finish(task, 40).code, 143) << task << job[task].Err();
    }
    EXPECT_EQ(job.sandbox().Run({"ckpt", "verify", folder}).code, 0);
    const std::string step = saved.substr(saved.find('-') + 1);
    const std::string last = fmt::format("--train_steps={}", std::stoll(step) + 60);
    job.StartAll({last});
    job.ExpectEnd();
    EXPECT_THAT(job["worker/0"].Err(),
                HasSubstr(fmt::format("goes on from {}/{}, global step {}", folder, saved, step)));
  }
}

// It says so in one sentence, and does not stay longer than it may.
TEST_F(SeveralHostsDrainTest, APsThatCannotBeSavedSaysWhyAndGoes) {
  const TempDir dir;
  const std::string folder = dir.File("checkpoints");
  const auto make = [&] {
    return Job(2, 1, {"ps/1"},
               {"--start_wait=20", "--mode=locked", "--ps_wait=60", "--grace=3",
                "--checkpoint_dir=" + folder, "--train_steps=100000000"});
  };
  const auto lost = AllOf(HasSubstr("no checkpoint was saved before ps/1 goes"),
                          HasSubstr("since the newest one in " + folder + " is lost"));
  {
    HostsJob job = make();
    ASSERT_NO_FATAL_FAILURE(Train(job));
    job["ps/0"].Signal(SIGSTOP);
    job["ps/1"].Signal(SIGTERM);
    EXPECT_EQ(job.Finish("ps/1", 15).code, 143) << job["ps/1"].Err();
    EXPECT_THAT(job["ps/1"].Err(), AllOf(lost, HasSubstr("ps/0 at 10.77.0.1:2222 of job")));
    job["ps/0"].Signal(SIGCONT);
    for (const char* task : {"worker/0", "ps/0"}) job.Kill(task);
  }
  {
    HostsJob job = make();
    ASSERT_NO_FATAL_FAILURE(Train(job));
    job.Kill("ps/0");
    job["ps/1"].Signal(SIGTERM);
    EXPECT_EQ(job.Finish("ps/1", 15).code, 143) << job["ps/1"].Err();
    EXPECT_THAT(job["ps/1"].Err(), lost);
    job.Kill("worker/0");
  }
}

// All tasks are told at once: ps/0's last checkpoint is the one that ps/1 waits for.
TEST_F(SeveralHostsDrainTest, AJobThatIsDrainedAsAWholeIsSavedOnce) {
  const TempDir dir;
  const std::string folder = dir.File("checkpoints");
  HostsJob job = Job(2, 2, {"ps/1", "worker/1"},
                     {"--start_wait=20", "--mode=barrier", "--ps_wait=1",
                      "--checkpoint_dir=" + folder, "--train_steps=100000000"});
  ASSERT_NO_FATAL_FAILURE(Train(job));
  for (const char* task : {"ps/0", "ps/1", "worker/0", "worker/1"}) job[task].Signal(SIGTERM);
  for (const char* task : {"ps/0", "ps/1", "worker/0", "worker/1"}) {
    EXPECT_EQ(job.Finish(task).code, 143) << task << job[task].Err();
  }
  const std::string saved = SavedFor(job["ps/1"].Err());
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("saved checkpoint " + folder + "/" + saved + " "))
      << job["ps/1"].Err();
  EXPECT_THAT(job["ps/1"].Err(), Not(HasSubstr("no checkpoint was saved")));
  EXPECT_EQ(job.sandbox().Run({"ckpt", "verify", folder}).code, 0);
}

}  // namespace
}  // namespace passel::testing
