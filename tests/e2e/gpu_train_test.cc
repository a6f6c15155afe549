// Whole jobs whose workers compute on GPUs, which are emulated: the launcher reads a recorded
// machine through a driver's library that is none, workers load the plugin of the tests
// (tests/cuda/fake_plugin.cc), and from there on everything is the real thing.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/subprocess.h"
#include "e2e/emulated_gpu.h"
#include "support/program.h"
#include "support/read_events.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuTrainTest : public EmulatedGpuTest {
 protected:
  GpuTrainTest() : EmulatedGpuTest("rtx4090-pcie-2") {}
};

// One worker, so that the CPU's run is the same but for the order of sums.
TEST_F(GpuTrainTest, LearnsWhatTheCpuLearns) {
  const auto run = [&](const std::string& device) {
    const Outcome outcome = RunSmall({"--device=" + device, "--workers=1", "--train_steps=300"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("computing on Fake GPU") != std::string::npos, device == "cuda")
        << outcome.err;
    return ReadJson(Report()).at("test_accuracy").get<double>();
  };
  const double cpu = run("cpu");
  EXPECT_GT(cpu, 0.8);
  EXPECT_NEAR(run("cuda"), cpu, 0.01);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, SummariesHaveTheVariablesWhereverTheyAre) {
  for (const char* const arena : {"host", "device"}) {
    const std::string logs = sandbox_.dir().File(arena);
    const Outcome outcome =
        RunSmall({"--gpus=0", "--workers=1", "--train_steps=250", std::string("--arena=") + arena,
                  "--logs_dir=" + logs, "--summary_steps=100"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<std::string> files = test::EventFilesIn(logs);
    ASSERT_EQ(files.size(), 1u);
    const std::vector<std::int64_t> steps = {1, 101, 201, 250};
    EXPECT_EQ(test::StepsOfTag(files[0], "loss"), steps) << arena;
    EXPECT_EQ(test::StepsOfTag(files[0], "variables/hid_w").size(), 2u) << arena;
    // Nobody on the CPU sees them.
    EXPECT_TRUE(test::StepsOfTag(files[0], "gradients/hid_w").empty()) << arena;
  }
}

TEST_F(GpuTrainTest, TrainsInEveryMode) {
  for (const char* mode : {"hogwild", "locked", "barrier", "replicas", "ssp"}) {
    const Outcome outcome =
        RunSmall({"--gpus=all", std::string("--mode=") + mode, "--train_steps=400"});
    ASSERT_EQ(outcome.code, 0) << mode << "\n" << outcome.err;
    const auto report = ReadJson(Report());
    EXPECT_GT(report.at("test_accuracy").get<double>(), 0.75) << mode;
    EXPECT_GE(report.at("global_step").get<int>(), 400) << mode;
    EXPECT_THAT(outcome.err, Not(HasSubstr("fake GPU: "))) << "a rule of the device was broken";
    // Said before anything is computed, and true of what then happened.
    const bool rounds = report.at("mode") == "barrier" || report.at("mode") == "replicas";
    EXPECT_THAT(outcome.err, HasSubstr(rounds ? ": one update a round, from 2 x 32 = 64 examples; "
                                              : ": 2 workers each make updates of 32 examples, "))
        << mode;
    EXPECT_EQ(report.at("global_step").get<int>() < report.at("local_steps").get<int>(), rounds)
        << mode;
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// More gradients than workers in a round, variables on two ps in parts, a change of mode.
TEST_F(GpuTrainTest, GradientsTakeEveryWay) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "adversarial seed=7");
  const Outcome outcome =
      RunSmall({"--gpus=all", "--ps=2", "--partitioner=fixed:2", "--mode=replicas",
                "--replicas_to_aggregate=5", "--mode_schedule=60:hogwild,150:ssp=2,240:barrier",
                "--train_steps=300", "--hidden_units=8", "--batch_size=16"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.6);
  EXPECT_THAT(outcome.err, Not(HasSubstr("fake GPU: ")));
}

TEST_F(GpuTrainTest, OverlapIsReportedAsStaleness) {
  const auto staleness = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--workers=1", "--train_steps=100"};
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome outcome = RunSmall(flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ReadJson(Report()).at("staleness").at("p50").get<int>();
  };
  EXPECT_EQ(staleness({}), 0);
  EXPECT_EQ(staleness({"--overlap"}), 1);
  EXPECT_EQ(staleness({"--overlap", "--steps_ahead=2"}), 2);
}

TEST_F(GpuTrainTest, MemoryThatCannotBeRegisteredIsCopiedAndSaid) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "refuse_registration");
  const Outcome outcome = sandbox_.Run(
      sandbox_.Train({"--device=cuda", "--workers=2", "--mode=barrier", "--train_steps=100",
                      "--hidden_units=16", "--report=" + Report()}),
      120);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("through pinned memory"));
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.75);
}

TEST_F(GpuTrainTest, FailingGpuEndsItsWorkerWithTheOperationNamed) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "fail_at=20,3");
  const Outcome outcome =
      sandbox_.Run(sandbox_.Train({"--gpus=all", "--train_steps=100", "--hidden_units=16"}), 120);
  EXPECT_EQ(outcome.code, 1) << outcome.err;  // no worker is left
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker/0 exited with 143: the GPU failed in operation"),
                                 HasSubstr("an injected fault")));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, HangingGpuDoesNotKeepCtrlCFromEndingTheJob) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "hang_at=10");
  Program train = sandbox_.Start(
      sandbox_.Train({"--gpus=all", "--train_steps=100000000", "--hidden_units=16", "--grace=2"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  train.Signal(SIGINT);
  const Outcome outcome = sandbox_.Finish(train, 20);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, AutomaticallyChosenGpuThatIsNoneGivesWayToTheCpu) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "none");
  const Outcome outcome = sandbox_.Run(sandbox_.Train({"--train_steps=50"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("computing on the CPU: there is no GPU"));
  const Outcome strict = sandbox_.Run(sandbox_.Train({"--train_steps=50", "--device=cuda"}));
  EXPECT_EQ(strict.code, 2) << strict.err;
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, GpuThatIsNotReadyIsWaitedFor) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "later=1,3");
  for (const char* device : {"--device=cuda", "--device=auto"}) {
    const Outcome outcome = sandbox_.Run(
        sandbox_.Train({device, "--workers=2", "--train_steps=100", "--hidden_units=16"}), 120);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("waiting up to "), HasSubstr("error 807"),
                      HasSubstr("computing on Fake GPU"), Not(HasSubstr("computing on the CPU"))));
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, GpuThatIsNeverReadyEndsItsWorkerToBeStartedAgain) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "later=1,100000");
  const Outcome outcome = sandbox_.Run(
      sandbox_.Train({"--device=cuda", "--workers=1", "--train_steps=100", "--start_wait=1"}), 60);
  EXPECT_EQ(outcome.code, 1) << outcome.err;  // no worker is left
  EXPECT_THAT(outcome.err, HasSubstr("worker/0 exited with 143: --device cuda"));
  EXPECT_THAT(outcome.err, HasSubstr("takes nobody now: start the task again"));
  // Where the CPU would do it does, in time.
  const Outcome automatic =
      sandbox_.Run(sandbox_.Train({"--workers=1", "--train_steps=50", "--start_wait=2"}), 60);
  EXPECT_EQ(automatic.code, 0) << automatic.err;
  EXPECT_THAT(automatic.err, HasSubstr("computing on the CPU: making a context: error 807"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, CtrlCEndsTheWaitForAGpu) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "later=1,100000");
  Program train = sandbox_.Start(sandbox_.Train({"--device=cuda", "--workers=2"}));
  ASSERT_TRUE(train.WaitFor("waiting up to ")) << train.Err();
  train.Signal(SIGINT);
  EXPECT_EQ(sandbox_.Finish(train, 5).code, 130) << train.Err();
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// Nobody trains on on the CPU because its GPU was not back yet.
TEST_F(GpuTrainTest, WorkerThatHadAGpuHasOneInItsNextLifeToo) {
  struct Case {
    const char* second_life;
    const char* said;
  };
  const Case cases[] = {
      {"later=2,4", "waiting up to "},
      {"full=2,4", "waiting up to "},  // the memory of the life before is not free yet
      {"gone=2,2",
       "exited with 143: worker/0 computed on a GPU before it was started again: there is no GPU "
       "at this time"},
  };
  int number = 0;
  for (const auto& [second_life, said] : cases) {
    const std::string name = std::to_string(number++);
    sandbox_.SetEnv("PASSEL_FAKE_GPU",
                    fmt::format("opens={} {}", sandbox_.dir().File("opens" + name), second_life));
    sandbox_.SetEnv("PASSEL_FAILPOINT",
                    "push.before_version:40:kill:" + sandbox_.dir().File("killed" + name));
    const Outcome outcome =
        sandbox_.Run(sandbox_.Train({"--workers=1", "--train_steps=200", "--hidden_units=16",
                                     "--max_restarts=3", "--report=" + Report()}),
                     120);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("was killed by SIGKILL"), HasSubstr(said),
                                   Not(HasSubstr("computing on the CPU"))));
    EXPECT_EQ(ReadJson(Report()).at("workers").at(0).at("device"), "gpu");
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// In its first life a GPU without memory is an error at once.
TEST_F(GpuTrainTest, GpuWithoutMemoryIsNotWaitedForAtFirst) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "full=1,100000");
  const Outcome outcome =
      sandbox_.Run(sandbox_.Train({"--device=cuda", "--workers=1", "--train_steps=50"}), 30);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("waiting up to ")));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// Layers for cuBLASLt: they are named, and the same is learnt in either arena.
TEST_F(GpuTrainTest, LayersForTheLibraryAreSaid) {
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--num_gpus=1",     "--workers=1",
                                      "--train_steps=60", "--hidden_units=520,521",
                                      "--batch_size=9",   "--report=" + Report()};
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome outcome = sandbox_.Run(sandbox_.Train(flags), 120);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("fused kernels and cuBLASLt (layers 0, 1), "),
                                   Not(HasSubstr("fake GPU: "))));
    return ReadJson(Report()).at("test_accuracy").get<double>();
  };
  const double accuracy = run({});
  EXPECT_GT(accuracy, 0.3);
  EXPECT_NEAR(run({"--arena=device"}), accuracy, 0.01);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, LargeLayersAreTrainedWithoutTheLibraryToo) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "no_library");
  const Outcome outcome = sandbox_.Run(
      sandbox_.Train({"--num_gpus=1", "--workers=1", "--train_steps=60", "--hidden_units=520,521",
                      "--batch_size=9", "--report=" + Report()}),
      120);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("kernels of passel's own compute layers 0, 1, which cuBLAS "
                                     "would do faster: the fake GPU has no library"));
  EXPECT_THAT(outcome.err, HasSubstr("fused kernels (layers 0, 1 without cuBLASLt)"));
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.3);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, ShareOfTheMemoryThatIsTooSmallIsNamed) {
  const Outcome outcome = sandbox_.Run(sandbox_.Train(
      {"--gpus=all", "--train_steps=50", "--per_process_gpu_memory_fraction=0.0001"}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("this task may use 1717986: raise "
                                     "--per_process_gpu_memory_fraction"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, MoreWorkersThanProcessorsShareThem) {
  const int workers = static_cast<int>(UsableCpus().size()) + 3;
  const Outcome outcome =
      RunSmall({"--gpus=all", fmt::format("--workers={}", workers), "--train_steps=400"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto report = ReadJson(Report());
  EXPECT_EQ(report.at("workers").size(), static_cast<std::size_t>(workers));
  EXPECT_GE(report.at("global_step").get<int>(), 400);
}

TEST_F(GpuTrainTest, WhatAGpuCannotDoIsRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--gpus=all", "--towers=2"},
       "--towers 2 are threads of a CPU, and worker/[01] computes on a GPU: use --towers 1, or "
       "--device cpu\n"},
      {{"--gpus=all", "--push_every=4"},
       "--push_every 4 sums gradients up on a CPU, and worker/[01] computes on a GPU: use a "
       "--batch_size 4 times as large, or --device cpu\n"},
      {{"--device=cuda", "--ps=0", "--workers=1"},
       "--device cuda needs a ps, since one process alone computes on the CPU: use --ps 1 "
       "--workers 1, or --device cpu\n"},
      {{"--gpus=all", "--steps_ahead=2"},
       "--steps_ahead 2 says how many steps --overlap begins before a push, and it is not given: "
       "add --overlap, or omit --steps_ahead\n"},
      {{"--gpus=all", "--overlap", "--steps_ahead=3"},
       "--steps_ahead is 1 to 2, not 3: use --steps_ahead=2 or less\n"},
      {{"--gpus=all", "--mode=barrier", "--overlap"},
       "--overlap begins a step before the last gradient is applied, and in barrier a step needs "
       "all of them: omit it, or use --mode hogwild, locked or ssp\n"},
  };
  for (const auto& [flags, sentence] : cases) {
    const Outcome outcome = sandbox_.Run(sandbox_.Train(flags));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::ContainsRegex(" E " + sentence));
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
}

TEST_F(GpuTrainTest, SettingsOfAGpuAreSaidToDoNothingOnTheCpu) {
  for (const std::string device : {"--device=cpu", "--ps=0"}) {
    const Outcome outcome =
        sandbox_.Run(sandbox_.Train({device, "--workers=1", "--train_steps=20", "--overlap",
                                     "--math=tf32", "--nocuda_graphs", "--nofused_update"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("--overlap, --math, --nocuda_graphs, --nofused_update have no effect on "
                          "the CPU"));
  }
}

// Of tasks by hand each finds its GPU itself: number i mod N of those that it may see.
TEST_F(GpuTrainTest, TasksByHandComputeOnGpusToo) {
  const std::vector<std::string> more = {"--device=cuda", "--num_gpus=2", "--train_steps=100",
                                         "--hidden_units=16"};
  Program ps = sandbox_.Start(sandbox_.Task("ps", 0, 1, 2, more));
  Program worker0 = sandbox_.Start(sandbox_.Task("worker", 0, 1, 2, more));
  Program worker1 = sandbox_.Start(sandbox_.Task("worker", 1, 1, 2, more));
  for (Program* program : {&worker0, &worker1}) {
    const Outcome outcome = sandbox_.Finish(*program, 60);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("computing on Fake GPU"));
  }
  EXPECT_EQ(sandbox_.Finish(ps, 20).code, 0);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuTrainTest, KilledWorkerOnAGpuIsReplaced) {
  Program train = sandbox_.Start(sandbox_.Train(
      {"--gpus=all", "--train_steps=100000000", "--hidden_units=16", "--max_restarts=3"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const pid_t first = sandbox_.AwaitTask("worker", 1);
  ASSERT_NE(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_NE(sandbox_.AwaitTask("worker", 1, first), 0) << train.Err();
  EXPECT_TRUE(Advances(50)) << train.Err();
  Interrupt(train);
}

}  // namespace
}  // namespace passel::testing
