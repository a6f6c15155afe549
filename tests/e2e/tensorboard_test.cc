// The files of --logs_dir: what a job tells TensorBoard, over the lives of its chief.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "e2e/preset_run.h"
#include "io/checkpoint_folder.h"
#include "support/hand_started.h"
#include "support/program.h"
#include "support/read_events.h"
#include "support/reference_script.h"

namespace passel::testing {
namespace {

using test::EventFilesIn;
using test::ReadEvents;
using test::StepsOfTag;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr const char* kReader = PASSEL_SOURCE_DIR "/tests/unit/io/event_reference.py";

// Step of the first session log of that kind; -1: there is none.
std::int64_t SessionStep(const std::string& path, event::SessionLog::Status status) {
  std::size_t rest = 0;
  for (const event::Event& event : ReadEvents(path, &rest)) {
    if (event.session_log().status() == status) return event.step();
  }
  return -1;
}

TEST(TensorBoardTest, EachLifeOfTheChiefHasAFileAndTheyAreOneCurve) {
  Sandbox sandbox;
  const std::string logs = sandbox.dir().File("logs/run 1");
  Program train = sandbox.Start(
      sandbox.Train({"--ps=2", "--workers=2", "--max_restarts=2", "--train_steps=1500",
                     "--slow_worker=0:1ms,1:1ms", "--logs_dir=" + logs, "--summary_steps=50",
                     "--histogram_secs=0.05"}));
  const pid_t chief = sandbox.AwaitTask("worker", 0);
  ASSERT_GT(chief, 0);
  ASSERT_TRUE(sandbox.AwaitStep(200));
  ASSERT_EQ(::kill(chief, SIGKILL), 0);
  const Outcome outcome = sandbox.Finish(train);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> files = EventFilesIn(logs);
  ASSERT_THAT(files, SizeIs(2)) << outcome.err;
  // The other worker may have begun before.
  EXPECT_GE(SessionStep(files[0], event::SessionLog::START), 0);
  EXPECT_LT(SessionStep(files[0], event::SessionLog::START), 200);
  EXPECT_EQ(SessionStep(files[0], event::SessionLog::STOP), -1);
  EXPECT_GE(SessionStep(files[1], event::SessionLog::START), 200);
  EXPECT_GE(SessionStep(files[1], event::SessionLog::STOP), 1500);
  const std::vector<std::int64_t> steps = StepsOfTag(files[1], "loss");
  ASSERT_GT(steps.size(), 3u);
  for (std::size_t i = 1; i + 1 < steps.size(); ++i) EXPECT_GE(steps[i], steps[i - 1] + 50);
  for (const char* const tag : {"global_step/sec", "staleness", "dropped", "waiting", "accuracy",
                                "variables/hid_w", "gradients/sm_b"}) {
    EXPECT_FALSE(StepsOfTag(files[1], tag).empty()) << tag;
  }
}

// Their paths by their steps; each is told once.
std::map<std::int64_t, std::string> CheckpointsTold(const std::string& logs) {
  std::map<std::int64_t, std::string> told;
  for (const std::string& file : EventFilesIn(logs)) {
    for (const event::Event& event : ReadEvents(file)) {
      if (event.session_log().status() != event::SessionLog::CHECKPOINT) continue;
      EXPECT_TRUE(told.emplace(event.step(), event.session_log().checkpoint_path()).second);
      EXPECT_GT(event.wall_time(), 1.7e9);
    }
  }
  return told;
}

// The chief has ended when ps/0 saves what the other worker has trained.
TEST(TensorBoardTest, CheckpointsOfAJobByHandAreToldToTheLast) {
  HandStarted job(1, 2, {"--hidden_units=16", "--batch_size=20", "--start_wait=20"});
  const std::string logs = job.sandbox().dir().File("logs");
  const std::string folder = job.sandbox().dir().File("saved");
  const std::vector<std::string> flags = {"--logs_dir=" + logs, "--checkpoint_dir=" + folder};
  job.Start("ps/0", "", flags);
  job.Start("worker/0", "", With(flags, {"--train_steps=100"}));
  job.Start("worker/1", "", With(flags, {"--train_steps=600", "--slow_worker=1:2ms"}));
  job.ExpectEnd();
  const Result<CheckpointIndex> index = ReadCheckpointIndex(folder);
  ASSERT_TRUE(index.ok() && !index->kept.empty());
  EXPECT_EQ(index->kept.back().name, "model.ckpt-600");
  const auto told = CheckpointsTold(logs);
  for (const auto& entry : index->kept) {
    const std::int64_t step = *StepOfCheckpoint(entry.name);
    if (step > 0) {  // that one was there before the file
      EXPECT_TRUE(told.contains(step)) << entry.name;
    }
  }
}

TEST(TensorBoardTest, CheckpointsAreTold) {
  for (const std::string ps : {"--ps=0", "--ps=2"}) {
    SCOPED_TRACE(ps);
    Sandbox sandbox;
    const std::string logs = sandbox.dir().File("logs"), folder = sandbox.dir().File("saved");
    const Outcome outcome = sandbox.Run(sandbox.Train(
        {ps, "--workers=1", "--train_steps=600", "--slow_worker=0:1ms", "--logs_dir=" + logs,
         "--summary_steps=20", "--checkpoint_dir=" + folder, "--save_steps=100"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto told = CheckpointsTold(logs);
    EXPECT_GE(told.size(), 2u);
    EXPECT_TRUE(told.contains(600)) << "the one that is made when the chief has ended";
    for (const auto& [step, path] : told) {
      EXPECT_EQ(path, fmt::format("{}/model.ckpt-{}", folder, step));
      EXPECT_THAT(outcome.err, HasSubstr("saved checkpoint " + path + " in"));
    }
  }
}

TEST(TensorBoardTest, ItsOwnReaderFindsWhatAJobTold) {
  std::string output;
  if (const int status = test::RunReference(kReader, "check", &output); test::CannotRun(status)) {
    GTEST_SKIP() << "no Python with tensorboard (set PASSEL_TEST_PYTHON): " << output;
  }
  Sandbox sandbox;
  const std::string logs = sandbox.dir().File("logs/run 1");
  const Outcome outcome = sandbox.Run(
      sandbox.Train({"--ps=2", "--train_steps=300", "--logs_dir=" + logs, "--summary_steps=50"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  output.clear();
  ASSERT_EQ(test::RunReference(kReader, fmt::format("show '{}'", logs), &output), 0) << output;
  const auto shown = nlohmann::json::parse(output.substr(output.rfind("\n{") + 1));
  const auto loss = shown["scalars"]["loss"];
  EXPECT_EQ(loss.size(), StepsOfTag(EventFilesIn(logs).at(0), "loss").size());
  EXPECT_LT(loss.back()[1].get<double>(), loss.front()[1].get<double>());
  EXPECT_EQ(shown["histograms"]["variables/hid_w"].back()[1], 78400);
  EXPECT_EQ(shown["nodes"]["sm_w"][1], "/job:ps/task:1");
  EXPECT_THAT(shown["texts"]["variables"].get<std::string>(), HasSubstr("| hid_w | 784 x 100 |"));
}

TEST(TensorBoardTest, OneProcessAndAPresetWriteAsTheProgramDoes) {
  Sandbox sandbox;
  const std::string logs = sandbox.dir().File("logs");
  const Outcome outcome = sandbox.Run(
      sandbox.Train({"--ps=0", "--preset=monitored", "--train_steps=250", "--logs_dir=" + logs}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> files = EventFilesIn(logs);
  ASSERT_THAT(files, SizeIs(2));  // the other one tells of the last checkpoint
  // The first one may have been whole only when the last summary had been written.
  auto told = CheckpointsTold(logs);
  if (told.contains(0)) {
    EXPECT_THAT(told.extract(0).mapped(), HasSubstr("model.ckpt-0"));
  }
  EXPECT_THAT(told, ElementsAre(Pair(250, HasSubstr("model.ckpt-250"))));
  EXPECT_EQ(StepsOfTag(files[0], "loss"), (std::vector<std::int64_t>{1, 101, 201, 250}));
  EXPECT_EQ(StepsOfTag(files[0], "variables/hid_w"), (std::vector<std::int64_t>{1, 250}));
  EXPECT_THAT(ReadText(logs + "/graph.pbtxt"), HasSubstr("name: \"hid/MatMul\""));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(TensorBoardTest, WhereNothingCanBeWrittenTheJobTrainsAllTheSame) {
  Sandbox sandbox;
  const Outcome outcome =
      sandbox.Run(sandbox.Train({"--train_steps=100", "--logs_dir=/proc/passel/logs"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(CountMatches(outcome.err, ".*no summaries are written: .*/proc/passel/logs.*"), 1u)
      << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("test accuracy"));
}

}  // namespace
}  // namespace passel::testing
