// `passel eval` and `passel predict` as users run them, against numbers that Python computed
// (predict_golden.py), from files and from running jobs.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <predict_golden.inc>  // written by predict_golden.py, while this is built
#include <thread>

#include "base/deadline.h"
#include "io/safetensors.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kSide = 4, kPixels = 16, kHidden = 8, kClasses = 4;
constexpr std::size_t kTrainImages = 20, kTestImages = 60;

// The same generator as Numbers in predict_golden.py.
class Numbers {
 public:
  std::vector<std::uint8_t> Bytes(std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    for (std::uint8_t& b : bytes) {
      x_ = (1103515245 * x_ + 12345) % (std::uint64_t{1} << 31);
      b = static_cast<std::uint8_t>(x_ >> 16);
    }
    return bytes;
  }
  std::vector<float> Weights(std::size_t count) {
    std::vector<float> weights;
    for (const std::uint8_t b : Bytes(count)) weights.push_back((static_cast<float>(b) - 128) / 64);
    return weights;
  }

 private:
  std::uint64_t x_ = 1;
};

std::string AsText(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

std::string Idx(std::vector<std::uint32_t> sizes, std::span<const std::uint8_t> data) {
  std::string text = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  }
  return text + AsText(data);
}

// The model and the data of the golden numbers, as files.
class PredictTest : public ::testing::Test {
 protected:
  PredictTest() {
    Numbers numbers;
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors = {
        {"hid_w", {kPixels, kHidden}},
        {"hid_b", {kHidden}},
        {"sm_w", {kHidden, kClasses}},
        {"sm_b", {kClasses}}};
    std::vector<std::vector<float>> values;
    for (const auto& [name, shape] : tensors) {
      values.push_back(
          numbers.Weights(static_cast<std::size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1))));
    }
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      views.push_back({tensors[i].first, DType::kF32, tensors[i].second,
                       std::as_bytes(std::span<const float>(values[i]))});
    }
    EXPECT_TRUE(WriteSafetensors(model_, views, {}).ok());
    const auto labels = [](std::vector<std::uint8_t> bytes) {
      for (std::uint8_t& b : bytes) b %= kClasses;
      return bytes;
    };
    const auto train = numbers.Bytes(kTrainImages * kPixels);
    const auto train_labels = labels(numbers.Bytes(kTrainImages));
    const auto test = numbers.Bytes(kTestImages * kPixels);
    const auto test_labels = labels(numbers.Bytes(kTestImages));
    const std::string dir = sandbox_.dir().path() + "/";
    WriteText(dir + "train-images-idx3-ubyte", Idx({kTrainImages, kSide, kSide}, train));
    WriteText(dir + "train-labels-idx1-ubyte", Idx({kTrainImages}, train_labels));
    WriteText(dir + "t10k-images-idx3-ubyte", Idx({kTestImages, kSide, kSide}, test));
    WriteText(dir + "t10k-labels-idx1-ubyte", Idx({kTestImages}, test_labels));
  }

  std::string File(const std::string& name) { return sandbox_.dir().File(name); }
  Outcome Eval(std::vector<std::string> more) {
    const std::vector<std::string> all =
        With({"eval", "--data_dir=" + sandbox_.dir().path()}, more);
    return sandbox_.Run(all);
  }
  nlohmann::json Predict(std::vector<std::string> more) {
    const std::vector<std::string> all = With({"predict", "--params=" + model_, "--json"}, more);
    last_ = sandbox_.Run(all);
    EXPECT_EQ(last_.code, 0) << last_.err;
    return nlohmann::json::parse(last_.out, nullptr, false);
  }
  std::string Refusal(const std::vector<std::string>& arguments) {
    const Outcome outcome = sandbox_.Run(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.errors.empty() ? "" : outcome.errors[0];
  }
  void ExpectNear(const nlohmann::json& got, std::span<const double> want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].get<double>(), want[i], 1e-6 + 1e-5 * want[i]) << i;
    }
  }

  Sandbox sandbox_;
  const std::string model_ = sandbox_.dir().File("model.safetensors");
  Outcome last_;
};

TEST_F(PredictTest, EvalFindsWhatPythonFinds) {
  const Outcome eval = Eval({"--params=" + model_, "--json=" + File("e.json")});
  ASSERT_EQ(eval.code, 0) << eval.err;
  const nlohmann::json json = ReadJson(File("e.json"));
  EXPECT_EQ(json["set"], "test");
  EXPECT_EQ(json["images"], kTestImages);
  EXPECT_EQ(json["accuracy"].get<double>(), kAccuracy);
  EXPECT_NEAR(json["loss"].get<double>(), kLoss, 1e-5);
  EXPECT_EQ(json["undecided"], 0);
  for (std::size_t label = 0; label < kClasses; ++label) {
    std::uint64_t labelled = 0, predicted = 0;
    for (std::size_t c = 0; c < kClasses; ++c) {
      EXPECT_EQ(json["confusion"][label][c], kConfusion[label * kClasses + c]);
      labelled += kConfusion[label * kClasses + c];
      predicted += kConfusion[c * kClasses + label];
    }
    const auto hits = static_cast<double>(kConfusion[label * kClasses + label]);
    const nlohmann::json& of = json["classes"][label];
    EXPECT_EQ(of["labelled"], labelled);
    EXPECT_EQ(of["predicted"], predicted);
    EXPECT_DOUBLE_EQ(of["recall"].get<double>(), hits / static_cast<double>(labelled));
    if (predicted == 0) {
      EXPECT_TRUE(of["precision"].is_null());
    } else {
      EXPECT_DOUBLE_EQ(of["precision"].get<double>(), hits / static_cast<double>(predicted));
    }
  }
  EXPECT_THAT(eval.out, HasSubstr(fmt::format("test accuracy {:.4f}, test loss {:.4f}, {} images",
                                              kAccuracy, kLoss, kTestImages)));
  EXPECT_THAT(eval.out, HasSubstr("precision"));
  EXPECT_THAT(eval.out, HasSubstr("recall"));
}

TEST_F(PredictTest, EvalKnowsTheSetsOfReadDataSets) {
  const auto images = [&](const char* set, int validation) {
    const Outcome outcome =
        Eval({"--params=" + model_, fmt::format("--set={}", set),
              fmt::format("--validation_size={}", validation), "--json=" + File("e.json")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ReadJson(File("e.json"))["images"].get<std::size_t>();
  };
  EXPECT_EQ(images("validation", 5), 5u);
  EXPECT_EQ(images("train", 5), kTrainImages - 5);
  EXPECT_EQ(images("train", 0), kTrainImages);
  EXPECT_EQ(images("test", 0), kTestImages);
  const auto refuse = [&](const char* set, int validation) {
    return Refusal({"eval", "--data_dir=" + sandbox_.dir().path(), "--params=" + model_,
                    fmt::format("--set={}", set), fmt::format("--validation_size={}", validation)});
  };
  EXPECT_THAT(refuse("validation", 21),
              HasSubstr("Validation size should be between 0 and 20. Received: 21."));
  EXPECT_THAT(refuse("train", -1),
              HasSubstr("Validation size should be between 0 and 20. Received: -1."));
  EXPECT_THAT(refuse("train", 20), HasSubstr("--validation_size 20 of 20"));
  EXPECT_THAT(refuse("validation", 0), HasSubstr("no images"));
  EXPECT_THAT(refuse("tests", 0), HasSubstr("--set tests is not known"));
}

TEST_F(PredictTest, ImagesOfAnIdxFileGetTheProbabilitiesThatPythonFinds) {
  const nlohmann::json json = Predict({File("t10k-images-idx3-ubyte")});
  ASSERT_EQ(json["images"].size(), kTestImages);
  for (std::size_t i = 0; i < kTestImages; ++i) {
    const nlohmann::json& image = json["images"][i];
    const std::span<const double> want(kProbabilities + i * kClasses, kClasses);
    EXPECT_EQ(image["index"], i);
    ExpectNear(image["probabilities"], want);
    EXPECT_EQ(image["class"], std::max_element(want.begin(), want.end()) - want.begin());
  }
  EXPECT_EQ(Predict({File("t10k-images-idx3-ubyte"), "--limit=7"})["images"].size(), 7u);
  const std::string command = "gzip -kf " + File("t10k-images-idx3-ubyte");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Predict({File("t10k-images-idx3-ubyte.gz")})["images"][3]["probabilities"],
            json["images"][3]["probabilities"]);
}

TEST_F(PredictTest, PicturesOfEveryKindGetTheProbabilitiesThatPythonFinds) {
  struct Case {
    const char* name;
    std::span<const std::uint8_t> png;
    std::span<const double> probabilities;  // plain, then inverted
    bool scaled;
  };
  const Case cases[] = {{"grey", kGreyPng, kGreyProbabilities, false},
                        {"colour", kColourPng, kColourProbabilities, true},
                        {"rgba", kRgbaPng, kRgbaProbabilities, true},
                        {"small", kSmallPng, kSmallProbabilities, true},
                        {"palette", kPalettePng, kPaletteProbabilities, false},
                        {"deep", kDeepPng, kDeepProbabilities, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    WriteText(File("p.png"), AsText(c.png));
    const nlohmann::json plain = Predict({File("p.png")});
    ExpectNear(plain["images"][0]["probabilities"], c.probabilities.first(kClasses));
    EXPECT_FALSE(plain["images"][0].contains("index"));
    if (c.scaled) {
      EXPECT_THAT(last_.err, HasSubstr("averaged to 4 x 4"));
    } else {
      EXPECT_THAT(last_.err, Not(HasSubstr("averaged")));
    }
    ExpectNear(Predict({File("p.png"), "--invert"})["images"][0]["probabilities"],
               c.probabilities.subspan(kClasses));
  }
}

TEST_F(PredictTest, TextNamesTheBestClassesInOrder) {
  WriteText(File("a.png"), AsText(kGreyPng));
  const Outcome outcome = sandbox_.Run(
      {"predict", "--params=" + model_, "--top=2", File("a.png"), File("t10k-images-idx3-ubyte")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::size_t> order = {0, 1, 2, 3};
  std::ranges::sort(order, [](std::size_t a, std::size_t b) {
    return kGreyProbabilities[a] > kGreyProbabilities[b];
  });
  EXPECT_THAT(outcome.out,
              ::testing::StartsWith(fmt::format("{}: {}  ({} {:.4f}, {} {:.4f})\n", File("a.png"),
                                                order[0], order[0], kGreyProbabilities[order[0]],
                                                order[1], kGreyProbabilities[order[1]])));
  EXPECT_THAT(outcome.out, HasSubstr(File("t10k-images-idx3-ubyte") + "[59]: "));
}

// --- Running jobs ---------------------------------------------------------------------------

struct LiveCase {
  const char* name;
  std::vector<std::string> flags;
  bool rounds;
};

void PrintTo(const LiveCase& test, std::ostream* out) { *out << test.name; }

class LiveTest : public ::testing::TestWithParam<LiveCase> {};

TEST_P(LiveTest, EvalAndPredictReadARunningJobAndLeaveItAlone) {
  Sandbox sandbox;
  const std::vector<std::string> flags =
      With({"--train_steps=100000000", "--workers=2", "--save=" + sandbox.dir().File("m")},
           GetParam().flags);
  Program train = sandbox.Start(sandbox.Train(flags));
  // At once: it waits for the first values.
  const std::string report = sandbox.dir().File("e.json");
  const std::vector<std::string> eval = {"eval", "--job=" + sandbox.job(), "--wait=60",
                                         "--data_dir=" + Digits(), "--json=" + report};
  ASSERT_TRUE(train.WaitFor("Using the data")) << train.Err();
  const Deadline there = Deadline::After(Scaled(20.0));
  while (sandbox.TaskPid("ps", 0) == 0) ASSERT_FALSE(there.Expired());
  std::int64_t last_step = -1;
  double accuracy = 0;
  const Deadline limit = Deadline::After(Scaled(40.0));
  while (accuracy < 0.85) {
    ASSERT_FALSE(limit.Expired()) << "accuracy " << accuracy;
    const Outcome outcome = sandbox.Run(eval);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json json = ReadJson(report);
    const nlohmann::json& of = json["parameters"];
    EXPECT_EQ(of["job"], sandbox.job());
    EXPECT_GE(of["global_step"].get<std::int64_t>(), last_step);
    EXPECT_GE(of["last_global_step"], of["global_step"]);
    const bool exact = of["exact"].get<bool>();
    EXPECT_TRUE(GetParam().rounds || !exact);
    EXPECT_TRUE(!exact || of["last_global_step"] == of["global_step"]);
    last_step = of["global_step"].get<std::int64_t>();
    accuracy = json["accuracy"].get<double>();
  }
  const Outcome predict = sandbox.Run({"predict", "--job=" + sandbox.job(), "--limit=100", "--json",
                                       Digits() + "/t10k-images-idx3-ubyte"});
  ASSERT_EQ(predict.code, 0) << predict.err;
  EXPECT_EQ(nlohmann::json::parse(predict.out)["images"].size(), 100u);
  EXPECT_TRUE(train.Running());
  sandbox.Interrupt(train);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, LiveTest,
    ::testing::Values(
        LiveCase{"Hogwild", {"--mode=hogwild"}, false},
        LiveCase{"BarrierOnTwoPs", {"--mode=barrier", "--ps=2"}, true},
        LiveCase{"InParts", {"--mode=locked", "--ps=3", "--partitioner=min_max:4:1024"}, false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(LiveValuesTest, AreOfOneStepInAnyModeIfThatIsAskedFor) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=100000000", "--workers=2", "--ps=3", "--mode=hogwild"}));
  ASSERT_TRUE(sandbox.AwaitStep(20)) << train.Err();
  const std::string report = sandbox.dir().File("e.json");
  std::int64_t last = -1;
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = sandbox.Run({"eval", "--job=" + sandbox.job(), "--consistent",
                                         "--data_dir=" + Digits(), "--json=" + report});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("ms at most for this copy"));
    const nlohmann::json of = ReadJson(report)["parameters"];
    EXPECT_TRUE(of["exact"].get<bool>());
    EXPECT_EQ(of["global_step"], of["last_global_step"]);
    EXPECT_GT(of["global_step"].get<std::int64_t>(), last);
    EXPECT_GT(of["workers_waited_seconds"].get<double>(), 0);
    last = of["global_step"].get<std::int64_t>();
  }
  EXPECT_TRUE(sandbox.Advances(50)) << train.Err();
  sandbox.Interrupt(train);
  EXPECT_THAT(OnlyError(sandbox.Run({"eval", "--params=nothing.safetensors", "--consistent"})),
              HasSubstr("a running job"));
}

// In rounds a step has one set of values, whenever it is looked at, and in every run.
TEST(LiveValuesTest, AreThoseThatAJobOfSoManyStepsSaves) {
  Sandbox sandbox;
  const std::string saved = sandbox.dir().File("m");
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=40", "--slow_worker=0:50ms", "--slow_worker=1:50ms",
                     "--mode=barrier", "--ps=2", "--partitioner=fixed:2", "--save=" + saved}));
  const std::string live = sandbox.dir().File("live.json"), file = sandbox.dir().File("file.json");
  std::int64_t step = 0;
  const Deadline limit = Deadline::After(Scaled(30.0));
  std::map<std::int64_t, double> losses;  // by global step
  while (train.Running() && !limit.Expired()) {
    const Outcome eval =
        sandbox.Run({"eval", "--job=" + sandbox.job(), "--data_dir=" + Digits(), "--json=" + live});
    if (eval.code != 0) continue;  // not there yet, or not any more
    const nlohmann::json json = ReadJson(live);
    EXPECT_TRUE(json["parameters"]["exact"].get<bool>());
    step = json["parameters"]["global_step"].get<std::int64_t>();
    const double loss = json["loss"].get<double>();
    const auto [seen, first] = losses.emplace(step, loss);
    EXPECT_EQ(seen->second, loss) << "two looks at step " << step;
  }
  EXPECT_EQ(sandbox.Finish(train).code, 0);
  EXPECT_GT(losses.size(), 3u);
  // The same job again, up to a step that was seen, ends at the values that were seen.
  ASSERT_GT(step, 0);
  const Outcome again =
      sandbox.Run(sandbox.Train({fmt::format("--train_steps={}", step), "--mode=barrier", "--ps=2",
                                 "--partitioner=fixed:2", "--save=" + saved}));
  ASSERT_EQ(again.code, 0) << again.err;
  ASSERT_EQ(
      sandbox.Run({"eval", "--params=" + saved, "--data_dir=" + Digits(), "--json=" + file}).code,
      0);
  // The file has whole variables, the job has parts: sums are rounded differently.
  EXPECT_NEAR(ReadJson(file)["loss"].get<double>(), losses[step], 1e-5);
}

TEST(LiveValuesTest, StoppedPsIsNamedAtTheDeadline) {
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const pid_t ps = sandbox.TaskPid("ps", 0);
  ASSERT_EQ(::kill(ps, SIGSTOP), 0);
  const Outcome eval =
      sandbox.Run({"eval", "--job=" + sandbox.job(), "--data_dir=" + Digits(), "--wait=0.3"});
  EXPECT_THAT(OnlyError(eval, 143), HasSubstr("ps/0 of job " + sandbox.job() + " does not answer"));
  ASSERT_EQ(::kill(ps, SIGCONT), 0);
  EXPECT_EQ(sandbox.Run({"eval", "--job=" + sandbox.job(), "--data_dir=" + Digits()}).code, 0);
  sandbox.Interrupt(train);
}

TEST(LiveValuesTest, KilledPsIsAskedAgainWhenItIsBack) {
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  for (int i = 0; i < 5; ++i) {
    const pid_t ps = sandbox.AwaitTask("ps", 0);
    ASSERT_GT(ps, 0);
    Program eval = sandbox.Start({"eval", "--job=" + sandbox.job(), "--data_dir=" + Digits()});
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * i));
    ::kill(ps, SIGKILL);
    const Outcome outcome = sandbox.Finish(eval);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_GT(sandbox.AwaitTask("ps", 0, ps), 0);
  }
  sandbox.Interrupt(train);
}

}  // namespace
}  // namespace passel::testing
