// Jobs that end, are killed, or find something wrong, and go on from their checkpoints.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <thread>

#include "io/checked_tensors.h"
#include "io/checkpoint_folder.h"
#include "support/file_text.h"
#include "support/hand_started.h"
#include "train/checkpoint_set.h"
#include "train/checkpoint_words.h"
#include "train/saved_model.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

const std::vector<std::string> kSmall = {"--hidden_units=16", "--batch_size=20"};

std::string Folder(Sandbox& sandbox) { return sandbox.dir().path() + "/checkpoints"; }

std::vector<std::vector<float>> Values(const std::string& path) {
  const Result<SavedModel> model = LoadModel(path);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return model.ok() ? model->values : std::vector<std::vector<float>>();
}

std::int64_t NewestStep(const std::string& folder) {
  const Result<CheckpointSet> set = CheckpointSet::OpenNewest(folder);
  EXPECT_TRUE(set.ok()) << set.status().ToString();
  return set.ok() ? set->global_step() : -1;
}

// The kernel kills the tasks of a supervisor that was killed.
void AwaitEnd(Sandbox& sandbox) {
  for (int look = 0; look < 500 && !sandbox.Processes().empty(); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(sandbox.Processes().empty());
}

// Stopped at half of the steps.
void ResumeOnOneOfThreePs(int steps) {
  Sandbox sandbox;
  const std::string whole = sandbox.dir().path() + "/whole.safetensors";
  const std::string resumed = sandbox.dir().path() + "/resumed.safetensors";
  const auto job = [&](const std::vector<std::string>& more, int last) {
    const Outcome outcome = sandbox.Run(
        sandbox.Train(With(
            With(kSmall, {"--mode=barrier", "--workers=4", fmt::format("--train_steps={}", last)}),
            more)),
        300);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  job({"--ps=3", "--save=" + whole}, steps);
  const int half = steps / 2;
  const std::string folder = "--checkpoint_dir=" + Folder(sandbox);
  const Outcome first = job({"--ps=3", folder, fmt::format("--save_steps={}", steps / 12)}, half);
  const std::string name = fmt::format("{}/model.ckpt-{}", Folder(sandbox), half);
  EXPECT_THAT(first.err, HasSubstr("saved checkpoint " + name));
  const Outcome second = job({"--ps=1", "--resume=auto", folder, "--save=" + resumed}, steps);
  EXPECT_THAT(second.err, HasSubstr(fmt::format("goes on from {}, global step {}\n", name, half)));
  EXPECT_EQ(Values(whole), Values(resumed));
  EXPECT_EQ(Values(resumed), Values(Folder(sandbox)));
  EXPECT_EQ(NewestStep(Folder(sandbox)), steps);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(CheckpointTest, ResumedOnOneOfThreePsTrainsWhatAnUndisturbedJobTrains) {
  ResumeOnOneOfThreePs(600);
}
TEST(SlowCheckpointTest, ResumedAtStep5000TrainsWhatAnUndisturbedJobTrains) {
  ResumeOnOneOfThreePs(10'000);
}

// A checkpoint that is made while all wait between two steps.
TEST(CheckpointTest, KilledInTheMiddleAJobInRoundsEndsWithTheSameBits) {
  Sandbox sandbox;
  const std::string whole = sandbox.dir().path() + "/whole.safetensors";
  const std::string resumed = sandbox.dir().path() + "/resumed.safetensors";
  const auto flags = sandbox.Train(With(kSmall, {"--mode=barrier", "--workers=3", "--ps=2",
                                                 "--train_steps=3000", "--slow_worker=0:1ms"}));
  ASSERT_EQ(sandbox.Run(With(flags, {"--save=" + whole})).code, 0);
  const auto checkpointed =
      With(flags, {"--checkpoint_dir=" + Folder(sandbox), "--save_steps=100", "--save=" + resumed});
  for (int life = 0; life < 2; ++life) {
    Program program = sandbox.Start(checkpointed);
    ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
    ASSERT_TRUE(sandbox.Advances(250)) << program.Err();
    program.Signal(SIGKILL);
    program.Wait();
    AwaitEnd(sandbox);
  }
  const std::int64_t newest = NewestStep(Folder(sandbox));
  EXPECT_GT(newest, 0);
  EXPECT_LT(newest, 3000);
  const Outcome outcome = sandbox.Run(checkpointed);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("model.ckpt-{}, global step", newest)));
  EXPECT_EQ(Values(whole), Values(resumed));
}

TEST(CheckpointTest, AJobThatIsFinishedSaysSoAndChangesNothing) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("report");
  const auto train =
      sandbox.Train(With(kSmall, {"--train_steps=60", "--ps=0", "--workers=1",
                                  "--checkpoint_dir=" + Folder(sandbox), "--report=" + report}));
  ASSERT_EQ(sandbox.Run(train).code, 0);
  EXPECT_TRUE(ReadJson(report)["checkpoints"]["was_finished"].is_null());
  const std::int64_t step = NewestStep(Folder(sandbox));
  const auto values = Values(Folder(sandbox));
  const Outcome again = sandbox.Run(train);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err,
              AllOf(HasSubstr("is of a job that is finished: its global step 60"),
                    HasSubstr("raise"), Not(HasSubstr("steps/s")), Not(HasSubstr("loss"))));
  EXPECT_THAT(again.out, AllOf(HasSubstr("no step was made; the checkpoint had 60 global steps\n"),
                               Not(HasSubstr("steps/s"))));
  const nlohmann::json said = ReadJson(report);
  EXPECT_EQ(said["checkpoints"]["was_finished"], true);
  EXPECT_EQ(said["curve"].size(), 0u);
  EXPECT_THAT(said["notes"].dump(), HasSubstr("is of a job that is finished"));
  EXPECT_EQ(NewestStep(Folder(sandbox)), step);
  EXPECT_EQ(Values(Folder(sandbox)), values);
}

TEST(CheckpointTest, ValuesThatAreNotFiniteReplaceNone) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    const std::vector<std::string> flags = {
        "--hidden_units=16", "--batch_size=1000", "--loss=sum",
        "--optimizer=sgd",   "--mode=" + mode,    "--checkpoint_dir=" + Folder(sandbox)};
    ASSERT_EQ(
        sandbox.Run(sandbox.Train(With(flags, {"--train_steps=5", "--learning_rate=1e-6"}))).code,
        0);
    const std::int64_t step = NewestStep(Folder(sandbox));
    const Outcome outcome =
        sandbox.Run(sandbox.Train(With(flags, {"--train_steps=1000", "--learning_rate=8e37"})));
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the last checkpoint was not saved"));
    EXPECT_THAT(outcome.err, ContainsRegex("not finite.*: lower --learning_rate"));
    EXPECT_EQ(NewestStep(Folder(sandbox)), step);
    // Values that are finite, and give no finite loss.
    const Outcome huge =
        sandbox.Run(sandbox.Train(With(flags, {"--train_steps=1000", "--learning_rate=1e25"})));
    EXPECT_EQ(huge.code, 1) << huge.err;
    EXPECT_THAT(huge.err, HasSubstr("the last checkpoint was not saved"));
    EXPECT_THAT(huge.err, HasSubstr("was not finite at global step "));
    EXPECT_EQ(NewestStep(Folder(sandbox)), step);
  }
}

TEST(CheckpointTest, WhatChangesTheMathematicsIsNamedInOneLine) {
  Sandbox sandbox;
  const std::string folder = "--checkpoint_dir=" + Folder(sandbox);
  const auto run = [&](const std::vector<std::string>& flags) {
    return sandbox.Run(sandbox.Train(With(With(kSmall, flags), {folder})));
  };
  ASSERT_EQ(run({"--train_steps=40"}).code, 0);
  const Outcome other = run({"--train_steps=80", "--learning_rate=0.125", "--workers=1"});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("; unlike then: --learning_rate 0.125 (was its default), "
                                   "1 worker (was 2)\n"));
  // What makes the slot variables mean something else is refused.
  const std::string refused = OnlyError(run({"--train_steps=120", "--optimizer=momentum"}));
  EXPECT_THAT(refused, AllOf(HasSubstr("cannot go on from"), HasSubstr("--init=")));
  const std::string model = OnlyError(sandbox.Run(
      sandbox.Train({"--batch_size=20", "--hidden_units=17", "--train_steps=120", folder})));
  EXPECT_THAT(model, AllOf(HasSubstr("cannot go on from"), HasSubstr("hid_")));
  const std::string never = OnlyError(run({"--train_steps=120", "--resume=never"}));
  EXPECT_THAT(never, AllOf(HasSubstr("has checkpoints"), HasSubstr("omit --resume")));
  EXPECT_GE(NewestStep(Folder(sandbox)), 80);
  // A path that goes into another folder is not begun anew by that.
  const Outcome done =
      sandbox.Run(sandbox.Train(With(kSmall, {"--train_steps=40", "--resume=" + Folder(sandbox),
                                              "--checkpoint_dir=" + Folder(sandbox) + "2"})));
  EXPECT_THAT(done.err, HasSubstr("raise that to go on, or leave --resume out to begin anew"));
}

TEST(CheckpointTest, AModeThatWasChangedWhileItRanIsNamed) {
  Sandbox sandbox;
  const std::vector<std::string> train =
      sandbox.Train(With(kSmall, {"--mode=barrier", "--train_steps=100000000",
                                  "--checkpoint_dir=" + Folder(sandbox)}));
  Program first = sandbox.Start(train);
  ASSERT_TRUE(sandbox.AwaitStep(20, 30)) << first.Err();
  EXPECT_EQ(sandbox.Run({"ctl", "set-mode", sandbox.job(), "hogwild"}).code, 0);
  EXPECT_EQ(sandbox.Interrupt(first).code, 130);
  Program then = sandbox.Start(train);
  EXPECT_TRUE(then.WaitFor("; unlike then: mode barrier (was hogwild)\n")) << then.Err();
  EXPECT_EQ(sandbox.Interrupt(then).code, 130);
}

TEST(CheckpointTest, InitTakesTheValuesAloneAndSaysWhichMatched) {
  Sandbox sandbox;
  const std::string saved = sandbox.dir().path() + "/former.safetensors";
  ASSERT_EQ(sandbox.Run(sandbox.Train(With(kSmall, {"--train_steps=50", "--save=" + saved}))).code,
            0);
  // Steps that are too small to change a float.
  const std::string begun = sandbox.dir().path() + "/begun.safetensors";
  const Outcome outcome = sandbox.Run(
      sandbox.Train(With(kSmall, {"--train_steps=50", "--optimizer=momentum", "--init=" + saved,
                                  "--learning_rate=1e-30", "--save=" + begun})));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("hid_w: taken from there"));
  EXPECT_EQ(Values(begun), Values(saved));
  const Outcome other = sandbox.Run(sandbox.Train(
      {"--hidden_units=17", "--batch_size=20", "--train_steps=10", "--init=" + saved}));
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("hid_w: of shape [784, 16] rather than [784, 17]"),
                               HasSubstr("sm_b: taken from there")));
  // What has no checksums may have anything.
  const std::string plain = sandbox.dir().path() + "/plain.safetensors";
  ASSERT_EQ(sandbox.Run({"ckpt", "export", saved, plain}).code, 0);
  std::string text = test::FileText(plain);
  text.replace(text.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));  // NaN
  WriteText(plain, text);
  const Outcome nan =
      sandbox.Run(sandbox.Train(With(kSmall, {"--train_steps=5", "--init=" + plain})));
  EXPECT_THAT(nan.err, AllOf(HasSubstr("that are not finite: training will fail"),
                             HasSubstr("--init " + plain + " has values of ")));
}

TEST(CheckpointTest, KilledAtAnyPointOfASaveTheCheckpointBeforeIsThere) {
  for (const std::string point :
       {"checkpoint.begin", "copy.met", "checkpoint.written", "checkpoint.committed"}) {
    SCOPED_TRACE(point);
    Sandbox sandbox;
    const auto train =
        sandbox.Train(With(kSmall, {"--mode=barrier", "--ps=2", "--train_steps=100000000",
                                    "--checkpoint_dir=" + Folder(sandbox), "--save_steps=40"}));
    sandbox.SetEnv("PASSEL_FAILPOINT", point + ":3:kill");
    Program program = sandbox.Start(train);
    const auto end = program.Wait();
    ASSERT_TRUE(end.has_value()) << program.Err();
    EXPECT_TRUE(end->signalled && end->code == SIGKILL) << program.Err();
    AwaitEnd(sandbox);
    const std::int64_t newest = NewestStep(Folder(sandbox));
    sandbox.SetEnv("PASSEL_FAILPOINT", "");
    Program again = sandbox.Start(train);
    EXPECT_TRUE(again.WaitFor(fmt::format("model.ckpt-{}, global step", newest))) << again.Err();
    ASSERT_TRUE(sandbox.AwaitStep(newest + 50)) << again.Err();
    EXPECT_EQ(sandbox.Interrupt(again).code, 130);  // and nothing is left of the save before
  }
}

// A set without its index does not exist.
TEST(CheckpointTest, WhatASaveThatWasKilledHasLeftGoesWithTheNextJob) {
  Sandbox sandbox;
  const auto train = sandbox.Train(
      With(kSmall, {"--ps=2", "--train_steps=100000000", "--checkpoint_dir=" + Folder(sandbox)}));
  sandbox.SetEnv("PASSEL_FAILPOINT", "checkpoint.written:1:kill");
  Program program = sandbox.Start(train);
  ASSERT_TRUE(program.Wait().has_value());
  AwaitEnd(sandbox);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(Folder(sandbox))) {
    if (entry.path().extension() == ".safetensors") left.push_back(entry.path());
  }
  EXPECT_EQ(left.size(), 2u);
  sandbox.SetEnv("PASSEL_FAILPOINT", "checkpoint.begin:1:sleep3000");
  Program again = sandbox.Start(train);
  ASSERT_TRUE(sandbox.AwaitStep(20)) << again.Err();
  for (const std::string& path : left) EXPECT_FALSE(fs::exists(path)) << path;
  again.Signal(SIGKILL);
  again.Wait();
  AwaitEnd(sandbox);
}

// What is saved while others train is copied to memory first, and says of which steps it is.
TEST(CheckpointTest, SavedWhileOthersTrainItSaysOfWhichStepsItIs) {
  Sandbox sandbox;
  Program program = sandbox.Start(
      sandbox.Train(With(kSmall, {"--mode=hogwild", "--ps=2", "--train_steps=100000000",
                                  "--checkpoint_dir=" + Folder(sandbox), "--save_steps=200"})));
  ASSERT_TRUE(sandbox.AwaitStep(500)) << program.Err();
  ASSERT_TRUE(program.WaitFor("; copied in ")) << program.Err();
  program.Signal(SIGKILL);
  program.Wait();
  AwaitEnd(sandbox);
  const std::int64_t newest = NewestStep(Folder(sandbox));
  const Result<std::vector<TensorFile>> parts =
      OpenCheckpoint(Folder(sandbox), CheckpointName(newest));
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  for (const TensorFile& part : *parts) {
    EXPECT_EQ(part.Word("exact"), "false");
    EXPECT_GE(std::atoll(part.Word(kLastStepKey).c_str()), newest);
  }
}

// Of the last checkpoint: the first signal bounds it, the second one ends it.
TEST(CheckpointTest, ASecondSignalEndsTheLastSaveAndTheFormerCheckpointStays) {
  Sandbox sandbox;
  const auto train = sandbox.Train(
      With(kSmall, {"--ps=2", "--train_steps=100000000", "--checkpoint_dir=" + Folder(sandbox)}));
  // One by steps, too, may be of the last step: then there is nothing to save at the end.
  sandbox.SetEnv("PASSEL_FAILPOINT", "checkpoint.end:1:stop");
  Program program = sandbox.Start(train);
  ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
  ASSERT_TRUE(sandbox.AwaitStep(100)) << program.Err();
  program.Signal(SIGINT);
  const std::string stat = fmt::format("/proc/{}/stat", program.pid());
  const Deadline limit = Deadline::After(Scaled(20.0));
  while (ReadText(stat).find(") T ") == std::string::npos) {  // it is about to save
    ASSERT_FALSE(limit.Expired()) << program.Err();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.Signal(SIGINT);
  program.Signal(SIGCONT);
  const Outcome end = sandbox.Finish(program);
  EXPECT_EQ(end.code, 130) << end.err;
  EXPECT_THAT(end.err, HasSubstr("the last checkpoint was not saved to"));
  EXPECT_GE(NewestStep(Folder(sandbox)), 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(CheckpointTest, AnInterruptedJobSavesItsLastStep) {
  Sandbox sandbox;
  const auto train = sandbox.Train(
      With(kSmall, {"--train_steps=100000000", "--checkpoint_dir=" + Folder(sandbox)}));
  Program program = sandbox.Start(train);
  // The first one is copied while others train, and might be the last if it came that late.
  ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
  const std::int64_t first = NewestStep(Folder(sandbox));
  ASSERT_TRUE(sandbox.AwaitStep(first + 100)) << program.Err();
  const Outcome end = sandbox.Interrupt(program);
  const std::int64_t newest = NewestStep(Folder(sandbox));
  EXPECT_GE(newest, first + 100);
  EXPECT_THAT(end.err, HasSubstr(fmt::format("/model.ckpt-{} in", newest)));
  const Result<CheckpointSet> set = CheckpointSet::OpenNewest(Folder(sandbox));
  EXPECT_TRUE(set.ok() && set->words().exact) << end.err;
}

TEST(CheckpointTest, ASecondJobInTheFolderIsRefused) {
  Sandbox sandbox;
  const std::string folder = "--checkpoint_dir=" + Folder(sandbox);
  Program program = sandbox.Start(sandbox.Train(With(kSmall, {"--train_steps=100000000", folder})));
  ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
  const std::vector<std::string> files = sandbox.dir().List();
  const std::string owner = ReadText(Folder(sandbox) + "/.owner");
  Sandbox other;
  const std::string own = other.dir().path();
  const std::string error = OnlyError(other.Run(
      other.Train(With(kSmall, {folder, "--logs_dir=" + own + "/l", "--save=" + own + "/m",
                                "--report=" + own + "/r", "--summary_steps=1"}))));
  EXPECT_THAT(error, AllOf(HasSubstr("is the checkpoint folder of process"),
                           HasSubstr("stop it first, or name another")));
  // It has left nothing, here or there.
  EXPECT_EQ(sandbox.dir().List(), files);
  EXPECT_EQ(ReadText(Folder(sandbox) + "/.owner"), owner);
  EXPECT_EQ(other.dir().List(), std::vector<std::string>());
  EXPECT_EQ(other.Leftovers(), "");
  sandbox.Interrupt(program);
}

TEST(CheckpointTest, ABrokenNewestGivesWayToTheOneBefore) {
  Sandbox sandbox;
  const auto train = [&](int steps) {
    return sandbox.Run(
        sandbox.Train(With(kSmall, {"--mode=barrier", fmt::format("--train_steps={}", steps),
                                    "--save_steps=20", "--checkpoint_dir=" + Folder(sandbox)})));
  };
  ASSERT_EQ(train(30).code, 0);
  ASSERT_EQ(train(60).code, 0);
  const std::string newest = Folder(sandbox) + "/model.ckpt-60.safetensors";
  std::string bytes = ReadText(newest);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteText(newest, bytes);
  const Outcome outcome = train(80);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the checkpoint before it is used"),
                                 HasSubstr("goes on from " + Folder(sandbox) + "/model.ckpt-")));
  EXPECT_TRUE(fs::exists(newest + ".corrupt"));
  EXPECT_EQ(NewestStep(Folder(sandbox)), 80);
}

TEST(CheckpointTest, WhereNothingCanBeWrittenNothingBegins) {
  Sandbox sandbox;
  WriteText(sandbox.dir().path() + "/file", "x");
  const std::string error =
      OnlyError(sandbox.Run(sandbox.Train({"--checkpoint_dir=" + sandbox.dir().path() + "/file"})));
  EXPECT_THAT(error, HasSubstr(sandbox.dir().path() + "/file"));
  for (const std::string flag : {"--save_steps=5", "--save_secs=5", "--keep_checkpoints=2"}) {
    EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({flag}))),
                AllOf(HasSubstr(flag.substr(0, flag.find('='))), HasSubstr("--checkpoint_dir")));
  }
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--resume=/nowhere/model.ckpt-5"}))),
              HasSubstr("there is no such checkpoint"));
}

TEST(CheckpointTest, AFolderThatIsGoneCostsNoTraining) {
  Sandbox sandbox;
  Program program =
      sandbox.Start(sandbox.Train(With(kSmall, {"--train_steps=100000000", "--save_steps=50",
                                                "--checkpoint_dir=" + Folder(sandbox)})));
  ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
  fs::rename(Folder(sandbox), Folder(sandbox) + ".gone");  // at once: somebody writes there
  ASSERT_TRUE(program.WaitFor("no checkpoint was saved to")) << program.Err();
  EXPECT_TRUE(sandbox.Advances(100)) << program.Err();
  program.Signal(SIGINT);
  const Outcome end = sandbox.Finish(program);
  EXPECT_EQ(end.code, 130);
  EXPECT_THAT(end.err, HasSubstr("the last checkpoint was not saved to"));
}

TEST(CheckpointTest, AJobByHandGoesOnWhenAllOfItWasKilled) {
  Sandbox place;
  const std::string folder = Folder(place);
  const std::vector<std::string> flags =
      With(With(kSmall, kEndless), {"--checkpoint_dir=" + folder, "--save_steps=30"});
  {
    HandStarted job(2, 2, flags);
    job.StartAll();
    ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
    const std::int64_t first = NewestStep(folder);
    ASSERT_TRUE(job.sandbox().AwaitStep(first + 100)) << job["worker/0"].Err();
    for (int look = 0; look < 500 && NewestStep(folder) == first; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (const char* task : {"worker/0", "worker/1", "ps/0", "ps/1"}) job.Kill(task);
  }
  const std::int64_t newest = NewestStep(folder);
  EXPECT_GT(newest, 0);
  HandStarted job(1, 2, flags);
  job.StartAll();
  EXPECT_TRUE(job["worker/0"].WaitFor(fmt::format("model.ckpt-{}, global step", newest)))
      << job["worker/0"].Err();
  ASSERT_TRUE(job.sandbox().AwaitStep(newest + 50)) << job["worker/0"].Err();
  // The chief comes back: values are not rolled back, and saving goes on.
  job.Kill("worker/0");
  const std::int64_t step = job.sandbox().GlobalStep();
  job.Start("worker/0");
  ASSERT_TRUE(job.sandbox().AwaitStep(step + 100)) << job["worker/0"].Err();
  EXPECT_THAT(job["worker/0"].Err(), Not(HasSubstr("goes on from")));
  EXPECT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
  job.AskToStop();
  for (const char* task : {"worker/0", "worker/1", "ps/0"}) {
    EXPECT_EQ(job.Finish(task).code, 130) << task;
  }
}

// The step that a life of a job has said to have saved last.
std::int64_t SaidToBeSaved(const std::string& err) {
  const std::string name = "/model.ckpt-";
  const std::size_t last = err.rfind(name, err.rfind("saved checkpoint") + 400);
  EXPECT_NE(last, std::string::npos);
  return last == std::string::npos ? -1 : std::atoll(err.c_str() + last + name.size());
}

// Everything is killed again and again, and what the newest checkpoint has is looked at. Every
// other life saves all the time; of the rest it is known how far they were when --save_secs and the
// time of a save, `one_save` seconds at most, began to run.
void KillWhileItSaves(int kills, double one_save) {
  constexpr double kSaveSecs = 0.3;
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  std::map<std::string, std::unique_ptr<Sandbox>> places;
  std::map<std::string, std::int64_t> before;
  const std::vector<std::string> modes = {"hogwild", "locked", "barrier", "ssp"};
  for (int kill = 0; kill < kills; ++kill) {
    const std::string mode = modes[static_cast<std::size_t>(kill / 2) % modes.size()];
    const bool timed = kill % 2 == 1;
    SCOPED_TRACE(fmt::format("seed {}, kill {}, {}", seed, kill, mode));
    if (!places.contains(mode)) {
      places[mode] = std::make_unique<Sandbox>();
      before[mode] = -1;
    }
    Sandbox& sandbox = *places[mode];
    Program program = sandbox.Start(sandbox.Train(
        With(kSmall, {"--mode=" + mode, "--ps=2", "--train_steps=100000000",
                      "--checkpoint_dir=" + Folder(sandbox),
                      timed ? fmt::format("--save_secs={}", kSaveSecs) : "--save_steps=20"})));
    ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
    std::int64_t reached = 0;
    if (timed) {
      reached = sandbox.GlobalStep();
      ASSERT_GE(reached, 0) << program.Err();
      std::this_thread::sleep_for(Scaled(kSaveSecs + one_save));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    program.Signal(SIGKILL);
    program.Wait();
    AwaitEnd(sandbox);
    const std::int64_t newest = NewestStep(Folder(sandbox));
    ASSERT_GE(newest, SaidToBeSaved(program.Err())) << program.Err();
    ASSERT_GT(newest, before[mode]) << program.Err();
    ASSERT_GE(newest, reached) << program.Err();
    before[mode] = newest;
  }
}

TEST(CheckpointTest, KilledAtRandomInstantsTheNewestIsWholeAndNotOld) {
  KillWhileItSaves(6, 2);  // on a disk that others use
}
// PASSEL_TEST_KILLS: how many.
TEST(SlowCheckpointTest, KilledAtRandomInstantsTheNewestIsWholeAndNotOld) {
  const char* const asked = std::getenv("PASSEL_TEST_KILLS");
  KillWhileItSaves(asked != nullptr ? std::atoi(asked) : 400, 0.5);
}

TEST(CheckpointTest, EpochsAreNotCountedInBatchesOfTwoSizes) {
  Sandbox sandbox;
  const auto job = [&](const std::vector<std::string>& more) {
    return sandbox.Run(
        sandbox.Train(With({"--hidden_units=16", "--checkpoint_dir=" + Folder(sandbox)}, more)));
  };
  ASSERT_EQ(job({"--batch_size=20", "--epochs=1"}).code, 0);
  const std::int64_t step = NewestStep(Folder(sandbox));
  EXPECT_THAT(OnlyError(job({"--batch_size=40", "--epochs=2"})),
              AllOf(HasSubstr("--epochs 2 cannot go on from"),
                    HasSubstr("--batch_size 40 (was 20)"), HasSubstr("--train_steps")));
  EXPECT_EQ(NewestStep(Folder(sandbox)), step);
  EXPECT_EQ(job({"--batch_size=20", "--epochs=2"}).code, 0);
  EXPECT_EQ(NewestStep(Folder(sandbox)), 2 * step);
  EXPECT_EQ(job({"--batch_size=40", fmt::format("--train_steps={}", 2 * step + 20)}).code, 0);
  EXPECT_GE(NewestStep(Folder(sandbox)), 2 * step + 20);
}

// With the checksums that belong to that.
void WriteInFormat(const std::string& format, const std::string& path) {
  const std::string bytes = ReadText(path);
  const auto file = ParseSafetensors(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  SafetensorsMetadata metadata = file->metadata;
  std::erase_if(metadata, [](const auto& word) { return word.first.starts_with("crc32"); });
  metadata[kFormatKey] = format;
  const Status written = WriteCheckedTensors(path, file->tensors, metadata);
  ASSERT_TRUE(written.ok()) << written.ToString();
}

// What cannot be gone on from ends with one sentence, and all is left as it was.
TEST(CheckpointTest, ARefusedCheckpointStaysAsItWas) {
  Sandbox sandbox;
  const std::string folder = "--checkpoint_dir=" + Folder(sandbox);
  ASSERT_EQ(sandbox.Run(sandbox.Train(With(kSmall, {"--train_steps=40", folder}))).code, 0);
  const std::int64_t step = NewestStep(Folder(sandbox));
  const std::string newest = fmt::format("{}/model.ckpt-{}", Folder(sandbox), step);
  const struct {
    const char* what;
    std::vector<std::string> flags;
    std::vector<std::string> says;
  } cases[] = {
      {"another model",
       {"--hidden_units=17"},
       {"cannot go on from", "hid_w", "[784,16]", "[784,17]"}},
      {"another optimizer",
       {"--optimizer=momentum", "--hidden_units=16"},
       {"cannot go on from", "momentum", "--init="}},
      {"not wanted", {"--hidden_units=16", "--resume=never"}, {"has checkpoints", "--resume"}},
      {"another one",
       {"--hidden_units=16", "--resume=" + Folder(sandbox) + "/model.ckpt-7"},
       {"model.ckpt-7", "is not there"}},
      {"a future version",
       {"--hidden_units=16"},
       {newest, "the format \"passel-3\" is of a newer passel than this"}},
  };
  const auto contents = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(Folder(sandbox))) {
      if (entry.path().filename() == ".owner") continue;  // says who was there last
      files[entry.path().filename()] = ReadText(entry.path());
    }
    return files;
  };
  for (const auto& [what, flags, says] : cases) {
    SCOPED_TRACE(what);
    if (what == std::string("a future version")) WriteInFormat("passel-3", newest + ".safetensors");
    const auto as_it_was = contents();
    const std::string error = OnlyError(
        sandbox.Run(sandbox.Train(With({"--batch_size=20", "--train_steps=80", folder}, flags))));
    for (const std::string& words : says) EXPECT_THAT(error, HasSubstr(words));
    EXPECT_EQ(contents(), as_it_was);
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

}  // namespace
}  // namespace passel::testing
