// Whole jobs with --arena device on two emulated GPUs: the parameters are in a memory file of the
// first one's, and workers on the second work in it over what stands for NVLink.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "e2e/emulated_gpu.h"
#include "support/program.h"
#include "support/recorded_topologies.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuPeersTest : public EmulatedGpuTest {
 protected:
  GpuPeersTest() : EmulatedGpuTest("a100-vm-4") {}
  // Workers 0, 2 on GPU 0, which holds the parameters, and 1, 3 on GPU 2.
  std::vector<std::string> Train(int per_gpu, const std::vector<std::string>& more) {
    return JobOf(more, {"--gpus=0,2", "--arena=device", "--batch_size=32", "--hidden_units=16",
                        "--workers_per_gpu=" + std::to_string(per_gpu)});
  }
  std::string Uuid(std::size_t gpu) { return Recorded("a100-vm-4").gpus[gpu].uuid; }
  // True once that life of a worker has pushed.
  bool Pushes(std::size_t worker, int life) {
    return ArenaComesTo([&](const auto& arena) {
      const auto& w = arena.at("workers").at(worker);
      return w.at("epoch") >= life && w.at("local_steps") > 10;
    });
  }
};

TEST_F(GpuPeersTest, WorkersOnTwoGpusTrainOneSetOfParametersInEveryModeWithoutRounds) {
  for (const char* mode : {"hogwild", "locked", "ssp"}) {
    const Outcome outcome = sandbox_.Run(
        Train(2, {std::string("--mode=") + mode, "--train_steps=400", "--report=" + Report()}),
        120);
    ASSERT_EQ(outcome.code, 0) << mode << "\n" << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr(fmt::format("computing on Fake GPU ({})", Uuid(0))),
                      HasSubstr(fmt::format("computing on Fake GPU ({})", Uuid(2))),
                      HasSubstr("values and gradients in the memory of the GPU; updates are "
                                "kernels of their own"),
                      HasSubstr("values fetched from the memory of another GPU"),
                      HasSubstr("NVLink to GPU 0, parameters in the memory of GPU 0"),
                      Not(HasSubstr("fake GPU: "))));
    const auto report = ReadJson(Report());
    EXPECT_GT(report.at("test_accuracy").get<double>(), 0.8) << mode;
    EXPECT_EQ(report.at("global_step"), report.at("local_steps")) << "each push once";
    EXPECT_EQ(report.at("notes").size(), 0u) << report.at("notes");
    if (std::string(mode) == "locked") {
      EXPECT_EQ(report.at("overlapped_blocks").get<int>(), 0) << "who holds a block is waited for";
    }
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// Variables in parts on two ps, a step ahead, changes of the mode, adversarial order of operations.
TEST_F(GpuPeersTest, ValuesInPartsAndStepsAheadAndChangesOfMode) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "adversarial seed=6");
  const Outcome outcome = sandbox_.Run(
      Train(1, {"--ps=2", "--partitioner=fixed:2", "--overlap", "--optimizer=adam",
                "--learning_rate=0.005", "--mode_schedule=60:locked,120:ssp=2,180:hogwild",
                "--train_steps=480", "--report=" + Report()}),
      120);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.6);
  EXPECT_THAT(outcome.err, Not(HasSubstr("fake GPU: ")));
}

TEST_F(GpuPeersTest, WorkerOfTheOtherGpuThatDiesComesBack) {
  Program train =
      sandbox_.Start(Train(2, {"--mode=locked", "--train_steps=100000000", "--max_restarts=5"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  // Who is killed before it has joined had no life that counts.
  ASSERT_TRUE(Pushes(1, 1)) << train.Err();
  pid_t worker = sandbox_.AwaitTask("worker", 1);
  for (int life = 2; life < 4; ++life) {
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    worker = sandbox_.AwaitTask("worker", 1, worker);
    ASSERT_NE(worker, 0) << train.Err();
    EXPECT_TRUE(Advances(100)) << train.Err();
    EXPECT_TRUE(Pushes(1, life)) << train.Err();
  }
  Interrupt(train);
}

// Whoever dies while it holds claims, on the one GPU or on the other.
TEST_F(GpuPeersTest, ClaimsOfAKilledWorkerAreTakenOver) {
  ExpectClaimsTakenOver([&](const auto& flags) { return Train(2, flags); });
}

// Its memory stays, since ps/0 and the workers of the other GPU hold it.
TEST_F(GpuPeersTest, KilledChiefFindsItsArenaAgainAndThePeerGoesOn) {
  Program train =
      sandbox_.Start(Train(1, {"--mode=hogwild", "--train_steps=100000000", "--max_restarts=5"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const pid_t peer = sandbox_.AwaitTask("worker", 1);
  pid_t chief = sandbox_.AwaitTask("worker", 0);
  for (int life = 2; life < 4; ++life) {
    ASSERT_EQ(::kill(chief, SIGKILL), 0);
    chief = sandbox_.AwaitTask("worker", 0, chief);
    ASSERT_NE(chief, 0) << train.Err();
    EXPECT_TRUE(Pushes(0, life)) << train.Err();
    EXPECT_TRUE(Advances(50)) << train.Err();
  }
  EXPECT_EQ(sandbox_.AwaitTask("worker", 1), peer) << "it was not started again";
  Interrupt(train);
}

// What the shadow holds in the end is read by whichever worker ends last, on either GPU.
TEST_F(GpuPeersTest, ValuesThatAreSavedAreThoseOfTheEnd) {
  const std::string saved = sandbox_.dir().File("model.safetensors");
  const Outcome outcome = sandbox_.Run(Train(1, {"--train_steps=300", "--shadow_interval=3600",
                                                 "--save=" + saved, "--report=" + Report()}),
                                       120);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.8);
}

TEST_F(GpuPeersTest, WhatTheDriverDoesNotAllowIsRefusedInOneSentence) {
  struct Case {
    const char* fake;
    const char* what;
  };
  for (const Case& c : {Case{"peer_atomics=0", "cannot do atomic operations on the memory of"},
                        Case{"peer_access=0", "cannot access the memory of"}}) {
    sandbox_.SetEnv("PASSEL_FAKE_GPU", c.fake);
    const Outcome outcome = sandbox_.Run(Train(1, {"--train_steps=200"}), 60);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr(fmt::format("worker/1: GPU {} {} GPU {}, which holds the parameters",
                                      Uuid(2), c.what, Uuid(0))));
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// By hand --num_gpus says it all: which GPU is whose, and that there are several.
TEST_F(GpuPeersTest, TasksByHandTrainOnTwoGpus) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "devices=2");
  const std::vector<std::string> flags = {"--device=cuda", "--num_gpus=2", "--arena=device",
                                          "--train_steps=200", "--hidden_units=16"};
  Program ps = sandbox_.Start(sandbox_.Task("ps", 0, 1, 2, flags));
  Program worker0 = sandbox_.Start(sandbox_.Task("worker", 0, 1, 2, flags));
  Program worker1 = sandbox_.Start(sandbox_.Task("worker", 1, 1, 2, flags));
  std::string err;
  for (Program* program : {&worker0, &worker1}) {
    const Outcome outcome = sandbox_.Finish(*program, 60);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    err += outcome.err;
  }
  EXPECT_THAT(err, AllOf(HasSubstr("values and gradients in the memory of the GPU"),
                         HasSubstr("values fetched from the memory of another GPU")));
  EXPECT_EQ(sandbox_.Finish(ps, 20).code, 0);
}

TEST_F(GpuPeersTest, TasksByHandThatAreNotOfOneMindAreTold) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "devices=2");
  std::vector<std::string> flags = {"--device=cuda", "--num_gpus=2", "--arena=device",
                                    "--train_steps=100000000", "--hidden_units=16"};
  Program ps = sandbox_.Start(sandbox_.Task("ps", 0, 1, 2, flags));
  Program first = sandbox_.Start(sandbox_.Task("worker", 0, 1, 2, flags));
  flags[1] = "--num_gpus=1";
  Program second = sandbox_.Start(sandbox_.Task("worker", 1, 1, 2, flags));
  const Outcome outcome = sandbox_.Finish(second, 30);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("worker/1: the arena on the GPU was made for workers on several GPUs, and "
                        "this task was started for workers on one GPU"));
  first.Signal(SIGINT);
  EXPECT_EQ(sandbox_.Finish(first, 20).code, 130);
  ps.Signal(SIGINT);
  sandbox_.Finish(ps, 20);
}

}  // namespace
}  // namespace passel::testing
