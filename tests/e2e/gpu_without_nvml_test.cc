// Jobs on a machine that has a driver but not its management library, as in a container that was
// started with NVIDIA_DRIVER_CAPABILITIES=compute. What the emulated GPU shows is all that is
// known.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/topology_json.h"
#include "e2e/emulated_gpu.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMissing = "no NVIDIA driver is installed, since libnvidia-ml.so.1 is not there";

class GpuWithoutNvmlTest : public EmulatedGpuTest {
 protected:
  GpuWithoutNvmlTest() : EmulatedGpuTest("no-gpu") {
    // On a machine with a driver the loader finds this file first, and no library in it.
    WriteText(sandbox_.dir().File("libnvidia-ml.so.1"), "no library\n");
    sandbox_.SetEnv("LD_LIBRARY_PATH", sandbox_.dir().path());
  }
  void TearDown() override { EXPECT_EQ(sandbox_.Leftovers(), ""); }

  Result<Topology> ReadMachine() {
    const Outcome outcome = sandbox_.Run({"topology", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return ParseTopology("this machine", outcome.out);
  }
};

TEST_F(GpuWithoutNvmlTest, TheGpuTrainsAndWhatIsNotKnownIsSaidOnce) {
  const Outcome outcome =
      RunSmall({"--device=cuda", "--num_gpus=1", "--workers=2", "--train_steps=300"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(ReadJson(Report()).at("test_accuracy").get<double>(), 0.75);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker/0: GPU 0 (Fake GPU, GPU-fa4e0000-"),
                                 HasSubstr("computing on Fake GPU")));
  const std::string warning = "NVML (libnvidia-ml.so.1) is missing, so only the first GPU is known";
  const std::size_t first = outcome.err.find(warning);
  ASSERT_NE(first, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(warning, first + 1), std::string::npos) << outcome.err;
}

TEST_F(GpuWithoutNvmlTest, AllGpusAreTheOneThatIsVisible) {
  sandbox_.SetEnv("CUDA_VISIBLE_DEVICES", "3");
  const Outcome plan = sandbox_.Run({"train", "--gpus=all", "--dry_run"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("worker/0     0      GPU-fa4e0003-"),
                              HasSubstr("environment of worker/0: CUDA_DEVICE_ORDER=PCI_BUS_ID "
                                        "CUDA_VISIBLE_DEVICES=GPU-fa4e0003-"),
                              HasSubstr("warning: NVML (libnvidia-ml.so.1) is missing"),
                              Not(HasSubstr("worker/1"))));
  const Outcome trained =
      sandbox_.Run(sandbox_.Train({"--gpus=all", "--workers_per_gpu=2", "--arena=device",
                                   "--train_steps=100", "--hidden_units=16"}),
                   120);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("computing on Fake GPU (GPU-fa4e0003-"));
}

TEST_F(GpuWithoutNvmlTest, TheTopologyShowsIt) {
  const Result<Topology> topology = ReadMachine();
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  EXPECT_TRUE(topology->without_nvml);
  ASSERT_EQ(topology->gpus.size(), 1u);
  const Gpu& gpu = topology->gpus[0];
  EXPECT_EQ(gpu.name, "Fake GPU");
  EXPECT_EQ(gpu.uuid, "GPU-fa4e0000-0000-0000-0000-000000000000");
  EXPECT_EQ(gpu.memory_bytes, std::uint64_t{1} << 34);
  EXPECT_EQ(gpu.compute_capability, 90);
  EXPECT_EQ(gpu.pci_address, "");
  EXPECT_EQ(gpu.numa_node, std::nullopt);
  EXPECT_FALSE(gpu.mig_enabled);
  EXPECT_EQ(topology->driver_version, "0.0");
  EXPECT_EQ(topology->mps, MpsState::kStopped);
  const Outcome shown = sandbox_.Run({"topology"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("1 GPU, "), HasSubstr("GPU 0: Fake GPU, GPU-fa4e0000-"),
                               HasSubstr("NVML (libnvidia-ml.so.1) is missing")));
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "mps");
  EXPECT_EQ(ReadMachine()->mps, MpsState::kRunning);
}

TEST_F(GpuWithoutNvmlTest, AnInstanceIsAnInstance) {
  sandbox_.SetEnv("CUDA_VISIBLE_DEVICES", "MIG-12345678");
  const Result<Topology> topology = ReadMachine();
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  ASSERT_EQ(topology->gpus.size(), 1u);
  EXPECT_TRUE(topology->gpus[0].mig_enabled);
  EXPECT_EQ(topology->gpus[0].uuid, "");
  ASSERT_EQ(topology->gpus[0].mig_instances.size(), 1u);
  EXPECT_EQ(topology->gpus[0].mig_instances[0].uuid, "MIG-12345678");
  const Outcome plan = sandbox_.Run({"train", "--gpus=all", "--dry_run"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("worker/0     0:0    MIG-12345678"),
                              HasSubstr("refused: GPU 0:0 is a MIG instance")));
}

TEST_F(GpuWithoutNvmlTest, WhereThePluginFindsNoneBothAreSaid) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "none");
  const auto both =
      AllOf(HasSubstr(kMissing),
            HasSubstr("; the GPU plugin says: there is no GPU: PASSEL_FAKE_GPU says so"));
  for (const char* flag : {"--gpus=all", "--device=cuda"}) {
    const Outcome refused = sandbox_.Run(sandbox_.Train({flag}));
    EXPECT_EQ(refused.code, 2) << flag;
    ASSERT_EQ(refused.errors.size(), 1u) << refused.err;
    EXPECT_THAT(refused.errors[0], both);
  }
  const Outcome trained = sandbox_.Run(sandbox_.Train({"--train_steps=20"}));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("computing on the CPU: "), both));
  EXPECT_THAT(sandbox_.Run({"topology"}).out, both);
}

TEST_F(GpuWithoutNvmlTest, AGpuThatIsNotReadyIsToBeAskedAgain) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "later=1,1000");
  const Outcome refused = sandbox_.Run(sandbox_.Train({"--device=cuda"}));
  EXPECT_EQ(refused.code, 143) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr(kMissing), HasSubstr("error 807")));
}

TEST_F(GpuWithoutNvmlTest, WithoutAPluginNobodyElseIsAsked) {
  sandbox_.SetEnv("PASSEL_BACKEND_PATH", sandbox_.dir().File("none"));
  const Outcome trained = sandbox_.Run(sandbox_.Train({"--train_steps=20"}));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("computing on the CPU: " + kMissing + "\n"));
}

// A task that is started by hand takes the GPU of its place in the list.
TEST_F(GpuWithoutNvmlTest, RanksTakeTheGpusOfTheListInTurn) {
  sandbox_.SetEnv("CUDA_VISIBLE_DEVICES", "4,6");
  sandbox_.SetEnv("RANK", "1");
  sandbox_.SetEnv("LOCAL_RANK", "1");
  sandbox_.SetEnv("WORLD_SIZE", "2");
  sandbox_.SetEnv("LOCAL_WORLD_SIZE", "2");
  sandbox_.SetEnv("MASTER_ADDR", "127.0.0.1");
  sandbox_.SetEnv("MASTER_PORT", "29500");
  const Outcome outcome = sandbox_.Run({"task", "--print_config"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("gpu:1"));
}

}  // namespace
}  // namespace passel::testing
