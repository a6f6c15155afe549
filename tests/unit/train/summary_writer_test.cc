#include "train/summary_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "compute/cpu_backend.h"
#include "data/digits.h"
#include "store/open_store.h"
#include "support/failing_ops.h"
#include "support/function_hook.h"
#include "support/read_events.h"
#include "support/temp_dir.h"
#include "train/worker_loop.h"

namespace passel {
namespace {

using test::EventFilesIn;
using test::FunctionHook;
using test::ReadEvents;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::SizeIs;

using Steps = std::vector<std::int64_t>;

// What a file tells, by tags.
struct Told {
  std::map<std::string, std::map<std::int64_t, float>> scalars;
  std::map<std::string, std::map<std::int64_t, event::Histogram>> histograms;
  std::map<std::string, std::string> texts;
  std::vector<std::pair<event::SessionLog::Status, std::int64_t>> sessions;
  event::GraphDef graph;
  std::size_t scalars_given = 0;

  Steps StepsOf(const std::string& tag) const {
    Steps steps;
    for (const auto& [step, value] : scalars.at(tag)) steps.push_back(step);
    return steps;
  }
};

Told ReadTold(const std::string& path) {
  Told told;
  for (const event::Event& event : ReadEvents(path)) {
    if (event.has_session_log()) {
      told.sessions.emplace_back(event.session_log().status(), event.step());
    } else if (!event.graph_def().empty()) {
      EXPECT_TRUE(told.graph.ParseFromString(event.graph_def()));
    }
    for (const auto& value : event.summary().value()) {
      if (value.has_histo()) {
        told.histograms[value.tag()][event.step()] = value.histo();
      } else if (value.has_tensor()) {
        told.texts[value.tag()] = value.tensor().string_val(0);
      } else {
        told.scalars[value.tag()][event.step()] = value.simple_value();
        ++told.scalars_given;
      }
    }
  }
  return told;
}

// One worker that trains a small model on a few digits.
class SummaryWriterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const test::TempDir dir;
    ASSERT_TRUE(WriteGeneratedDigits(dir.path(), 300, 50, 1).ok());
    data_ = new OwnedDataset(OwnedDataset::Load(dir.path()).value());
  }
  static void TearDownTestSuite() { delete data_; }

  SummaryWriterTest() {
    config_ = DefaultModelConfig(ModelKind::kSoftmax);
    config_.inputs = kDigitPixels;
    config_.classes = 10;
    options_.train_steps = 20;
    options_.batch_size = 10;
    options_.seed = 1;
    summaries_.folder = dir_.path() + "/logs";
    summaries_.every_steps = 10;  // all events fit into the queue
    summaries_.learning_rate = 0.125;
    summaries_.places = {true, "sgd"};
  }

  void Open(int shards = 1, int parts = 1) {
    StorePlan plan;
    plan.optimizer.kind = OptimizerKind::kSgd;
    plan.optimizer.learning_rate = 0.125;
    PlacementOptions placement;
    if (parts > 1) placement.partitioner = Partitioner::FixedSize(parts);
    plan.variables = PlaceModel(config_, shards, placement).value();
    store_.reset();
    arena_ = InProcessArena::Create(plan).value();
    Reopen();
    ASSERT_TRUE(InitializeStore(config_, *layout_, *store_).ok());
  }
  void Reopen() {
    store_ = arena_->Open(0, {}).value();
    layout_.emplace(ModelLayout::Make(config_, store_->variables()).value());
    summaries_.workers = {&store_->counters()};
  }

  // Trains, with summaries; returns what the last file tells.
  Told Run(WorkerCallbacks callbacks = {}, FileOps& ops = FileOps::Real()) {
    const auto backend = CreateCpuBackend().value();
    const auto model = Model::Create(config_, *backend, 100).value();
    const DataSplit split = SplitValidation(**data_, 0).value();
    {
      const auto writer = SummaryWriter::Create(summaries_, config_, *layout_, *store_, ops);
      if (writer) callbacks.hooks.push_back(writer.get());
      const auto result = RunWorker(options_, callbacks, *model, *layout_, split, *store_);
      EXPECT_TRUE(result.ok()) << result.status().ToString();
      began_ = writer != nullptr;
    }
    const auto files = std::filesystem::is_directory(summaries_.folder)
                           ? EventFilesIn(summaries_.folder)
                           : std::vector<std::string>();
    std::size_t rest = 0;
    if (files.empty() || (ReadEvents(files.back(), &rest), rest > 0)) return {};
    return ReadTold(files.back());
  }

  static inline OwnedDataset* data_ = nullptr;
  const test::TempDir dir_;
  ModelConfig config_;
  WorkerOptions options_;
  SummaryOptions summaries_;
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_;
  std::optional<ModelLayout> layout_;
  bool began_ = false;
};

TEST_F(SummaryWriterTest, EveryHundredStepsTheFirstAtOnceAndOneAtTheEnd) {
  Open();
  options_.train_steps = 350;
  summaries_.every_steps = 100;
  std::map<std::int64_t, double> losses, accuracies;
  FunctionHook hook;
  hook.on_step = [&](const StepReport& step) {
    losses[step.outcome.global_step] = step.loss;
    accuracies[step.outcome.global_step] = step.accuracy;
  };
  const Told told = Run({.hooks = {&hook}});
  EXPECT_EQ(told.StepsOf("loss"), (Steps{1, 101, 201, 301, 350}));
  for (const auto& [step, loss] : told.scalars.at("loss")) {
    EXPECT_EQ(loss, static_cast<float>(losses.at(step))) << step;
  }
  EXPECT_EQ(told.scalars.at("accuracy").at(201), static_cast<float>(accuracies.at(201)));
  EXPECT_EQ(told.scalars.at("learning_rate").at(350), 0.125F);
  EXPECT_EQ(told.StepsOf("global_step/sec"), (Steps{101, 201, 301, 350}));
  EXPECT_GT(told.scalars.at("global_step/sec").at(101), 0);
  EXPECT_THAT(told.histograms, IsEmpty());
  EXPECT_THAT(told.sessions, ElementsAre(std::pair{event::SessionLog::START, 0},
                                         std::pair{event::SessionLog::STOP, 350}));
  // Of one worker in hogwild: nothing is stale, and nobody is waited for.
  EXPECT_EQ(told.scalars.at("staleness").at(350), 0);
  EXPECT_EQ(told.scalars.at("waiting").at(350), 0);
  EXPECT_EQ(told.scalars.at("dropped").at(350), 0);
  EXPECT_EQ(told.StepsOf("dropped").front(), 1);
  EXPECT_EQ(told.scalars.at("evaluation/accuracy").size(), 1u);
}

TEST_F(SummaryWriterTest, BySecondsTheStepAfterTheTimeIsOver) {
  Open();
  summaries_.every_steps = 0;
  summaries_.interval = std::chrono::seconds(5);
  options_.evaluate_at_end = false;
  ScopedFakeClock clock;
  WorkerCallbacks callbacks;
  callbacks.check = [&](bool*) -> Status {
    clock.AdvanceNs(1'000'000'000);
    return {};
  };
  // Of one step a second the sixth sees that it is time.
  EXPECT_EQ(Run(callbacks).StepsOf("loss"), (Steps{1, 7, 13, 19, 20}));
}

TEST_F(SummaryWriterTest, HistogramsAreInTheFirstSummaryAfterTheirOwnTime) {
  Open();
  summaries_.every_steps = 3;
  summaries_.histogram_interval = std::chrono::seconds(7);
  options_.evaluate_at_end = false;
  options_.train_steps = 14;
  ScopedFakeClock clock;
  WorkerCallbacks callbacks;
  callbacks.check = [&](bool*) -> Status {
    clock.AdvanceNs(1'000'000'000);
    return {};
  };
  const Told told = Run(callbacks);
  EXPECT_EQ(told.StepsOf("loss"), (Steps{1, 4, 7, 10, 13, 14}));
  EXPECT_THAT(told.histograms.at("variables/w"), ElementsAre(Key(1), Key(10), Key(14)));
  EXPECT_THAT(told.histograms.at("gradients/w"), ElementsAre(Key(1), Key(10)));
}

TEST_F(SummaryWriterTest, WithoutACadenceThereIsOnlyTheModel) {
  Open();
  summaries_.every_steps = 0;
  options_.evaluate_at_end = false;
  const Told told = Run();
  EXPECT_EQ(told.scalars_given, 0u);
  EXPECT_THAT(told.sessions, SizeIs(2));
  EXPECT_GT(told.graph.node_size(), 0);
}

TEST_F(SummaryWriterTest, HistogramsHaveEveryElementOfValuesAndGradients) {
  Open(3, 3);
  summaries_.histogram_interval = std::chrono::hours(1);
  summaries_.every_steps = 7;
  std::map<std::int64_t, double> sums;  // of the gradient
  std::int64_t step = 0;
  const auto backend = CreateCpuBackend().value();
  const auto model = Model::Create(config_, *backend, 100).value();
  WorkerCallbacks callbacks;
  callbacks.compute = [&](const Batch& batch, ParameterParts params, GradientParts gradients) {
    auto result = model->LossAndGradient(batch, params, gradients);
    double& sum = sums[++step];
    for (const MutableRowPart& part : gradients[0]) {
      for (std::size_t i = 0; i < part.rows * 10; ++i) sum += double{part.data[i]};
    }
    return result;
  };
  const Told told = Run(callbacks);
  EXPECT_EQ(told.histograms.at("gradients/w").size(), 1u);  // of the first step
  const event::Histogram& gradient = told.histograms.at("gradients/w").at(1);
  EXPECT_EQ(gradient.num(), 7840);
  EXPECT_DOUBLE_EQ(gradient.sum(), sums.at(1));
  EXPECT_EQ(told.histograms.at("gradients/b").at(1).num(), 10);
  // Values: at the first step, and at the end.
  ASSERT_THAT(told.histograms.at("variables/w"), ElementsAre(Key(1), Key(20)));
  double sum = 0;
  for (const VariableInfo& part : arena_->plan().variables.all()) {
    if (part.logical != "w") continue;
    const float* const values = arena_->shard(part.shard).values + part.offset;
    for (std::size_t i = 0; i < part.elements; ++i) sum += double{values[i]};
  }
  EXPECT_EQ(told.histograms.at("variables/w").at(20).num(), 7840);
  EXPECT_DOUBLE_EQ(told.histograms.at("variables/w").at(20).sum(), sum);
}

TEST_F(SummaryWriterTest, OfALargeVariableTheHistogramLooksAtRunsEverywhere) {
  config_.kind = ModelKind::kMlp;
  config_.hidden = {400};  // 313,600 weights
  Open(2, 2);
  options_.train_steps = 1;
  summaries_.histogram_interval = std::chrono::hours(1);
  WorkerCallbacks callbacks;
  callbacks.compute = [&](const Batch&, ParameterParts, GradientParts gradients) {
    for (const auto& variable : gradients) {
      for (const MutableRowPart& part : variable) {
        const std::size_t cols = &variable == &gradients[0]   ? 400
                                 : &variable == &gradients[2] ? 10
                                                              : 1;
        for (std::size_t i = 0; i < part.rows * cols; ++i) {
          part.data[i] = static_cast<float>(part.first_row) * 1e-3F;
        }
      }
    }
    return Result<BatchResult>(BatchResult{1, 0});
  };
  const Told told = Run(callbacks);
  const event::Histogram& histogram = told.histograms.at("gradients/hid_w").at(1);
  EXPECT_LE(histogram.num(), static_cast<double>(kMostSampled));
  EXPECT_GT(histogram.num(), 150'000);
  // Half of the elements are of the second part, which begins at row 392.
  EXPECT_NEAR(histogram.sum() / histogram.num(), 0.196, 0.001);
  EXPECT_EQ(told.histograms.at("gradients/sm_w").at(1).num(), 4000);
}

TEST_F(SummaryWriterTest, AGradientThatIsSkippedIsInNoHistogram) {
  Open();
  options_.on_nan = OnNan::kSkip;
  summaries_.histogram_interval = std::chrono::hours(1);
  int step = 0;
  WorkerCallbacks callbacks;
  callbacks.compute = [&](const Batch&, ParameterParts, GradientParts gradients) {
    ++step;
    const float value =
        step <= 2 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(step);
    for (std::size_t i = 0; i < 7840; ++i) gradients[0][0].data[i] = value;
    for (std::size_t i = 0; i < 10; ++i) gradients[1][0].data[i] = 0;
    return Result<BatchResult>(BatchResult{1, 0});
  };
  const Told told = Run(callbacks);
  EXPECT_EQ(told.histograms.at("gradients/w").at(1).min(), 3);
  EXPECT_EQ(told.StepsOf("loss").front(), 1);
}

TEST_F(SummaryWriterTest, StepsThatWaitToBePushedTogetherAreOneSummary) {
  summaries_.every_steps = 1;
  options_.train_steps = 4;
  for (const int together : {1, 3}) {
    SCOPED_TRACE(together);
    Open();
    options_.push_every = together;
    const Told told = Run();
    EXPECT_EQ(told.StepsOf("loss"), (Steps{1, 2, 3, 4}));
    std::size_t given = 0;
    for (const auto& [tag, points] : told.scalars) given += points.size();
    EXPECT_EQ(given, told.scalars_given);  // no point twice
  }
}

TEST_F(SummaryWriterTest, EvaluationsAreToldOf) {
  Open();
  options_.evaluation_steps = 8;
  options_.evaluate_at_end = false;
  std::map<std::int64_t, double> accuracies;
  FunctionHook hook;
  hook.on_evaluation = [&](const EvaluationReport& report) {
    accuracies[report.global_step] = report.result.accuracy;
  };
  const Told told = Run({.hooks = {&hook}});
  EXPECT_EQ(told.StepsOf("evaluation/loss"), (Steps{8, 16}));
  EXPECT_EQ(told.scalars.at("evaluation/accuracy").at(16), static_cast<float>(accuracies.at(16)));
}

TEST_F(SummaryWriterTest, AnotherLifeHasAnotherFileThatBeginsWhereItBegins) {
  Open();
  options_.train_steps = 10;
  Run();
  options_.train_steps = 20;
  Reopen();
  ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(5))).ok());
  const Told second = Run();
  const auto files = EventFilesIn(summaries_.folder);
  ASSERT_THAT(files, SizeIs(2));
  EXPECT_THAT(ReadTold(files[0]).sessions, ElementsAre(std::pair{event::SessionLog::START, 0},
                                                       std::pair{event::SessionLog::STOP, 10}));
  EXPECT_THAT(second.sessions, ElementsAre(std::pair{event::SessionLog::START, 11},
                                           std::pair{event::SessionLog::STOP, 20}));
  EXPECT_EQ(second.StepsOf("loss").front(), 11);
}

TEST_F(SummaryWriterTest, WhatCannotBeWrittenIsAWarningAndTrainingGoesOn) {
  // Calls: open, write; graph.pbtxt has six; then events.
  for (const int call : {1, 2, 3, 5, 9}) {
    SCOPED_TRACE(call);
    Open();
    test::FailingOps ops(call, EROFS);
    ::testing::internal::CaptureStderr();
    Run({}, ops);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(store_->global_step(), 20);
    EXPECT_EQ(began_, call > 2);
    EXPECT_THAT(said, HasSubstr("Read-only file system"));
    const std::size_t warning = said.find("training goes on");
    EXPECT_NE(warning, std::string::npos);
    EXPECT_EQ(said.find(" W ", warning), std::string::npos) << said;  // the only one
    std::filesystem::remove_all(summaries_.folder);
  }
}

TEST_F(SummaryWriterTest, AFolderThatIsAFileIsAWarning) {
  Open();
  std::ofstream(summaries_.folder) << "x";
  ::testing::internal::CaptureStderr();
  Run();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::AllOf(HasSubstr("no summaries are written"), HasSubstr(summaries_.folder)));
  EXPECT_FALSE(began_);
  EXPECT_EQ(store_->global_step(), 20);
}

TEST_F(SummaryWriterTest, TheModelIsThereAsAPictureATextAndATable) {
  summaries_.places = {false, "adam"};
  Open();
  const Told told = Run();
  std::set<std::string> names;
  for (const event::Node& node : told.graph.node()) names.insert(node.name());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"w", "softmax/MatMul", "loss", "train/adam"}));
  EXPECT_THAT(told.texts.at("variables"), HasSubstr("| w | 784 x 10 | 7840 | this process |"));
  std::ifstream in(summaries_.folder + "/graph.pbtxt");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, GraphText(ModelGraph(config_, *layout_, summaries_.places)));
}

}  // namespace
}  // namespace passel
