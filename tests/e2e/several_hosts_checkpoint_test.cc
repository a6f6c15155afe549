// Checkpoints of a job on two hosts: who saves, from where, and what the next job goes on from.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "e2e/hosts_job.h"
#include "support/large_model.h"
#include "support/temp_dir.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using SeveralHostsCheckpointTest = SeveralHostsTest;

// The chief has no memory to save: ps/0 does it, and a chief of another host goes on from that.
TEST_F(SeveralHostsCheckpointTest, PsSavesCheckpointsOfAChiefOfAnotherHost) {
  HostsJob job = Job(1, 2, {"worker/0", "worker/1"}, {"--start_wait=20", "--mode=barrier"});
  const std::string folder = job.sandbox().dir().File("checkpoints");
  job.StartAll({"--train_steps=60", "--checkpoint_dir=" + folder});
  job.ExpectEnd();
  job.StartAll({"--train_steps=90", "--checkpoint_dir=" + folder});
  job.ExpectEnd();
  EXPECT_THAT(job["worker/0"].Err() + job["worker/0"].Out(), HasSubstr("ckpt-60"))
      << job["ps/0"].Err();
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("model.ckpt-90 in"));
  // A folder that is not shared.
  job.Start("ps/0", {"--train_steps=120", "--checkpoint_dir=" + folder});
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready"));
  job.Start("worker/0", {"--train_steps=120", "--checkpoint_dir=" + folder + "2"});
  EXPECT_THAT(job.OnlyErrorOf("worker/0"), AllOf(HasSubstr("ps/0 at 10.77.0.1:2222 does not see"),
                                                 HasSubstr("share one folder")));
}

// The chief cannot know what memory they have.
TEST_F(SeveralHostsCheckpointTest, PsThatFindsNoMemoryForItsCopyRefusesThePlan) {
  HostsJob job = Job(1, 1, {"worker/0"}, {"--start_wait=20", "--mode=barrier"});
  const std::string folder = "--checkpoint_dir=" + job.sandbox().dir().File("c");
  job.Start("ps/0", {folder});
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  std::string line;
  for (int turn = 0; turn < 5 && line.find("is copied to memory") == line.npos; ++turn) {
    job.Start("worker/0", {folder, LayersThatAreNotCopied()});
    line = job.OnlyErrorOf("worker/0");
  }
  EXPECT_THAT(line, AllOf(HasSubstr("in rounds a checkpoint is copied to memory"),
                          HasSubstr("use a mode without rounds")));
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    names.push_back(file.path().filename());
  }
  return names;
}

// Nothing of a set that was not finished, and each of the others is whole.
void ExpectNothingUnfinished(Sandbox& sandbox, const std::string& folder) {
  const std::string index = ReadText(folder + "/checkpoint");
  for (const std::string& file : FilesIn(folder)) {
    EXPECT_THAT(file, Not(HasSubstr(".tmp."))) << index;
    if (!file.starts_with("model.ckpt-")) continue;
    EXPECT_THAT(index, HasSubstr("\"" + file.substr(0, file.find("-0000")) + "\""));
  }
  EXPECT_EQ(sandbox.Run({"ckpt", "verify", folder}).code, 0);
}

// Each writes its part, on its own host; a job of another number of ps goes on from the set with
// the bits of one that was never stopped.
TEST_F(SeveralHostsCheckpointTest, PsOfSeveralHostsSaveOneStepAndAnyNumberGoesOnFromIt) {
  const TempDir dir;
  const std::string folder = dir.File("checkpoints");
  const std::vector<std::string> kFlags = {"--start_wait=20", "--mode=barrier", "--optimizer=adam",
                                           "--hidden_units=16", "--batch_size=20"};
  const std::vector<std::string> kSaving =
      With(kFlags, {"--save_steps=20", "--checkpoint_dir=" + folder});
  {
    // All are killed at once, behind the first save.
    HostsJob job = Job(2, 2, {"ps/1", "worker/1"}, kSaving);
    job.sandbox().SetEnv("PASSEL_FAILPOINT", "checkpoint.committed:1:kill");
    job.StartAll({"--train_steps=1500"});
    EXPECT_EQ(job.Finish("ps/0").code, 1000 + SIGKILL) << job["ps/0"].Err();
    for (const char* task : {"ps/1", "worker/0", "worker/1"}) job.Kill(task);
    const std::vector<std::string> files = FilesIn(folder);
    EXPECT_EQ(std::ranges::count_if(
                  files, [](const auto& file) { return file.find("-of-00002.") != file.npos; }),
              2);
  }
  {
    HostsJob job = Job(2, 2, {"ps/1", "worker/0"}, kSaving);
    job.StartAll({"--train_steps=1550"});
    job.ExpectEnd();
    EXPECT_THAT(job["worker/0"].Err(), HasSubstr("goes on from " + folder + "/model.ckpt-"));
    EXPECT_THAT(job["ps/0"].Err(), HasSubstr("saved checkpoint " + folder + "/model.ckpt-1550 "));
    ExpectNothingUnfinished(job.sandbox(), folder);
  }
  std::string models[2];
  for (const bool resumed : {false, true}) {
    HostsJob job = Job(1, 2, {}, resumed ? kSaving : kFlags);
    const std::string model = job.sandbox().dir().File("m");
    job.StartAll({"--train_steps=1600", "--save=" + model});
    job.ExpectEnd();
    models[resumed ? 1 : 0] = ReadText(model);
    if (resumed) {
      EXPECT_THAT(job["worker/0"].Err(), HasSubstr("ckpt-1550, global step 1550"));
    }
  }
  EXPECT_FALSE(models[0].empty());
  EXPECT_TRUE(models[0] == models[1]);
}

// Its set is given up, and leaves nothing; the job goes on from the one before, on both hosts.
TEST_F(SeveralHostsCheckpointTest, PsThatDiesInASaveLeavesTheFormerCheckpoint) {
  const TempDir dir;
  const std::string folder = dir.File("checkpoints");
  HostsJob job = Job(2, 1, {"ps/1"},
                     With(kEndless, {"--mode=locked", "--save_steps=20", "--ps_wait=1",
                                     "--checkpoint_dir=" + folder}));
  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  job.sandbox().SetEnv("PASSEL_FAILPOINT", "checkpoint.part:2:kill");
  job.Start("ps/1");
  ASSERT_TRUE(job["ps/1"].WaitFor(" is ready")) << job["ps/1"].Err();
  job.sandbox().SetEnv("PASSEL_FAILPOINT", "");
  job.Start("worker/0");
  EXPECT_EQ(job.Finish("ps/1").code, 1000 + SIGKILL) << job["ps/1"].Err();
  ASSERT_TRUE(job["ps/0"].WaitFor("no checkpoint was saved to")) << job["ps/0"].Err();
  EXPECT_THAT(job["ps/0"].Err(),
              AllOf(HasSubstr("ps/1 at 10.77.0.2:2223"), Not(HasSubstr("training goes on")),
                    HasSubstr("whoever needs that ps waits for it")));
  ExpectNothingUnfinished(job.sandbox(), folder);
  const std::vector<std::string> files = FilesIn(folder);
  EXPECT_EQ(std::ranges::count_if(files,
                                  [](const auto& file) { return file.starts_with("model.ckpt-"); }),
            2);
  EXPECT_THAT(job.OnlyErrorOf("worker/0", 143), HasSubstr("ps"));
  // ps/0 still has its values, and those of ps/1 are gone.
  const std::size_t before = job["ps/0"].Err().size();
  job.Start("ps/1");
  job.Start("worker/0");
  ASSERT_TRUE(job["worker/0"].WaitFor("Session initialization complete")) << job["worker/0"].Err();
  EXPECT_THAT(job["worker/0"].Err(), AllOf(HasSubstr("all ps go back from global step"),
                                           HasSubstr("goes on from " + folder + "/model.ckpt-")));
  ASSERT_TRUE(job.sandbox().Advances(50)) << job["ps/0"].Err();
  // Lives are counted anew since then: the end of the first is told all the same.
  const std::string life = fmt::format("worker/0 (process {})", job["worker/0"].pid());
  job.Kill("worker/0");
  EXPECT_TRUE(job["ps/0"].WaitFor(life + " died")) << job["ps/0"].Err();
  job.Start("worker/0");
  ASSERT_TRUE(job.sandbox().Advances(50)) << job["worker/0"].Err();
  job.Stop();
  job.ExpectEnd(130);
  EXPECT_THAT(job["ps/0"].Err().substr(before), HasSubstr("saved checkpoint"));
  ExpectNothingUnfinished(job.sandbox(), folder);
}

TEST_F(SeveralHostsCheckpointTest, PsOfSeveralHostsNeedOneFolder) {
  HostsJob job = Job(2, 1, {"ps/1"}, kShort);
  const std::string folder = job.sandbox().dir().File("checkpoints");
  job.Start("ps/0", {"--checkpoint_dir=" + folder});
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  for (const bool has_one : {false, true}) {
    job.Start("ps/1", has_one ? std::vector{"--checkpoint_dir=" + folder + "2"}
                              : std::vector<std::string>());
    ASSERT_TRUE(job["ps/1"].WaitFor(" is ready")) << job["ps/1"].Err();
    job.Start("worker/0", {"--checkpoint_dir=" + folder});
    EXPECT_THAT(job.OnlyErrorOf("worker/0"),
                AllOf(HasSubstr("ps/1 at 10.77.0.2:2223"),
                      HasSubstr(has_one ? "share one folder" : "start it with --checkpoint_dir")));
    job.Kill("ps/1");
    EXPECT_EQ(FilesIn(folder), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace passel::testing
