// What the program says to input that cannot work: one sentence that names the limit, the value and
// the fix, exit code 2, and nothing is left behind.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

// Runs it; the one error line it must write, or a test failure.
std::string Refusal(Sandbox& sandbox, const std::vector<std::string>& arguments, int code = 2) {
  const Outcome outcome = sandbox.Run(arguments);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
  return outcome.errors.empty() ? "" : outcome.errors[0];
}

struct BadFlag {
  const char* name;
  std::vector<std::string> arguments;  // after `train --data_dir --job_id`
  std::vector<const char*> words;      // that the sentence must hold
};

class BadFlagTest : public ::testing::TestWithParam<BadFlag> {};

TEST_P(BadFlagTest, IsRefusedInOneSentence) {
  Sandbox sandbox;
  const std::string line = Refusal(sandbox, sandbox.Train(GetParam().arguments));
  for (const char* word : GetParam().words) EXPECT_THAT(line, HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(
    Train, BadFlagTest,
    ::testing::Values(
        BadFlag{"UnknownFlag", {"--no_such_flag=1"}, {"--no_such_flag", "--help"}},
        BadFlag{"NotANumber", {"--batch_size=ten"}, {"--batch_size", "ten"}},
        BadFlag{"ZeroBatch", {"--batch_size=0"}, {"--batch_size", "1 to", "not 0"}},
        BadFlag{"BatchAboveTheSet", {"--batch_size=6001"}, {"--batch_size", "6000", "6001"}},
        BadFlag{"BatchAboveTheSmallestShard",
                {"--shard_data", "--workers=7", "--batch_size=858"},
                {"--batch_size is at most the 857 of 6000 training", "7 workers", "not 858"}},
        BadFlag{"NothingLeftToTrainWith",
                {"--validation_size=6000"},
                {"--validation_size 6000", "6000 training", "--validation_size=600"}},
        BadFlag{"ZeroWorkers", {"--workers=0"}, {"--workers", "1 to 256", "not 0"}},
        BadFlag{"TooManyWorkers", {"--workers=257"}, {"--workers", "1 to 256", "257"}},
        BadFlag{"TooManyPs", {"--ps=100000"}, {"--ps", "0 to", "100000"}},
        BadFlag{"WorkersWithoutPs", {"--ps=0", "--workers=2"}, {"one worker", "2", "--ps 1"}},
        BadFlag{"NegativeSteps", {"--train_steps=-5"}, {"--train_steps", "0 to", "-5"}},
        BadFlag{"UnknownMode", {"--mode=turbo"}, {"turbo", "hogwild", "barrier"}},
        BadFlag{"UnknownOptimizer", {"--optimizer=magic"}, {"magic", "sgd", "adam"}},
        BadFlag{"UnknownPlacement", {"--placement=left"}, {"--placement", "left", "round_robin"}},
        BadFlag{"UnknownPartitioner", {"--partitioner=x"}, {"--partitioner", "x", "min_max"}},
        BadFlag{"ZeroParts", {"--partitioner=fixed:0"}, {"--partitioner", "fixed:0", "from 1"}},
        BadFlag{"UnknownModel", {"--model=cnn"}, {"cnn", "mlp", "softmax"}},
        BadFlag{"BadHiddenUnits", {"--hidden_units=10,,5"}, {"10,,5"}},
        BadFlag{"HiddenUnitsOfSoftmax",
                {"--model=softmax", "--hidden_units=5"},
                {"--hidden_units 5", "--model softmax", "leave it away"}},
        BadFlag{"LayerOfNothing", {"--hidden_units=8,0"}, {"8,0", "1 to", "not 0"}},
        BadFlag{"PinToNoDevice", {"--pin_variable=hid_w=x"}, {"\"x\"", "hid_w=/job:ps/task:1"}},
        BadFlag{"UnknownLoss", {"--loss=hinge"}, {"hinge", "sum", "mean"}},
        BadFlag{"UnknownPull", {"--pull=maybe"}, {"--pull", "maybe", "auto", "view", "copy"}},
        BadFlag{"UnknownOnNan", {"--on_nan=hope"}, {"--on_nan", "hope", "skip"}},
        BadFlag{"UnknownPin", {"--pin=hard"}, {"--pin", "hard", "none"}},
        BadFlag{"MomentumForAdam", {"--momentum=0.9"}, {"--momentum", "adam"}},
        BadFlag{"BetaForSgd", {"--optimizer=sgd", "--beta1=0.9"}, {"--beta1", "sgd"}},
        BadFlag{"L2ForAdagrad", {"--optimizer=adagrad", "--l2=1"}, {"--l2", "adagrad"}},
        BadFlag{"MisspeltFlag", {"--worker=2"}, {"--worker ", "did you mean --workers?"}},
        BadFlag{"EmptyValue", {"--save="}, {"--save", "empty"}},
        BadFlag{"EmptyNumber", {"--workers", ""}, {"--workers", "empty"}},
        BadFlag{"NegativeSeed", {"--seed=-1"}, {"--seed", "0 to 18446744073709551615", "-1"}},
        BadFlag{"SeedAboveAll", {"--seed=18446744073709551616"}, {"--seed", "709551616"}},
        BadFlag{"LearningRateThatIsNoNumber", {"--learning_rate=nan"}, {"learning_rate", "nan"}},
        BadFlag{"NegativeLearningRate", {"--learning_rate=-5"}, {"learning_rate", "-5"}},
        BadFlag{"NegativeBeta", {"--beta1=-1"}, {"E --beta1 must", "-1", "use, for example, 0.9"}},
        BadFlag{"NegativeEpsilon", {"--epsilon=-1"}, {"E --epsilon must", "-1"}},
        BadFlag{"NegativeDecay",
                {"--optimizer=rmsprop", "--decay=-1"},
                {"E --decay must", "-1", "use, for example, 0.9"}},
        BadFlag{"NegativeMomentum",
                {"--optimizer=rmsprop", "--momentum=-3"},
                {"E --momentum must", "-3"}},
        BadFlag{"HugeLearningRateAsTyped",
                {"--learning_rate=100000000000000000000000000000000000000000"},
                {"--learning_rate must", "got 100000000000000000000000000000000000000000:"}},
        BadFlag{"HugeSecondsAsTyped",
                {"--stall_limit=100000000000000000000"},
                {"--stall_limit is 0.05 to 1000000 s, not 100000000000000000000: use "
                 "--stall_limit=1000000 or less"}},
        BadFlag{"HugeStepsAsTyped",
                {"--train_steps=9223372036854775807"},
                {"--train_steps is 0 to 1000000000000, not 9223372036854775807: use "
                 "--train_steps=1000000000000 or less"}},
        BadFlag{"HugeGraceAsTyped", {"--grace=1e99"}, {"--grace is 0.1 to 3600 s, not 1e99: use"}},
        BadFlag{"ThreadsAboveAnInt",
                {"--threads_per_worker=99999999999"},
                {"--threads_per_worker", "fits 32 bits", "99999999999"}},
        BadFlag{"NegativeL1", {"--optimizer=ftrl", "--l1=-1"}, {"E --l1 must", "-1"}},
        BadFlag{"PositivePower",
                {"--optimizer=ftrl", "--learning_rate_power=1"},
                {"learning_rate_power", "0 or less", "1"}},
        BadFlag{"NegativeAccumulator",
                {"--optimizer=adagrad", "--initial_accumulator_value=-1"},
                {"E --initial_accumulator_value must", "-1"}},
        BadFlag{"SpinThatIsNoNumber", {"--spin_us=nan"}, {"--spin_us", "nan"}},
        BadFlag{"GraceThatIsNoNumber", {"--grace=nan"}, {"--grace", "nan"}},
        BadFlag{"ReportToADevice", {"--report=/dev/full"}, {"--report", "/dev/full", "regular"}},
        BadFlag{"TwoModesAtOnce",
                {"--sync_replicas", "--mode=hogwild"},
                {"--sync_replicas", "hogwild", "leave one"}},
        BadFlag{"SyncReplicasAndScheduleAtOnce",
                {"--sync_replicas", "--mode_schedule=0:ssp,5:hogwild"},
                {"--sync_replicas begins with mode barrier", "0:ssp", "leave one"}},
        BadFlag{"ModeAndScheduleAtOnce",
                {"--mode=hogwild", "--mode_schedule=0:barrier"},
                {"--mode hogwild begins with mode hogwild", "with barrier", "leave one"}},
        BadFlag{"NumberBesideTheScheduleOfStepZero",
                {"--staleness_bound=5", "--mode_schedule=0:ssp"},
                {"--staleness_bound", "0:ssp=5"}},
        BadFlag{"ReportToALink", {"--report=/dev/stdout"}, {"/dev/stdout", "symbolic link"}},
        BadFlag{"OneFileForTwo",
                {"--save=/tmp/passel-one", "--report=/tmp/../tmp/passel-one"},
                {"--save", "--report", "two files"}},
        BadFlag{"BetaOutOfRange", {"--beta1=1.5"}, {"beta1", "1.5"}},
        BadFlag{"BadLogLevel", {"--log_level=loud"}, {"loud", "debug"}},
        BadFlag{"TinyStallLimit", {"--stall_limit=0"}, {"--stall_limit", "0.05"}},
        BadFlag{"NegativeRestarts", {"--max_restarts=-1"}, {"--max_restarts", "0 to", "-1"}},
        BadFlag{"SaveInNoFolder",
                {"--train_steps=100000000", "--save=/no/such/folder/m.safetensors"},
                {"--save", "/no/such/folder", "No such file", "another path"}},
        BadFlag{
            "SaveToADirectory", {"--train_steps=100000000", "--save=/tmp"}, {"/tmp", "directory"}},
        BadFlag{"SaveUnderAFile",
                {"--train_steps=100000000", "--save=/etc/hostname/m"},
                {"--save", "/etc/hostname", "Not a directory"}},
        BadFlag{"ReportWhereNobodyWrites",
                {"--train_steps=100000000", "--report=/proc/r.json"},
                {"--report", "/proc", "another path"}}),
    [](const auto& test) { return test.param.name; });

TEST(BadDataTest, AbsentFolderIsNamed) {
  Sandbox sandbox;
  EXPECT_THAT(Refusal(sandbox, {"train", "--data_dir=/no/such/data", "--job_id=" + sandbox.job()}),
              HasSubstr("/no/such/data"));
}

// A copy of the digits with one file replaced.
class BrokenData {
 public:
  BrokenData(Sandbox& sandbox, const std::string& file,
             const std::function<void(std::string*)>& f) {
    dir_ = sandbox.dir().File("data");
    std::filesystem::copy(Digits(), dir_);
    std::string bytes = ReadText(dir_ + "/" + file);
    f(&bytes);
    WriteText(dir_ + "/" + file, bytes);
  }
  std::vector<std::string> Train(const Sandbox& sandbox) const {
    return {"train", "--data_dir=" + dir_, "--job_id=" + sandbox.job()};
  }

 private:
  std::string dir_;
};

TEST(BadDataTest, FileThatIsCutOffIsNamedWithItsSizes) {
  Sandbox sandbox;
  BrokenData data(sandbox, "train-images-idx3-ubyte", [](std::string* b) { b->resize(100'000); });
  const std::string line = Refusal(sandbox, data.Train(sandbox));
  EXPECT_THAT(line, HasSubstr("train-images-idx3-ubyte"));
  EXPECT_THAT(line, HasSubstr("4704"));  // 6000 * 784 = 4704000 bytes, and 16 of the header
}

TEST(BadDataTest, FileThatIsNoIdxFileIsNamed) {
  Sandbox sandbox;
  BrokenData data(sandbox, "t10k-labels-idx1-ubyte", [](std::string* b) { (*b)[2] = 'x'; });
  EXPECT_THAT(Refusal(sandbox, data.Train(sandbox)), HasSubstr("t10k-labels-idx1-ubyte"));
}

TEST(BadDataTest, AnotherNumberOfLabelsThanImagesIsNamed) {
  Sandbox sandbox;
  BrokenData data(sandbox, "train-labels-idx1-ubyte", [](std::string* b) {
    b->resize(8 + 5999);
    (*b)[6] = static_cast<char>(5999 >> 8);
    (*b)[7] = static_cast<char>(5999 & 0xff);
  });
  const std::string line = Refusal(sandbox, data.Train(sandbox));
  EXPECT_THAT(line, HasSubstr("5999"));
  EXPECT_THAT(line, HasSubstr("6000"));
}

// Hidden units for which the job needs `share` of the memory that is free now.
std::string UnitsThatNeed(double share) {
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  double kib = 0;
  while (meminfo >> word) {
    if (word == "MemAvailable:") meminfo >> kib;
  }
  // values, two slot variables and a gradient for each of two workers, 784 + 1 + 10 floats a unit
  return fmt::format("{}", static_cast<std::int64_t>(share * kib * 1024 / (5 * 4 * 795.0)));
}

TEST(BadMemoryTest, JobThatDoesNotFitNamesNeedAndFreeBytes) {
  for (const char* ps : {"--ps=1", "--ps=3"}) {
    Sandbox sandbox;
    const std::string line =
        Refusal(sandbox, sandbox.Train({ps, "--hidden_units=" + UnitsThatNeed(1.3)}));
    EXPECT_THAT(line, HasSubstr("bytes"));
    EXPECT_THAT(line, HasSubstr("free"));
    EXPECT_THAT(line, HasSubstr("smaller model"));
  }
}

TEST(BadMemoryTest, SingleProcessThatDoesNotFitNamesNeedAndFreeBytes) {
  Sandbox sandbox;
  const std::string line = Refusal(
      sandbox, sandbox.Train({"--ps=0", "--workers=1", "--hidden_units=" + UnitsThatNeed(1.6)}));
  EXPECT_THAT(line, HasSubstr("free"));
}

TEST(BadMemoryTest, TasksByHandReportItFromThePs) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--hidden_units=" + UnitsThatNeed(2.5), "--start_wait=5"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  const Outcome worker = sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags));
  EXPECT_EQ(worker.code, 2) << worker.err;
  ASSERT_EQ(worker.errors.size(), 1u) << worker.err;
  EXPECT_THAT(worker.errors[0], HasSubstr("free"));
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(ps).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(BadValuesTest, GradientThatIsNotFiniteStopsTheJobOnce) {
  for (const char* ps : {"--ps=1", "--ps=2"}) {
    Sandbox sandbox;
    const std::string line = Refusal(
        sandbox, sandbox.Train({ps, "--workers=4", "--optimizer=sgd", "--learning_rate=1e30"}), 1);
    EXPECT_THAT(line, HasSubstr("not finite"));
    EXPECT_THAT(line, HasSubstr("step"));
    EXPECT_THAT(line, HasSubstr("--learning_rate"));
  }
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r");
  EXPECT_THAT(Refusal(sandbox,
                      sandbox.Train({"--ps=0", "--optimizer=sgd", "--learning_rate=1e30",
                                     "--report=" + report}),
                      1),
              HasSubstr("not finite"));
  EXPECT_EQ(ReadJson(report)["exit_code"], 1);
  // By hand.
  const std::vector<std::string> flags = {"--optimizer=sgd", "--learning_rate=1e30"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  const Outcome worker = sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags));
  EXPECT_EQ(worker.code, 1) << worker.err;
}

// Its own shard would do, that of the last worker would not, and the others would train alone.
TEST(BadTaskTest, ChiefRefusesABatchAboveTheSmallestShardBeforeItProposesAPlan) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--shard_data", "--batch_size=858", "--start_wait=20"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 7, flags));
  const Outcome chief = sandbox.Run(sandbox.Task("worker", 0, 1, 7, flags));
  EXPECT_EQ(chief.code, 2);
  ASSERT_EQ(chief.errors.size(), 1u) << chief.err;
  EXPECT_THAT(chief.errors[0], HasSubstr("at most the 857 of 6000 training examples"));
  EXPECT_EQ(sandbox.GlobalStep(), -1);
}

TEST(BadValuesTest, SkippedGradientsDoNotKeepTheJobForEver) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(sandbox.Train({"--optimizer=sgd", "--learning_rate=1e30",
                                                     "--on_nan=skip", "--train_steps=1000"}),
                                      30);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  ASSERT_EQ(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_THAT(outcome.errors[0], HasSubstr("not finite"));
  EXPECT_THAT(outcome.errors[0], HasSubstr("in a row"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(BadTaskTest, MissingIdentityIsNamedInTheReferenceWords) {
  Sandbox sandbox;
  const std::string hosts = "--ps_hosts=localhost:2222";
  const std::string workers = "--worker_hosts=localhost:3222";
  EXPECT_THAT(Refusal(sandbox, {"task", hosts, workers, "--task_index=0"}),
              HasSubstr("Must specify an explicit `job_name`"));
  EXPECT_THAT(Refusal(sandbox, {"task", hosts, workers, "--job_name=ps"}),
              HasSubstr("Must specify an explicit `task_index`"));
  EXPECT_THAT(Refusal(sandbox, {"task", workers, "--job_name=ps", "--task_index=0"}),
              HasSubstr("Must specify an explicit `ps_hosts`"));
  EXPECT_THAT(Refusal(sandbox, {"task", hosts, "--job_name=ps", "--task_index=0"}),
              HasSubstr("Must specify an explicit `worker_hosts`"));
}

TEST(BadTaskTest, WrongIdentityOrAddressIsNamed) {
  Sandbox sandbox;
  const auto refuse = [&](const std::string& name, const std::string& index, const std::string& ps,
                          const std::string& workers) {
    return Refusal(sandbox, {"task", "--job_name=" + name, "--task_index=" + index,
                             "--ps_hosts=" + ps, "--worker_hosts=" + workers});
  };
  EXPECT_THAT(refuse("ps", "7", "localhost:1", "localhost:2"), HasSubstr("7"));
  EXPECT_THAT(refuse("worker", "-1", "localhost:1", "localhost:2"), HasSubstr("-1"));
  EXPECT_THAT(refuse("boss", "0", "localhost:1", "localhost:2"), HasSubstr("boss"));
  EXPECT_THAT(refuse("ps", "0", "localhost:99999", "localhost:2"), HasSubstr("99999"));
  EXPECT_THAT(refuse("ps", "0", "localhost:0", "localhost:2"), HasSubstr("localhost:0"));
  EXPECT_THAT(refuse("ps", "0", "localhost", "localhost:2"), HasSubstr("localhost"));
  EXPECT_THAT(refuse("ps", "0", "example.com:2222", "localhost:2"), HasSubstr("example.com"));
  EXPECT_THAT(refuse("ps", "0", "localhost:2,localhost:2", "localhost:3"),
              HasSubstr("localhost:2"));
}

TEST(BadTaskTest, TokenFileOfAnotherSizeOrModeIsRefused) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("token");
  WriteText(path, std::string(31, 'x'));
  ::chmod(path.c_str(), 0400);
  EXPECT_THAT(Refusal(sandbox, sandbox.Task("ps", 0, 1, 1, {"--token_file=" + path})),
              HasSubstr("32 bytes"));
  WriteText(path + "2", std::string(32, 'x'));
  ::chmod((path + "2").c_str(), 0644);
  EXPECT_THAT(Refusal(sandbox, sandbox.Task("ps", 0, 1, 1, {"--token_file=" + path + "2"})),
              HasSubstr("0644"));
}

TEST(BadJobTest, NameThatIsNoJobIdIsRefused) {
  Sandbox sandbox;
  const auto refusal = [&](const std::string& id) {
    return Refusal(sandbox, {"train", "--data_dir=" + Digits(), "--job_id=" + id});
  };
  EXPECT_THAT(refusal("a/b"), HasSubstr("a/b"));
  EXPECT_THAT(refusal("../x"), HasSubstr("../x"));
  EXPECT_THAT(refusal(std::string(49, 'a')), HasSubstr("49 bytes"));
  EXPECT_THAT(refusal("%n"), HasSubstr("%n"));
}

TEST(BadJobTest, SecondJobOfTheSameNameIsRefusedAndTheFirstGoesOn) {
  Sandbox sandbox;
  Program first = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_NE(sandbox.AwaitTask("worker", 1), 0);
  const Outcome second = sandbox.Run(sandbox.Train({"--train_steps=10"}));
  EXPECT_EQ(second.code, 2);
  ASSERT_EQ(second.errors.size(), 1u) << second.err;
  EXPECT_THAT(second.errors[0], HasSubstr(sandbox.job()));
  EXPECT_THAT(second.errors[0], HasSubstr("running already"));
  EXPECT_TRUE(first.Running());
  first.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(first).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(BadModelTest, EvalNamesAFileThatIsNoModel) {
  Sandbox sandbox;
  EXPECT_THAT(Refusal(sandbox, {"eval", "--model=/no/model", "--data_dir=" + Digits()}),
              HasSubstr("/no/model"));
  const std::string path = sandbox.dir().File("m.safetensors");
  WriteText(path, "this is no model");
  EXPECT_THAT(Refusal(sandbox, {"eval", "--model=" + path, "--data_dir=" + Digits()}),
              HasSubstr(path));
}

}  // namespace
}  // namespace passel::testing
