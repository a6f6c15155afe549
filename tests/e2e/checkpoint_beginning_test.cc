// What a job begins with, when its folder has something already: no checkpoint of another training
// is lost, and none of this one.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/checkpoint_folder.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

class CheckpointBeginningTest : public ::testing::Test {
 protected:
  std::string Folder(const std::string& name) { return sandbox_.dir().path() + "/" + name; }
  std::string SetOf(const std::string& name, int step) {
    return fmt::format("{}/model.ckpt-{}", Folder(name), step);
  }
  // A job of one process.
  Outcome Train(int steps, const std::string& folder, const std::vector<std::string>& more = {}) {
    return sandbox_.Run(sandbox_.Train(
        With({"--hidden_units=16", "--batch_size=20", "--ps=0", "--workers=1",
              fmt::format("--train_steps={}", steps), "--checkpoint_dir=" + Folder(folder)},
             more)));
  }
  void Must(const Outcome& outcome) { ASSERT_EQ(outcome.code, 0) << outcome.err; }
  // All files of a folder but who owns it.
  std::map<std::string, std::string> Contents(const std::string& folder) {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::directory_iterator(Folder(folder))) {
      const std::string name = entry.path().filename();
      if (name != ".owner") contents[name] = ReadText(entry.path());
    }
    return contents;
  }
  void Break(const std::string& path) {
    std::string bytes = ReadText(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    WriteText(path, bytes);
  }
  Sandbox sandbox_;
};

TEST_F(CheckpointBeginningTest, APathIsRefusedWhereAnotherTrainingHasLaterCheckpoints) {
  Must(Train(20, "a"));
  Must(Train(10, "b"));
  Must(Train(40, "b"));
  Must(Train(20, "c"));
  const auto before = Contents("b");
  // Of the very same step, too.
  for (const char* folder : {"b", "c"}) {
    for (const int steps : {40, 60}) {
      const std::string error = OnlyError(Train(steps, folder, {"--resume=" + SetOf("a", 20)}));
      EXPECT_THAT(error, AllOf(HasSubstr("--resume " + SetOf("a", 20) + " is of global step 20"),
                               HasSubstr(Folder(folder) + " has checkpoints from there on"),
                               HasSubstr("or name another --checkpoint_dir")));
    }
  }
  // Back within the folder: nowhere but in another one.
  EXPECT_THAT(OnlyError(Train(40, "b", {"--resume=" + SetOf("b", 10)})),
              HasSubstr("omit --resume to go on from model.ckpt-40, or name another"));
  EXPECT_EQ(Contents("b"), before);
  Must(Train(40, "d", {"--resume=" + SetOf("b", 10)}));
  EXPECT_TRUE(OpenCheckpoint(Folder("d"), "model.ckpt-40").ok());
  // One without later ones takes it, and so does one whose newest it is.
  const Outcome older = Train(60, "c", {"--resume=" + Folder("b")});
  Must(older);
  EXPECT_THAT(older.err, AllOf(HasSubstr("goes on from " + SetOf("b", 40)),
                               HasSubstr("has checkpoints of another training, up to model.ckpt-20"
                                         ": they count as older ones")));
  Must(Train(50, "b", {"--resume=" + SetOf("b", 40)}));
  EXPECT_TRUE(OpenCheckpoint(Folder("b"), "model.ckpt-50").ok());
}

TEST_F(CheckpointBeginningTest, TheSameCommandWithAPathGoesOnWithItsOwn) {
  Must(Train(10, "a"));
  Must(Train(20, "a"));
  const std::vector<std::string> from = {"--resume=" + SetOf("a", 20)};
  // Ended before its first step.
  const Outcome first = Train(20, "r", from);
  Must(first);
  EXPECT_THAT(first.err, HasSubstr("goes on from " + SetOf("a", 20)));
  ASSERT_TRUE(OpenCheckpoint(Folder("r"), "model.ckpt-20").ok());
  const auto goes_on = [&](int steps, int former, const std::vector<std::string>& more) {
    const Outcome outcome = Train(steps, "r", more);
    Must(outcome);
    EXPECT_THAT(outcome.err, HasSubstr("goes on from " + SetOf("r", former) + ", global step"));
    return outcome.err;
  };
  EXPECT_THAT(goes_on(30, 20, from),
              HasSubstr(Folder("r") + " was begun with " + SetOf("a", 20) +
                        ", and has gone on since: its newest checkpoint is used"));
  goes_on(40, 30, from);
  goes_on(50, 40, {});  // what it was begun with is not forgotten
  goes_on(60, 50, from);
  EXPECT_THAT(OnlyError(Train(70, "r", {"--resume=" + SetOf("a", 10)})),
              HasSubstr("that were not begun with it"));
  const Outcome unsaved = sandbox_.Run(sandbox_.Train(
      With({"--hidden_units=16", "--batch_size=20", "--ps=0", "--workers=1", "--train_steps=25"},
           from)));
  Must(unsaved);
  EXPECT_THAT(unsaved.err, HasSubstr("saves no checkpoints: that takes --checkpoint_dir"));
}

TEST_F(CheckpointBeginningTest, WhereNoCheckpointIsWholeNothingBeginsUnasked) {
  Must(Train(20, "c"));
  Must(Train(40, "c"));
  Must(Train(10, "other"));
  for (const auto& [name, bytes] : Contents("c")) {
    if (name.starts_with("model")) Break(Folder("c") + "/" + name);
  }
  const auto before = Contents("c");
  for (int start = 0; start < 2; ++start) {
    const Outcome outcome = Train(60, "c");
    EXPECT_THAT(OnlyError(outcome), HasSubstr("has no checkpoint that is whole: use --resume "
                                              "never to begin anew there"));
    for (const auto& [name, bytes] : before) {
      if (!name.starts_with("model")) continue;
      EXPECT_THAT(outcome.err, HasSubstr(name + ": tensor"));
    }
    EXPECT_THAT(OnlyError(Train(60, "c", {"--resume=" + SetOf("c", 20)})),
                HasSubstr("changed since it was written"));
    EXPECT_EQ(Contents("c"), before);
  }
  const Outcome anew = Train(40, "c", {"--resume=never"});
  Must(anew);
  EXPECT_THAT(anew.err, Not(HasSubstr("goes on from")));
  EXPECT_TRUE(OpenCheckpoint(Folder("c"), "model.ckpt-40").ok());
  EXPECT_EQ(Contents("c")["model.ckpt-20.safetensors.corrupt"],
            before.at("model.ckpt-20.safetensors"));
  EXPECT_THAT(OnlyError(Train(60, "c", {"--resume=never"})), HasSubstr("empty that one, or omit"));
}

TEST_F(CheckpointBeginningTest, WhatNoIndexNamesIsNotOverwrittenByAJobThatBeginsAnew) {
  Must(Train(40, "c"));
  for (const char* text : {"", "garbage\n"}) {
    WriteText(Folder("c") + "/checkpoint", text);
    EXPECT_THAT(OnlyError(Train(60, "c")),
                HasSubstr("restore it, or delete it and name the checkpoint to go on from"));
    fs::remove(Folder("c") + "/checkpoint");
    const auto before = Contents("c");
    for (const char* resume : {"auto", "never"}) {
      EXPECT_THAT(OnlyError(Train(40, "c", {fmt::format("--resume={}", resume)})),
                  AllOf(HasSubstr("model.ckpt-40, and no index that names"),
                        HasSubstr("go on with --resume " + SetOf("c", 40))));
    }
    EXPECT_EQ(Contents("c"), before);
    // As it says; and from then on the index names it.
    Must(Train(40, "c", {"--resume=" + SetOf("c", 40)}));
    EXPECT_THAT(Train(40, "c").err, HasSubstr("goes on from " + SetOf("c", 40)));
  }
}

TEST_F(CheckpointBeginningTest, ASetThatSomebodyHasPutThereKeepsItsName) {
  Must(Train(20, "a"));
  Must(Train(40, "b"));
  const std::string there = SetOf("a", 40) + ".safetensors";
  fs::copy(SetOf("b", 40) + ".safetensors", there);
  const std::string bytes = ReadText(there);
  const Outcome met = Train(40, "a");
  EXPECT_EQ(met.code, 1) << met.err;
  EXPECT_THAT(met.err,
              AllOf(HasSubstr("has model.ckpt-40, which no index names, later than what this job"),
                    HasSubstr("the last checkpoint was not saved to"),
                    HasSubstr(SetOf("a", 40) + " is there, and this job has not saved it")));
  EXPECT_EQ(ReadText(there), bytes);
  Must(Train(50, "a"));
  EXPECT_EQ(ReadText(there), bytes);
}

TEST_F(CheckpointBeginningTest, AnIndexThatNamesAnOlderOneAsTheNewestGoesBackNowhere) {
  Must(Train(40, "c"));
  Must(Train(60, "c"));
  const std::string index = ReadText(Folder("c") + "/checkpoint");
  const std::string first = "model_checkpoint_path: \"model.ckpt-60\"";
  ASSERT_TRUE(index.starts_with(first)) << index;
  WriteText(Folder("c") + "/checkpoint",
            "model_checkpoint_path: \"model.ckpt-40\"" + index.substr(first.size()));
  EXPECT_THAT(OnlyError(Train(60, "c")),
              AllOf(HasSubstr("has later ones, up to model.ckpt-60"), HasSubstr("to go back")));
  Must(Train(60, "d", {"--resume=" + SetOf("c", 40)}));
  Must(Train(70, "c", {"--resume=" + SetOf("c", 60)}));
  EXPECT_THAT(Train(70, "c").err, HasSubstr("goes on from " + SetOf("c", 70)));
}

TEST_F(CheckpointBeginningTest, AFileOfValuesIsNothingToGoOnFrom) {
  const std::string saved = Folder("m.safetensors");
  Must(Train(10, "c", {"--save=" + saved}));
  EXPECT_THAT(OnlyError(Train(20, "d", {"--resume=" + saved})),
              AllOf(HasSubstr(saved + " is no checkpoint, but a file of values, as --save writes"),
                    HasSubstr("begin with the values by --init=" + saved)));
  const Outcome begun = Train(20, "d", {"--init=" + saved});
  Must(begun);
  EXPECT_THAT(begun.err, Not(HasSubstr("is not used")));
  const Outcome again = Train(30, "d", {"--init=" + saved});
  Must(again);
  EXPECT_THAT(again.err,
              HasSubstr("--init " + saved + " is not used: this job goes on from a checkpoint"));
}

TEST_F(CheckpointBeginningTest, OtherDataAreNamedAndTheSameElsewhereAreNot) {
  Must(Train(10, "c", {"--mode=hogwild", "--learning_rate=0.001", "--beta1=0.9"}));
  std::vector<std::string> flags =
      sandbox_.Train({"--hidden_units=16", "--batch_size=20", "--ps=0", "--workers=1",
                      "--checkpoint_dir=" + Folder("c")});
  const std::string option = "--data_dir=", data = Folder("data");
  const auto dir =
      std::ranges::find_if(flags, [&](const auto& flag) { return flag.starts_with(option); });
  ASSERT_NE(dir, flags.end());
  const std::string former = dir->substr(option.size());
  fs::copy(former, data, fs::copy_options::recursive);
  *dir = option + data;
  const Outcome same = sandbox_.Run(With(flags, {"--train_steps=20"}));
  Must(same);
  EXPECT_THAT(same.err, AllOf(HasSubstr("goes on from"), Not(HasSubstr("unlike then"))));
  *dir = "--fake_data";
  const Outcome other = sandbox_.Run(With(flags, {"--train_steps=30"}));
  Must(other);
  EXPECT_THAT(other.err,
              HasSubstr("; unlike then: the data of fake_data (was other data, of " + data + ")"));
}

// Fewer workers for one life, then as many as before: each goes on where it was, and the speed
// of a report is of its own steps.
TEST_F(CheckpointBeginningTest, WorkersThatAreAwayForOneLifeKeepTheirPlaces) {
  const std::string report = sandbox_.dir().File("report.json");
  const auto life = [&](int workers, int steps) {
    Must(sandbox_.Run(sandbox_.Train({"--hidden_units=16", "--batch_size=20", "--mode=barrier",
                                      "--ps=1", fmt::format("--workers={}", workers),
                                      fmt::format("--train_steps={}", steps),
                                      "--checkpoint_dir=" + Folder("a"), "--report=" + report})));
    return nlohmann::json::parse(ReadText(report));
  };
  life(3, 40);
  const nlohmann::json fewer = life(2, 60);
  EXPECT_GT(fewer["steps_per_second"].get<double>(), 0);
  EXPECT_EQ(fewer["local_steps"].get<int>(), 120);
  const nlohmann::json again = life(3, 80);
  EXPECT_EQ(again["workers"][2]["local_steps"].get<int>(), 60);
  EXPECT_EQ(again["local_steps"].get<int>(), 220);
}

// A slice of a larger variable is not that variable.
TEST_F(CheckpointBeginningTest, ValuesOfAnotherShapeAreNotTakenFromACheckpoint) {
  Must(Train(20, "wide"));
  const Outcome narrow =
      sandbox_.Run(sandbox_.Train({"--hidden_units=8", "--batch_size=20", "--ps=0", "--workers=1",
                                   "--train_steps=5", "--init=" + Folder("wide")}));
  EXPECT_EQ(narrow.code, 0) << narrow.err;
  EXPECT_THAT(narrow.err,
              AllOf(HasSubstr("hid_b: of shape [16] rather than [8]: has first values of its own"),
                    HasSubstr("sm_w: of shape [16, 10] rather than [8, 10]"),
                    HasSubstr("sm_b: taken from there")));
}

}  // namespace
}  // namespace passel::testing
