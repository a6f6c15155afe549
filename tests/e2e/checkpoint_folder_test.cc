// Folders of checkpoints as users have them: odd names, no rights, other jobs, results in them.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "io/checkpoint_folder.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

const std::vector<std::string> kSmallModel = {"--hidden_units=16", "--batch_size=20"};

// `passel arguments...`, which are $@ of the shell commands `before`.
Outcome RunBehind(Sandbox& sandbox, const std::string& before,
                  const std::vector<std::string>& arguments) {
  Program program = sandbox.StartCommand(
      With({"sh", "-c", before + "; exec \"$@\"", "sh", PASSEL_PROGRAM}, arguments));
  return sandbox.Finish(program);
}

// A job of one process with `steps` steps, in that folder.
std::vector<std::string> StepsIn(Sandbox& sandbox, int steps, const std::string& folder) {
  return sandbox.Train(With(kSmallModel, {"--ps=0", "--workers=1", "--checkpoint_dir=" + folder,
                                          fmt::format("--train_steps={}", steps)}));
}

TEST(CheckpointFolderTest, ItsNameMayBeAnything) {
  Sandbox sandbox;
  const std::string dir = sandbox.dir().path();
  const std::vector<std::string> names = {"a b",
                                          "new\nline",
                                          "gr\xc3\xb6\xc3\x9f"
                                          "e",
                                          "-dash",
                                          "%n%s\"'$",
                                          std::string(250, 'x')};
  for (const std::string& name : names) {
    for (const int steps : {10, 20}) {
      // Relative to where it is started.
      const Outcome outcome = RunBehind(sandbox, "cd " + dir, StepsIn(sandbox, steps, name));
      EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.err;
      EXPECT_EQ(outcome.err.find("goes on from") != std::string::npos, steps == 20) << outcome.err;
    }
    EXPECT_TRUE(OpenCheckpoint(dir + "/" + name, "model.ckpt-20").ok()) << name;
  }
  const std::string error =
      OnlyError(sandbox.Run(StepsIn(sandbox, 10, dir + "/" + std::string(300, 'x'))));
  EXPECT_THAT(error, AllOf(HasSubstr("cannot make the folder"), HasSubstr("File name too long")));
}

TEST(CheckpointFolderTest, NoResultTakesTheNameOfAFileOfCheckpoints) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().path() + "/c";
  ASSERT_EQ(sandbox.Run(StepsIn(sandbox, 10, folder)).code, 0);
  const std::string index = ReadText(folder + "/checkpoint");
  for (const char* flag : {"--save", "--report", "--report_html", "--log_file"}) {
    for (const char* name : {"checkpoint", "best", ".owner", "model.ckpt-10.safetensors",
                             "../c/checkpoint", "model.ckpt-9-00000-of-00002.safetensors"}) {
      const std::string error = OnlyError(sandbox.Run(
          With(StepsIn(sandbox, 20, folder), {fmt::format("{}={}/{}", flag, folder, name)})));
      EXPECT_THAT(error, AllOf(HasSubstr(flag), HasSubstr("is the name of a checkpoint's file"),
                               HasSubstr("use another name")));
    }
  }
  // Nor in a folder of another job.
  for (const char* flag : {"--save", "--report"}) {
    for (const char* name : {"checkpoint", "model.ckpt-10.safetensors"}) {
      EXPECT_THAT(OnlyError(sandbox.Run(With(StepsIn(sandbox, 20, sandbox.dir().path() + "/d"),
                                             {fmt::format("{}={}/{}", flag, folder, name)}))),
                  HasSubstr("is the name of a checkpoint's file"));
    }
  }
  EXPECT_EQ(ReadText(folder + "/checkpoint"), index);
  EXPECT_EQ(sandbox.Run(With(StepsIn(sandbox, 20, folder), {"--save=" + folder + "/mine"})).code,
            0);
  EXPECT_TRUE(OpenCheckpoint(folder, "model.ckpt-20").ok());
}

TEST(CheckpointFolderTest, AnEmptyIndexIsNoReasonToBeginAnew) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().path() + "/c";
  ASSERT_EQ(sandbox.Run(StepsIn(sandbox, 10, folder)).code, 0);
  WriteText(folder + "/checkpoint", "");
  EXPECT_THAT(OnlyError(sandbox.Run(StepsIn(sandbox, 20, folder))),
              HasSubstr(folder + "/checkpoint: the index is empty: restore it"));
  EXPECT_TRUE(fs::exists(folder + "/model.ckpt-10.safetensors"));
}

TEST(CheckpointFolderTest, WhoMayNotWriteThereIsToldSo) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().path() + "/c";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  if (::getuid() != 0) {
    EXPECT_THAT(OnlyError(sandbox.Run(StepsIn(sandbox, 10, folder))),
                AllOf(HasSubstr(folder + " cannot get checkpoints (let this user write there"),
                      HasSubstr("Permission denied")));
    return;
  }
  fs::permissions(sandbox.dir().path(), fs::perms::all);
  const auto nobody = [&](const std::vector<std::string>& more) {
    return OnlyError(RunBehind(
        sandbox, "set -- setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"",
        With({"train", "--fake_data", "--job_id=" + sandbox.job(), "--train_steps=10"}, more)));
  };
  EXPECT_THAT(nobody({"--checkpoint_dir=" + folder + "/below"}),
              AllOf(HasSubstr("cannot make the folder"), HasSubstr("Permission denied")));
  fs::permissions(folder, fs::perms::all & ~fs::perms::others_write);
  EXPECT_THAT(nobody({"--checkpoint_dir=" + folder}),
              AllOf(HasSubstr(folder + " cannot get checkpoints (let this user write there"),
                    HasSubstr("Permission denied")));
  ASSERT_EQ(sandbox.Run(StepsIn(sandbox, 10, folder)).code, 0);
  fs::permissions(folder + "/checkpoint", fs::perms::owner_read);
  EXPECT_THAT(nobody({"--resume=" + folder}), HasSubstr("Permission denied"));
}

TEST(CheckpointFolderTest, InADirectoryThatWasDeletedThereIsNothing) {
  Sandbox sandbox;
  const std::string gone = sandbox.dir().path() + "/gone";
  fs::create_directory(gone);
  const Outcome outcome =
      RunBehind(sandbox, fmt::format("cd {0}; rmdir {0}", gone),
                sandbox.Train(With(kSmallModel, {"--train_steps=10", "--resume=c"})));
  EXPECT_THAT(OnlyError(outcome), HasSubstr("--resume c: there is no such checkpoint"));
}

// The folder is moved away, and another job makes a new one: both write only where they may.
TEST(CheckpointFolderTest, AFolderThatAnotherJobHasTakenIsLeftAlone) {
  Sandbox sandbox, other;
  const std::string folder = sandbox.dir().path() + "/c", moved = sandbox.dir().path() + "/moved";
  const auto train = [&](Sandbox& job) {
    return job.Train(With(kSmallModel, {"--train_steps=100000000", "--checkpoint_dir=" + folder,
                                        "--save_secs=1000"}));
  };
  Program first = sandbox.Start(train(sandbox));
  ASSERT_TRUE(first.WaitFor("saved checkpoint")) << first.Err();
  const auto before = ReadCheckpointIndex(folder);
  ASSERT_TRUE(before.ok());
  fs::rename(folder, moved);
  Program second = other.Start(train(other));
  ASSERT_TRUE(second.WaitFor("saved checkpoint")) << second.Err();
  const auto taken = ReadCheckpointIndex(folder);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(sandbox.Advances(50)) << first.Err();
  const Outcome end = sandbox.Interrupt(first);
  EXPECT_THAT(end.err, AllOf(HasSubstr("the last checkpoint was not saved to " + folder),
                             HasSubstr("is the checkpoint folder of process")));
  EXPECT_EQ(*ReadCheckpointIndex(folder), *taken);
  EXPECT_EQ(*ReadCheckpointIndex(moved), *before);
  EXPECT_THAT(other.Interrupt(second).err, Not(HasSubstr("was not saved")));
  const auto last = ReadCheckpointIndex(folder);
  ASSERT_TRUE(last.ok());
  for (const auto& entry : last->kept) {
    EXPECT_TRUE(OpenCheckpoint(folder, entry.name).ok()) << entry.name;
  }
}

}  // namespace
}  // namespace passel::testing
