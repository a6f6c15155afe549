#include "io/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <set>

#include "support/crash_states.h"
#include "support/failing_ops.h"
#include "support/file_text.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "unit/io/small_checkpoints.h"

namespace passel {
namespace {

using test::FailingOps;
using test::FileText;
using test::Own;
using test::PutFileText;
using test::RecordedOps;
using test::Save;
using test::TempDir;
using test::WriteParts;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr double kHour = 3600;

// The step to go on from; -1: none, -2: an error.
std::int64_t NewestStep(CheckpointFolder& folder, std::vector<std::string>* warnings = nullptr) {
  std::vector<std::string> ignored;
  const auto newest = folder.Newest(warnings != nullptr ? warnings : &ignored);
  if (!newest.ok()) return -2;
  return *newest ? StepOfCheckpoint(**newest).value_or(-3) : -1;
}

std::vector<std::string> Checkpoints(const TempDir& dir) {
  std::vector<std::string> names = dir.List();
  std::erase_if(names, [](const std::string& n) { return !n.starts_with("model"); });
  return names;
}

TEST(CheckpointFolder, KeepsTheNewestFiveAndNamesThemInTheIndex) {
  const TempDir dir;
  auto folder = Own(dir.File("a/b"));
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  EXPECT_EQ(NewestStep(*folder), -1);
  for (int step = 100; step <= 700; step += 100) Save(*folder, step);
  EXPECT_EQ(NewestStep(*folder), 700);
  std::vector<std::string> names;
  for (const auto& entry : folder->index().kept) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("model.ckpt-300", "model.ckpt-400", "model.ckpt-500",
                                 "model.ckpt-600", "model.ckpt-700"));
  EXPECT_FALSE(IsRegularFile(PartPath(folder->path(), 200, 0, 1)));
  EXPECT_TRUE(IsRegularFile(PartPath(folder->path(), 300, 0, 1)));
  const auto read = ParseCheckpointIndex(FileText(dir.File("a/b/checkpoint")));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, folder->index());
}

TEST(CheckpointFolder, KeepsOneInSoManyHoursForGood) {
  const TempDir dir;
  auto folder = Own(dir.path(), {.keep = 2, .keep_every_hours = 2});
  ASSERT_TRUE(folder.ok());
  for (int hour = 1; hour <= 9; ++hour) Save(*folder, hour, 1000 + hour * kHour);
  // More than two hours after the beginning, or after the last that was kept.
  EXPECT_THAT(Checkpoints(dir),
              ElementsAre("model.ckpt-3.safetensors", "model.ckpt-6.safetensors",
                          "model.ckpt-8.safetensors", "model.ckpt-9.safetensors"));
}

TEST(CheckpointFolder, AClockThatIsSetBackPutsThatOffByNoMoreThanTheseHours) {
  const TempDir dir;
  auto folder = Own(dir.path(), {.keep = 1, .keep_every_hours = 2});
  ASSERT_TRUE(folder.ok());
  Save(*folder, 1, 1000 + 1e6 * kHour);  // by a clock that is a century ahead: as of now, later
  for (int hour = 2; hour <= 9; ++hour) Save(*folder, hour, 1000 + hour * kHour);
  EXPECT_THAT(Checkpoints(dir), ElementsAre("model.ckpt-3.safetensors", "model.ckpt-6.safetensors",
                                            "model.ckpt-9.safetensors"));
}

TEST(CheckpointFolder, ThoseOfAClockThatWasAheadAreNotAllKeptForGood) {
  const TempDir dir;
  auto folder = Own(dir.path(), {.keep = 5, .keep_every_hours = 10000});
  ASSERT_TRUE(folder.ok());
  for (int i = 1; i <= 5; ++i) Save(*folder, i, 1000 + 20000 * kHour + i);
  for (int i = 6; i <= 10; ++i) Save(*folder, i, 1000 + i);
  EXPECT_THAT(Checkpoints(dir),
              UnorderedElementsAre("model.ckpt-6.safetensors", "model.ckpt-7.safetensors",
                                   "model.ckpt-8.safetensors", "model.ckpt-9.safetensors",
                                   "model.ckpt-10.safetensors"));
}

TEST(CheckpointFolder, TheBestIsKeptUntilThereIsABetterOne) {
  const TempDir dir;
  auto folder = Own(dir.path(), {.keep = 1});
  ASSERT_TRUE(folder.ok());
  Save(*folder, 1, 2000, true);
  Save(*folder, 2);
  Save(*folder, 3);
  EXPECT_THAT(Checkpoints(dir),
              ElementsAre("model.ckpt-1.safetensors", "model.ckpt-3.safetensors"));
  EXPECT_EQ(BestCheckpoint(dir.path()).value()->name, "model.ckpt-1");
  Save(*folder, 4, 2000, true);
  EXPECT_THAT(Checkpoints(dir), ElementsAre("model.ckpt-4.safetensors"));
  const auto best = BestCheckpoint(dir.path());
  ASSERT_TRUE(best.ok() && *best);
  EXPECT_EQ((*best)->name, "model.ckpt-4");
  EXPECT_EQ((*best)->score, (ValidationScore{0.5, 4}));
  // One that is there already.
  Save(*folder, 5);
  ASSERT_TRUE(folder->MarkBest("model.ckpt-5", {0.75, 4}).ok());
  EXPECT_THAT(Checkpoints(dir), ElementsAre("model.ckpt-5.safetensors"));
}

TEST(CheckpointFolder, TheBestThatIsKeptForGoodStaysWhenThereIsABetterOne) {
  const TempDir dir;
  auto folder = Own(dir.path(), {.keep = 1, .keep_every_hours = 1});
  ASSERT_TRUE(folder.ok());
  Save(*folder, 1, 1000 + 2 * kHour, true);
  Save(*folder, 2, 1000 + 2.1 * kHour);
  Save(*folder, 3, 1000 + 2.2 * kHour, true);
  EXPECT_THAT(Checkpoints(dir),
              ElementsAre("model.ckpt-1.safetensors", "model.ckpt-3.safetensors"));
}

TEST(CheckpointFolder, ASetThatTheIndexDoesNotNameDoesNotExist) {
  const TempDir dir;
  auto folder = Own(dir.path());
  ASSERT_TRUE(folder.ok());
  Save(*folder, 1);
  ASSERT_TRUE(WriteParts(dir.path(), 2).ok());
  EXPECT_EQ(NewestStep(*folder), 1);
}

TEST(CheckpointFolder, PartsOfOneSetBelongTogether) {
  const TempDir dir;
  auto folder = Own(dir.path());
  ASSERT_TRUE(folder.ok());
  Save(*folder, 1, 2000, false, 3);
  const auto parts = OpenCheckpoint(dir.path(), "model.ckpt-1");
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  ASSERT_EQ(parts->size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ((*parts)[i].Word(kPartKey), std::to_string(i));
  // One of another save of the same step.
  ASSERT_TRUE(WriteParts(dir.path(), 2, 3).ok());
  const std::string old = FileText(PartPath(dir.path(), 2, 1, 3));
  ASSERT_TRUE(WriteParts(dir.path(), 2, 3, "another").ok());
  PutFileText(PartPath(dir.path(), 2, 1, 3), old);
  const Status mixed = folder->Commit(2, 3, 2000);
  EXPECT_EQ(mixed.code(), Code::kDataLoss);
  EXPECT_THAT(mixed.message(), HasSubstr("00001-of-00003.safetensors has the save"));
  // One that is not there.
  std::filesystem::remove(PartPath(dir.path(), 2, 2, 3));
  EXPECT_THAT(folder->Commit(2, 3, 2000).message(), HasSubstr("has 2 of its 3 parts"));
  EXPECT_EQ(NewestStep(*folder), 1);
  // A save in another number of parts takes its place.
  Save(*folder, 2, 2000, false, 1);
  EXPECT_THAT(Checkpoints(dir),
              ElementsAre("model.ckpt-1-00000-of-00003.safetensors",
                          "model.ckpt-1-00001-of-00003.safetensors",
                          "model.ckpt-1-00002-of-00003.safetensors", "model.ckpt-2.safetensors"));
}

TEST(CheckpointFolder, ABrokenOneIsPutAsideAndTheOneBeforeItUsed) {
  const TempDir dir;
  auto folder = Own(dir.path());
  ASSERT_TRUE(folder.ok());
  for (const int step : {1, 2, 3}) Save(*folder, step);
  std::string bytes = FileText(PartPath(dir.path(), 3, 0, 1));
  bytes.back() ^= 1;
  PutFileText(PartPath(dir.path(), 3, 0, 1), bytes);
  std::filesystem::remove(PartPath(dir.path(), 2, 0, 1));
  std::vector<std::string> warnings;
  EXPECT_EQ(NewestStep(*folder, &warnings), 1);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], HasSubstr("tensor \"w\" changed since it was written"));
  EXPECT_THAT(warnings[1], HasSubstr("model.ckpt-2.safetensors is not there"));
  EXPECT_THAT(Checkpoints(dir),
              ElementsAre("model.ckpt-1.safetensors", "model.ckpt-3.safetensors.corrupt"));
  std::filesystem::remove(PartPath(dir.path(), 1, 0, 1));
  const auto none = folder->Newest(&warnings);
  EXPECT_EQ(none.status().code(), Code::kDataLoss);
  EXPECT_THAT(none.status().message(),
              HasSubstr("no checkpoint that is whole: use --resume never"));
  // Asked again it says the same: the index still names what there was.
  EXPECT_EQ(folder->Newest(&warnings).status().code(), Code::kDataLoss);
  const auto aside = folder->Newest(&warnings, CheckpointFolder::NoneWhole::kPutAside);
  EXPECT_TRUE(aside.ok() && !*aside);
  EXPECT_EQ(NewestStep(*folder), -1);
}

TEST(CheckpointFolder, ABestThatIsPutAsideIsTheBestNoMore) {
  const TempDir dir;
  auto folder = Own(dir.path());
  ASSERT_TRUE(folder.ok());
  Save(*folder, 1);
  Save(*folder, 2, 2000, true);
  PutFileText(PartPath(dir.path(), 2, 0, 1), "x");
  EXPECT_EQ(NewestStep(*folder), 1);
  EXPECT_FALSE(BestCheckpoint(dir.path()).value().has_value());
}

TEST(CheckpointFolder, WhatWasThereBeforeItsOwnerKeepsItsName) {
  const TempDir dir;
  {
    auto former = Own(dir.path(), {.keep = 1});
    ASSERT_TRUE(former.ok());
    Save(*former, 1, 2000, true);
    Save(*former, 2);
  }
  ASSERT_TRUE(WriteParts(dir.path(), 3, 2).ok());
  ASSERT_TRUE(WriteParts(dir.path(), 4).ok());
  ASSERT_TRUE(WriteParts(dir.path(), 5, 2).ok());
  std::filesystem::remove(PartPath(dir.path(), 5, 0, 2));  // no set
  auto folder = Own(dir.path());
  ASSERT_TRUE(folder.ok());
  EXPECT_THAT(folder->Unlisted().value(),
              ElementsAre("model.ckpt-1", "model.ckpt-3", "model.ckpt-4"));
  for (const int step : {1, 2, 3, 4}) {
    const Status taken = folder->CheckNameIsFree(step);
    EXPECT_EQ(taken.code(), Code::kAlreadyExists) << step;
    EXPECT_THAT(taken.message(), HasSubstr(folder->PathOf(CheckpointName(step)) + " is there"));
  }
  Save(*folder, 6);
  for (const int step : {5, 6, 7}) EXPECT_TRUE(folder->CheckNameIsFree(step).ok()) << step;
  std::filesystem::remove(PartPath(dir.path(), 4, 0, 1));
  EXPECT_TRUE(folder->CheckNameIsFree(4).ok());
}

TEST(CheckpointFolder, HasOneOwner) {
  const TempDir dir;
  {
    const auto folder = Own(dir.path());
    ASSERT_TRUE(folder.ok());
    const auto second = Own(dir.path());
    EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
    EXPECT_THAT(second.status().message(), HasSubstr("process " + std::to_string(::getpid())));
  }
  EXPECT_TRUE(Own(dir.path()).ok());
}

TEST(CheckpointFolder, AnotherLifeOfTheSameJobIsToldFromAnotherJob) {
  const TempDir dir;
  const auto own = [&](std::string_view job) {
    return CheckpointFolder::Own(dir.path(), {}, 1000, FileOps::Real(), job);
  };
  const std::string longest(512, 'x');
  for (const std::string& job : {std::string("job-1"), longest}) {
    const auto folder = own(job);
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    EXPECT_EQ(own("job-2").status().code(), Code::kAlreadyExists);
    EXPECT_EQ(own("").status().code(), Code::kAlreadyExists);
    const Status same = own(job).status();
    EXPECT_EQ(same.code(), Code::kUnavailable);
    EXPECT_THAT(same.message(), AllOf(HasSubstr("process " + std::to_string(::getpid())),
                                      HasSubstr("another life of this job")));
  }
  const auto nameless = own("");
  ASSERT_TRUE(nameless.ok());
  EXPECT_EQ(own("").status().code(), Code::kAlreadyExists);
}

TEST(CheckpointFolder, WhatKilledSavesHaveLeftIsDeleted) {
  const TempDir dir;
  const std::vector<std::string> left = {"model.ckpt-7.safetensors.tmp.4711.0",
                                         "model.ckpt-7-00001-of-00003.safetensors.tmp.4711.12",
                                         "checkpoint.tmp.4711.1", "best.tmp.1.0"};
  const std::vector<std::string> others = {
      "model.ckpt-7.safetensors",         "notes.tmp.4711.0",
      "model.ckpt-7.safetensors.tmp.old", "model.ckpt-7-3.safetensors.tmp.4711.0",
      "model.safetensors.tmp.4711.0",     "a-1.tmp.2.3"};
  for (const auto* names : {&left, &others}) {
    for (const std::string& name : *names) PutFileText(dir.File(name), "x");
  }
  ASSERT_TRUE(Own(dir.path()).ok());
  for (const std::string& name : left) EXPECT_FALSE(IsRegularFile(dir.File(name))) << name;
  for (const std::string& name : others) EXPECT_TRUE(IsRegularFile(dir.File(name))) << name;
}

TEST(CheckpointFolder, ABrokenIndexIsNamed) {
  const TempDir dir;
  PutFileText(dir.File("checkpoint"), "model_checkpoint_path: \"../other\"\n");
  const auto folder = Own(dir.path());
  EXPECT_EQ(folder.status().code(), Code::kDataLoss);
  EXPECT_THAT(folder.status().message(),
              HasSubstr(dir.File("checkpoint") + ": line 1 of the index names no checkpoint"));
}

TEST(CheckpointFolder, WhateverACrashLeavesTheFormerOrTheNewOneIsWhole) {
  for (const int parts : {1, 2}) {
    const TempDir dir;
    RecordedOps ops;
    RecordedOps::Files before;
    {
      auto folder = Own(dir.path(), {.keep = 2}, ops);
      ASSERT_TRUE(folder.ok());
      for (const int step : {1, 2}) Save(*folder, step, 2000, false, parts);
    }
    for (const std::string& name : dir.List()) before[dir.File(name)] = FileText(dir.File(name));
    RecordedOps save;
    {
      auto folder = Own(dir.path(), {.keep = 2}, save);
      ASSERT_TRUE(folder.ok());
      ASSERT_TRUE(WriteParts(dir.path(), 3, parts, "", save).ok());
      ASSERT_TRUE(folder->Commit(3, parts, 2000).ok());
      ASSERT_TRUE(folder->MarkBest("model.ckpt-3", {0.5, 3}).ok());
    }
    std::set<std::int64_t> found;
    const std::size_t states = save.ForEachCrash(before, [&](const RecordedOps::Files& left) {
      for (const std::string& name : dir.List()) std::filesystem::remove(dir.File(name));
      for (const auto& [path, contents] : left) PutFileText(path, contents);
      auto folder = Own(dir.path(), {.keep = 2});
      ASSERT_TRUE(folder.ok()) << folder.status().ToString();
      std::vector<std::string> warnings;
      const std::int64_t step = NewestStep(*folder, &warnings);
      ASSERT_TRUE(step == 2 || step == 3) << step;
      ASSERT_THAT(warnings, IsEmpty());
      found.insert(step);
    });
    EXPECT_THAT(found, ElementsAre(2, 3));
    EXPECT_GT(states, 100u);
  }
}

// One whose own deletion failed.
TEST(CheckpointFolder, ASaveDeletesWhatAFormerOneCouldNot) {
  const TempDir dir;
  auto folder = Own(dir.path());
  ASSERT_TRUE(folder.ok());
  const std::string left = dir.path() + "/model.ckpt-1-00000-of-00002.safetensors.tmp.7.0";
  const std::string mine = dir.path() + "/notes.tmp.7.0";
  for (const std::string& path : {left, mine}) std::ofstream(path) << "x";
  Save(*folder, 2);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(mine)) << "somebody else's";
}

// Every call that a save makes fails in turn.
TEST(CheckpointFolder, WhateverCallFailsTheFormerOrTheNewOneIsWhole) {
  for (const int error : {EIO, ENOSPC, EDQUOT, EROFS}) {
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 100);
      const TempDir dir;
      {
        auto folder = Own(dir.path(), {.keep = 1});
        ASSERT_TRUE(folder.ok());
        Save(*folder, 1);
      }
      FailingOps ops(n, error);
      Status saved;
      {
        auto folder = Own(dir.path(), {.keep = 1}, ops);
        ASSERT_TRUE(folder.ok());
        saved = WriteParts(dir.path(), 2, 2, "", ops);
        if (saved.ok()) saved = folder->Commit(2, 2, 2000);
        if (saved.ok()) saved = folder->MarkBest("model.ckpt-2", {0.5, 2});
      }
      if (ops.failed().empty()) break;
      EXPECT_THAT(saved.message(),
                  ::testing::AllOf(HasSubstr(dir.path()), HasSubstr(std::strerror(error))))
          << ops.failed() << ", call " << n;
      auto folder = Own(dir.path());
      ASSERT_TRUE(folder.ok());
      const std::int64_t step = NewestStep(*folder);
      EXPECT_TRUE(step == 1 || step == 2) << "call " << n << ": " << step;
      Save(*folder, 3);
      EXPECT_EQ(NewestStep(*folder), 3);
    }
  }
}

// What is asked here is which files there are, not what a power cut leaves.
class NoSync : public FileOps {
 public:
  void StartSync(int) override {}
  int SyncFile(int) override { return 0; }
  int SyncDir(const std::string&) override { return 0; }
};

TEST(CheckpointFolder, RandomSavesDamagesAndRestartsNeverLoseTheLastGoodOne) {
  std::mt19937 random(20261123);
  NoSync ops;
  const int jobs = ManyTurns() ? 3000 : Turns(120, 30);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int job = 0; job < jobs; ++job) {
    const TempDir dir;
    const KeepPolicy policy{.keep = 1 + upto(3), .keep_every_hours = upto(2) != 0 ? 1e4 : 0.01};
    std::set<std::int64_t> whole;  // committed, and not damaged since
    auto folder = Own(dir.path(), policy, ops);
    ASSERT_TRUE(folder.ok());
    std::int64_t step = 0;
    const int turns = job % 50 == 0 ? 60 : 10;
    for (int turn = 0; turn < turns; ++turn) {
      switch (upto(4)) {
        case 0: {  // a restart, after which older ones were taken or deleted
          folder = NotFound("closed");
          folder = Own(dir.path(), policy, ops);
          ASSERT_TRUE(folder.ok());
          std::int64_t expected = -1;
          for (const auto& entry : folder->index().kept) {
            const std::int64_t of = *StepOfCheckpoint(entry.name);
            if (whole.contains(of)) expected = std::max(expected, of);
          }
          const std::int64_t newest = NewestStep(*folder);
          if (expected < 0) {
            ASSERT_TRUE(newest == -1 || newest == -2) << newest;
          } else {
            ASSERT_EQ(newest, expected);
          }
          break;
        }
        case 1: {  // one byte of some checkpoint that is listed
          if (folder->index().kept.empty()) break;
          const auto& kept = folder->index().kept;
          const std::string name =
              kept[static_cast<std::size_t>(upto(static_cast<int>(kept.size())))].name;
          const std::int64_t of = *StepOfCheckpoint(name);
          const auto paths = PartsOf(dir.path(), name);
          if (!paths.ok() || !whole.contains(of)) break;
          std::string bytes = FileText((*paths)[0]);
          bytes[static_cast<std::size_t>(upto(static_cast<int>(bytes.size())))] ^= 0x10;
          PutFileText((*paths)[0], bytes);
          whole.erase(of);
          break;
        }
        default:
          step += 1 + upto(9);
          Save(*folder, step, 2000 + turn * 60, upto(5) == 0, 1 + upto(2), ops);
          whole.insert(step);
          // What was just saved is there, whatever was damaged before.
          ASSERT_TRUE(OpenCheckpoint(dir.path(), CheckpointName(step)).ok());
      }
    }
  }
}

TEST(CheckpointFolder, FreeSpaceIsAskedFor) {
  const TempDir dir;
  EXPECT_TRUE(CheckFreeSpace(dir.path(), 1000).ok());
  const Status full = CheckFreeSpace(dir.path(), std::uint64_t{1} << 60);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("a checkpoint needs 1164450"));
  EXPECT_THAT(full.message(), HasSubstr("free some, or name another folder"));
}

// --- A save that is killed between its parts and the index ---------------------------------------

TEST(CheckpointFolderTest, PartsThatNoIndexNamesGoWithTheNextOwner) {
  const TempDir dir;
  for (const bool other : {false, true}) {
    SCOPED_TRACE(other);
    {
      Result<CheckpointFolder> folder = Own(dir.path());
      ASSERT_TRUE(folder.ok()) << folder.status().ToString();
      if (!other) Save(*folder, 5);
      folder->BeginSave(7, "a word");
      ASSERT_TRUE(WriteParts(dir.path(), 7, 2, other ? "another word" : "a word").ok());
      ASSERT_TRUE(WriteParts(dir.path(), 9).ok());  // somebody has put it there
    }
    Result<CheckpointFolder> next = Own(dir.path());
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_EQ(OpenCheckpoint(dir.path(), CheckpointName(7)).ok(), other);
    EXPECT_TRUE(OpenCheckpoint(dir.path(), CheckpointName(5)).ok());
    EXPECT_TRUE(OpenCheckpoint(dir.path(), CheckpointName(9)).ok());
  }
}

TEST(CheckpointFolderTest, WhatWasGivenUpIsDeletedAndOthersAreNot) {
  const TempDir dir;
  {
    Result<CheckpointFolder> folder = Own(dir.path());
    ASSERT_TRUE(folder.ok());
    folder->BeginSave(5, "save 5");
    Save(*folder, 5);
    ASSERT_TRUE(WriteParts(dir.path(), 6, 2, "somebody's").ok());
    folder->BeginSave(6, "save 6");
    folder->GiveUp();
    folder->BeginSave(7, "save 7");
    ASSERT_TRUE(WriteParts(dir.path(), 7, 2, "save 7").ok());
    const std::string temporary = dir.path() + "/model.ckpt-7-00001-of-00002.safetensors.tmp.1.0";
    PutFileText(temporary, "half");
    folder->GiveUp();
    EXPECT_FALSE(OpenCheckpoint(dir.path(), CheckpointName(7)).ok());
    EXPECT_FALSE(std::filesystem::exists(temporary));
    // By a process of another host that has not heard of it.
    ASSERT_TRUE(WriteParts(dir.path(), 7, 2, "save 7").ok());
    folder->BeginSave(8, "save 8");
    EXPECT_FALSE(OpenCheckpoint(dir.path(), CheckpointName(7)).ok());
    folder->GiveUp();
    const Status taken = Own(dir.path()).status();
    EXPECT_EQ(taken.code(), Code::kAlreadyExists);
    EXPECT_THAT(taken.message(), HasSubstr(std::to_string(::getpid())));
    EXPECT_EQ(taken.message().find("save"), std::string::npos);
  }
  ASSERT_TRUE(Own(dir.path()).ok());
  EXPECT_TRUE(OpenCheckpoint(dir.path(), CheckpointName(5)).ok());
  EXPECT_TRUE(OpenCheckpoint(dir.path(), CheckpointName(6)).ok());
}

}  // namespace
}  // namespace passel
