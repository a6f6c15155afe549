// Whole jobs with --arena device on an emulated GPU: its memory is a memory file that the worker
// processes share, and the kernels run in them at the same time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "base/subprocess.h"
#include "e2e/emulated_gpu.h"
#include "support/program.h"
#include "support/recorded_topologies.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuArenaTest : public EmulatedGpuTest {
 protected:
  GpuArenaTest() : EmulatedGpuTest("rtx4090-pcie-2") {}
  std::vector<std::string> Train(int workers, const std::vector<std::string>& more) {
    return JobOf(more, {"--gpus=0", "--workers_per_gpu=" + std::to_string(workers),
                        "--batch_size=32", "--arena=device", "--hidden_units=16"});
  }
  Outcome RunTrain(int workers, const std::vector<std::string>& more) {
    return RunJob(Train(workers, more));
  }
  // True once the shadow is of this step or a later one.
  bool ShadowReaches(std::int64_t step) {
    return ArenaComesTo([step](const auto& arena) {
      const auto& shadow = arena.at("shadow");
      return shadow.is_object() && shadow.at("global_step").is_number() &&
             shadow.at("global_step").template get<std::int64_t>() >= step;
    });
  }
};

TEST_F(GpuArenaTest, TrainsInEveryModeThatHasNoRounds) {
  for (const char* mode : {"hogwild", "locked", "ssp"}) {
    const Outcome outcome =
        RunTrain(4, {std::string("--mode=") + mode, "--train_steps=400", "--report=" + Report()});
    ASSERT_EQ(outcome.code, 0) << mode << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("values and gradients in the memory of the GPU"),
                                   Not(HasSubstr("fake GPU: "))));
    const auto report = ReadJson(Report());
    EXPECT_GT(report.at("test_accuracy").get<double>(), 0.8) << mode;
    EXPECT_GE(report.at("global_step").get<int>(), 400) << mode;
    EXPECT_EQ(report.at("global_step"), report.at("local_steps")) << "each push once";
    EXPECT_EQ(report.at("device"), "gpu");
    EXPECT_EQ(report.at("notes").size(), 0u) << report.at("notes");
    if (std::string(mode) == "locked") {  // the others leave a busy block of Adam out of a push
      EXPECT_EQ(report.at("overlapped_blocks").get<int>(), 0) << "who holds a block is waited for";
    }
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuArenaTest, TrainsWithEveryOptimizer) {
  const std::vector<std::vector<std::string>> optimizers = {
      {"--optimizer=momentum", "--learning_rate=0.005"},
      {"--optimizer=momentum", "--use_nesterov", "--learning_rate=0.005"},
      {"--optimizer=adagrad", "--learning_rate=0.05"},
      {"--optimizer=rmsprop", "--learning_rate=0.002"},
      {"--optimizer=adam", "--learning_rate=0.005"},
      {"--optimizer=ftrl", "--learning_rate=0.1"}};
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    std::vector<std::string> flags = optimizers[i];
    flags.push_back(i % 2 == 0 ? "--mode=locked" : "--mode=hogwild");
    flags.push_back("--train_steps=300");
    flags.push_back("--report=" + Report());
    const Outcome outcome = RunTrain(2, flags);
    ASSERT_EQ(outcome.code, 0) << optimizers[i][0] << "\n" << outcome.err;
    EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.6) << optimizers[i][0];
  }
}

// One worker, so that both runs are the same but for where the values are.
TEST_F(GpuArenaTest, LearnsWhatTheHostArenaLearns) {
  const auto run = [&](const std::string& arena) {
    const Outcome outcome =
        RunTrain(1, {"--arena=" + arena, "--optimizer=adam", "--learning_rate=0.005",
                     "--train_steps=200", "--report=" + Report()});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ReadJson(Report()).at("test_loss").get<double>();
  };
  const double host = run("host");
  EXPECT_NEAR(run("device"), host, 1e-6 * host);
}

// Variables in parts on two ps, a step ahead, changes of the mode, adversarial order of operations.
TEST_F(GpuArenaTest, ValuesInPartsAndStepsAheadAndChangesOfMode) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "adversarial seed=5");
  const Outcome outcome =
      RunTrain(2, {"--ps=2", "--partitioner=fixed:2", "--overlap", "--hidden_units=8",
                   "--mode_schedule=60:locked,120:ssp=2,180:hogwild", "--train_steps=480",
                   "--report=" + Report()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.6);
  EXPECT_THAT(outcome.err, Not(HasSubstr("fake GPU: ")));
}

// A worker that dies while it holds claims in the memory of the GPU: the others take them over.
TEST_F(GpuArenaTest, ClaimsOfAKilledWorkerAreTakenOver) {
  ExpectClaimsTakenOver([&](const auto& flags) { return Train(3, flags); });
}

TEST_F(GpuArenaTest, KilledChiefFindsTheArenaAgain) {
  Program train =
      sandbox_.Start(Train(2, {"--mode=hogwild", "--train_steps=100000000", "--max_restarts=5"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  pid_t chief = sandbox_.AwaitTask("worker", 0);
  for (int life = 0; life < 3; ++life) {
    ASSERT_EQ(::kill(chief, SIGKILL), 0);
    chief = sandbox_.AwaitTask("worker", 0, chief);
    ASSERT_NE(chief, 0) << train.Err();
    EXPECT_TRUE(Advances(100)) << train.Err();
  }
  Interrupt(train);
}

// A chief that died between naming the arena and handing it over makes another one.
TEST_F(GpuArenaTest, ChiefThatDiesBeforeItOffersTheArenaMakesAnother) {
  sandbox_.SetEnv("PASSEL_FAILPOINT", "arena.named:1:kill:" + sandbox_.dir().File("killed"));
  const Outcome outcome =
      RunTrain(2, {"--train_steps=200", "--max_restarts=3", "--report=" + Report()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.7);
}

// The next life of a ps has no descriptor until the workers offer it again: a worker that dies
// after that finds the arena all the same.
TEST_F(GpuArenaTest, PsThatComesBackIsOfferedTheArenaAgain) {
  Program train =
      sandbox_.Start(Train(2, {"--mode=locked", "--train_steps=100000000", "--max_restarts=5"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const pid_t ps = sandbox_.AwaitTask("ps", 0);
  ASSERT_EQ(::kill(ps, SIGKILL), 0);
  ASSERT_NE(sandbox_.AwaitTask("ps", 0, ps), 0) << train.Err();
  EXPECT_TRUE(Advances(50)) << train.Err();
  const pid_t worker = sandbox_.AwaitTask("worker", 1);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  ASSERT_NE(sandbox_.AwaitTask("worker", 1, worker), 0);
  EXPECT_TRUE(ArenaComesTo([](const auto& arena) {
    const auto& w = arena.at("workers").at(1);
    return w.at("epoch") == 2 && w.at("phase") == "running" && w.at("heartbeat_age_seconds") < 1;
  })) << train.Err();
  EXPECT_TRUE(Advances(50)) << train.Err();
  Interrupt(train);
}

// Everybody who held the memory is gone at once: the sentence says so, and nothing is made up. The
// shadow that is left is a checkpoint.
TEST_F(GpuArenaTest, ArenaThatNobodyHoldsAnyMoreEndsTheJob) {
  const auto flags = Train(
      1, {"--train_steps=100000000", "--max_restarts=1", "--save_secs=0", "--shadow_interval=3600",
          "--report=" + Report(), "--checkpoint_dir=" + sandbox_.dir().File("saved")});
  Program train = sandbox_.Start(flags);
  ASSERT_TRUE(train.WaitFor("saved checkpoint")) << train.Err();
  ASSERT_TRUE(Advances(100)) << train.Err();
  const pid_t worker = sandbox_.AwaitTask("worker", 0), ps = sandbox_.AwaitTask("ps", 0);
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  ASSERT_EQ(::kill(ps, SIGKILL), 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  const Outcome outcome = sandbox_.Finish(train, 60);
  EXPECT_NE(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the parameters in the memory of the GPU are lost"));
  // Nor is what is left taken for more than it is.
  EXPECT_THAT(ReadJson(Report()).at("notes").dump(), HasSubstr("is their shadow of global step "));
  EXPECT_THAT(outcome.err, HasSubstr("start the job again, which goes on from its newest"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
  Program again = sandbox_.Start(flags);
  ASSERT_TRUE(again.WaitFor("this job goes on from ")) << again.Err();
  EXPECT_TRUE(sandbox_.AwaitStep(100)) << again.Err();
  Interrupt(again);
}

// Its shadow is half old and half new, and its claim is nobody's.
TEST_F(GpuArenaTest, WorkerThatDiesWhileItRenewsTheShadowIsReplacedInThat) {
  sandbox_.SetEnv("PASSEL_FAILPOINT", "shadow.claimed:3:kill:" + sandbox_.dir().File("killed"));
  Program train = sandbox_.Start(
      Train(3, {"--train_steps=100000000", "--shadow_interval=0.05", "--max_restarts=3"}));
  ASSERT_TRUE(train.WaitFor("was killed by SIGKILL")) << train.Err();
  EXPECT_TRUE(Advances(100)) << train.Err();
  EXPECT_TRUE(ShadowReaches(sandbox_.GlobalStep())) << train.Err();
  Interrupt(train);
}

// One that stands still in it holds up no step of the others, and is evicted after --stall_limit.
TEST_F(GpuArenaTest, WorkerThatIsStoppedWhileItRenewsTheShadowHoldsNobodyUp) {
  sandbox_.SetEnv("PASSEL_FAILPOINT", "shadow.claimed:3:stop:" + sandbox_.dir().File("stopped"));
  Program train = sandbox_.Start(
      Train(3, {"--train_steps=100000000", "--shadow_interval=0.05", "--stall_limit=4"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  ASSERT_TRUE(ArenaComesTo([](const auto& arena) {
    const auto& shadow = arena.at("shadow");
    return shadow.is_object() && shadow.at("age_seconds").is_number() &&
           shadow.at("age_seconds") > 1;
  }));
  const std::int64_t begin = MonotonicNs();
  EXPECT_TRUE(Advances(100)) << train.Err();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(Scaled(10.0)).count());  // not 50 s
  EXPECT_TRUE(ShadowReaches(sandbox_.GlobalStep())) << train.Err();
  Interrupt(train);
}

TEST_F(GpuArenaTest, EvaluatorSaysThatItLooksAtAShadow) {
  Program train = sandbox_.Start(Train(
      1, {"--train_steps=100000000", "--evaluator", "--eval_interval=0.1", "--slow_worker=0:1ms"}));
  EXPECT_TRUE(train.WaitFor("(a shadow of the values on the GPU, ")) << train.Err();
  Interrupt(train);
}

TEST_F(GpuArenaTest, ShadowIsWhatPeopleSeeAndHowOldItIs) {
  Program train = sandbox_.Start(
      Train(2, {"--train_steps=100000000", "--shadow_interval=0.1", "--slow_worker=0:1ms,1:1ms"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  EXPECT_TRUE(Advances(300));
  const auto shadow = sandbox_.Status().at("arena").at("shadow");
  EXPECT_LT(shadow.at("age_seconds").get<double>(), Scaled(2.0).count());
  EXPECT_GT(shadow.at("global_step").get<int>(), 0);
  const Outcome status = sandbox_.Run({"ctl", "status", sandbox_.job()}, 10);
  EXPECT_THAT(status.out, HasSubstr("the parameters are on the GPU; their shadow in the arena is"));
  const Outcome eval =
      sandbox_.Run({"eval", "--job=" + sandbox_.job(), "--data_dir=" + Digits()}, 30);
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out + eval.err, HasSubstr("a shadow of the values on the GPU, "));
  const Outcome refused = sandbox_.Run({"ctl", "set-mode", sandbox_.job(), "barrier"}, 10);
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("mode barrier has rounds"));
  Interrupt(train);
}

TEST_F(GpuArenaTest, ValuesThatAreSavedAreThoseOfTheEnd) {
  const std::string saved = sandbox_.dir().File("model.safetensors");
  const Outcome outcome = RunTrain(1, {"--train_steps=300", "--shadow_interval=3600",
                                       "--save=" + saved, "--report=" + Report()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto report = ReadJson(Report());
  EXPECT_GT(report.at("test_accuracy").get<double>(), 0.8);
  const Outcome eval = sandbox_.Run({"eval", "--model=" + saved, "--data_dir=" + Digits(),
                                     "--json=" + sandbox_.dir().File("eval.json")},
                                    30);
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_NEAR(ReadJson(sandbox_.dir().File("eval.json")).at("accuracy").get<double>(),
              report.at("test_accuracy").get<double>(), 1e-9);
}

TEST_F(GpuArenaTest, WhatCannotBeIsRefusedInOneSentence) {
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = sandbox_.Run(arguments, 30);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
    return outcome.err;
  };
  const std::string device = "--arena=device";
  for (const char* mode : {"barrier", "replicas"}) {
    EXPECT_THAT(refusal(Train(2, {std::string("--mode=") + mode})),
                HasSubstr("has rounds, which parameters in GPU memory (--arena device) do not"));
  }
  EXPECT_THAT(refusal(Train(2, {"--mode_schedule=10:barrier"})),
              HasSubstr("mode barrier has rounds"));
  EXPECT_THAT(refusal(sandbox_.Train({"--gpus=all", device})),
              AllOf(HasSubstr("--arena device is for workers on one GPU, or on GPUs with NVLink"),
                    HasSubstr("has no NVLink, but a PCIe path (PHB), to GPU 0")));
  EXPECT_THAT(refusal(sandbox_.Train({"--device=cpu", device})),
              HasSubstr("--arena device keeps the parameters in the memory of a GPU"));
  EXPECT_THAT(refusal(sandbox_.Train(
                  {"--gpus=0:1", device, "--dry_run", "--topology=" + TopologyPath("h100-mig")})),
              HasSubstr("is a MIG instance, whose memory they cannot share: use --arena host"));
  EXPECT_THAT(refusal(sandbox_.Train({"--ps=0", "--workers=1", device})),
              HasSubstr("--ps 0 has none"));
  EXPECT_THAT(refusal(sandbox_.Train({"--arena=disk"})), HasSubstr("--arena"));
  EXPECT_THAT(refusal(Train(2, {"--shadow_interval=0"})),
              HasSubstr("--shadow_interval must be from 0.01 to 86400 seconds, not 0"));
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "memory=100000");
  EXPECT_THAT(refusal(Train(2, {"--train_steps=50", "--hidden_units=100"})),
              HasSubstr("of GPU memory are needed, 0 are in use, and this task may use 100000"));
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "refuse_sharing");
  EXPECT_THAT(sandbox_.Run(Train(2, {"--train_steps=50"}), 30).err,
              HasSubstr("does not share its memory: use --arena host"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// What a dead worker held is then nobody's to take over.
TEST_F(GpuArenaTest, LockedUnderMpsIsForOneWorkerOnEachGpu) {
  const auto pid_file = sandbox_.runtime() + "/nvidia-cuda-mps-control.pid";
  std::ofstream(pid_file) << ::getpid() << "\n";
  const Outcome seen = RunTrain(2, {"--mode=locked", "--train_steps=50"});
  EXPECT_EQ(seen.code, 2) << seen.err;
  EXPECT_THAT(seen.err, HasSubstr("at most 1 worker on each GPU is possible, not 2 on 1"));
  EXPECT_EQ(RunTrain(1, {"--mode=locked", "--train_steps=50"}).code, 0);
  const Outcome warned = RunTrain(2, {"--optimizer=adam", "--train_steps=50"});
  EXPECT_EQ(warned.code, 0) << warned.err;
  EXPECT_THAT(warned.err, HasSubstr("are updated by nobody from then on (--optimizer adam"));
  const Outcome adds = RunTrain(2, {"--optimizer=sgd", "--train_steps=50"});
  EXPECT_EQ(adds.code, 0) << adds.err;
  EXPECT_THAT(adds.err, Not(HasSubstr("by nobody")));
  // A daemon that the launcher cannot see.
  std::filesystem::remove(pid_file);
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "mps");
  const Outcome found = RunTrain(2, {"--mode=locked", "--train_steps=50"});
  EXPECT_EQ(found.code, 2) << found.err;
  EXPECT_THAT(found.err, HasSubstr("at most 1 worker on each GPU is possible, not 2 on 1"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// By hand nobody sees beforehand which GPU each task uses.
TEST_F(GpuArenaTest, TasksByHandShareOneGpuOrAreToldThatTheyDoNot) {
  const std::vector<std::string> same = {"--device=cuda", "--num_gpus=1", "--arena=device",
                                         "--train_steps=200", "--hidden_units=16"};
  Program ps = sandbox_.Start(sandbox_.Task("ps", 0, 1, 2, same));
  Program worker0 = sandbox_.Start(sandbox_.Task("worker", 0, 1, 2, same));
  Program worker1 = sandbox_.Start(sandbox_.Task("worker", 1, 1, 2, same));
  for (Program* program : {&worker0, &worker1}) {
    const Outcome outcome = sandbox_.Finish(*program, 60);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(sandbox_.Finish(ps, 20).code, 0);
  std::vector<std::string> here = same, there = same;
  here[0] = "--device=cuda:GPU-11111111";
  there[0] = "--device=cuda:GPU-22222222";
  here[3] = there[3] = "--train_steps=100000000";
  here.erase(here.begin() + 1);
  there.erase(there.begin() + 1);
  Program ps2 = sandbox_.Start(sandbox_.Task("ps", 0, 1, 2, here));
  Program first = sandbox_.Start(sandbox_.Task("worker", 0, 1, 2, here));
  Program second = sandbox_.Start(sandbox_.Task("worker", 1, 1, 2, there));
  const Outcome outcome = sandbox_.Finish(second, 30);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("worker/1 computes on GPU GPU-22222222, but the parameters "
                                     "are in the memory of GPU-11111111"));
  first.Signal(SIGINT);
  EXPECT_EQ(sandbox_.Finish(first, 20).code, 130);
}

}  // namespace
}  // namespace passel::testing
