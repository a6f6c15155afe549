// What the launcher says of machines: plans for recorded ones that cannot be. Those that can be are
// in tests/e2e/gpu_launch_test.cc, as the program prints them.

#include "job/launch_setup.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "job/exit_code.h"
#include "tests/unit/job/settings_of.h"

namespace passel::job::testing {
namespace {

struct BadLaunch {
  const char* name;
  std::vector<std::string> flags;
  std::string topology;  // a file of tests/data/topologies; "": this machine, not looked at
  std::vector<std::string> says;
  bool gpu_per_worker = false;  // as a preset wants it
};

// Before --dry_run prints anything.
Status CheckLaunch(const BadLaunch& launch) {
  TrainSettings settings;
  settings.launch.dry_run = true;
  settings.gpu_per_worker = launch.gpu_per_worker;
  if (!launch.topology.empty()) {
    settings.launch.topology =
        std::string(PASSEL_SOURCE_DIR) + "/tests/data/topologies/" + launch.topology;
  }
  Give(launch.flags, &settings);
  const Result<JobConfig> config = CheckTrainSettings(&settings);
  return config.ok() ? SetUpLaunch(settings, *config).status() : config.status();
}

class BadLaunchTest : public ::testing::TestWithParam<BadLaunch> {};

TEST_P(BadLaunchTest, IsRefusedInOneSentence) {
  const Status status = CheckLaunch(GetParam());
  EXPECT_EQ(ExitCodeFor(status), kExitUsage) << status.message();
  for (const std::string& words : GetParam().says) {
    EXPECT_NE(status.message().find(words), std::string::npos)
        << words << " in " << status.message();
  }
}

const BadLaunch kBadLaunches[] = {
    {"UnknownUuid",
     {"--gpus=GPU-ffff0000"},
     "dgx-h100.json",
     {"--gpus", "GPU-ffff0000", "passel topology"}},
    {"IndexOutOfRange", {"--gpus=8"}, "dgx-h100.json", {"GPU 8", "0 to 7"}},
    {"Duplicate", {"--gpus=1,1"}, "dgx-h100.json", {"GPU 1", "twice"}},
    {"LockedUnderMps",
     {"--gpus=0", "--workers_per_gpu=2", "--arena=device", "--mode=locked"},
     "a100-pcie-4.json",
     {"locked with --arena device", "under MPS", "at most 1 worker on each GPU", "not 2 on 1",
      "--mode hogwild"}},
    {"LockedLaterUnderMps",
     {"--gpus=0", "--workers_per_gpu=3", "--arena=device", "--mode_schedule=100:locked"},
     "a100-pcie-4.json",
     {"locked with --arena device", "not 3 on 1"}},
    {"MigParent", {"--gpus=0"}, "h100-mig.json", {"GPU 0", "split by MIG", "0:0 to 0:6"}},
    {"NoGpu", {"--gpus=all"}, "no-gpu.json", {"no NVIDIA driver", "--device cpu"}},
    {"NoGpuForDevice", {"--device=cuda"}, "no-gpu.json", {"--device cuda", "no NVIDIA driver"}},
    {"MoreWorkersThanCores",
     {"--gpus=all", "--workers_per_gpu=20", "--bind=core"},
     "dgx-h100.json",
     {"80 cores", "NUMA node 0", "has 56"}},
    {"MoreCpuWorkersThanProcessors",
     {"--workers=17", "--bind=core"},
     "no-gpu.json",
     {"17", "16 processors"}},
    {"NodeNotKnown",
     {"--gpus=all", "--bind=numa"},
     "a100-vm-4.json",
     {"NUMA node of GPU 0", "--bind none"}},
    {"ContradictingWorkers",
     {"--gpus=all", "--workers_per_gpu=2", "--workers=3"},
     "a100-pcie-4.json",
     {"4 GPUs", "--workers_per_gpu 2", "8 workers", "--workers 3"}},
    {"FewerWorkersThanGpus",
     {"--gpus=all", "--workers=3"},
     "a100-pcie-4.json",
     {"4 GPUs", "--workers 3", "1 of them idle"}},
    {"FewerGpusThanWorkersOfThePreset",
     {"--gpus=0,1", "--workers=3"},
     "a100-pcie-4.json",
     {"number of gpus is less than number of workers"},
     true},
    {"SharedGpuUnderThePreset",
     {"--gpus=0", "--workers_per_gpu=2"},
     "dgx-h100.json",
     {"number of gpus is less than number of workers"},
     true},
    {"TooManyWorkers",
     {"--gpus=all", "--workers_per_gpu=256"},
     "dgx-h100.json",
     {"256 workers", "2048"}},
    {"GpusOnTheCpu",
     {"--gpus=0", "--device=cpu"},
     "dgx-h100.json",
     {"--gpus 0", "--device cpu", "omit one"}},
    {"TwoNames",
     {"--gpus=0", "--device=cuda:GPU-1"},
     "dgx-h100.json",
     {"--gpus 0", "--device cuda:GPU-1"}},
    {"ArenaWithoutNvlink",
     {"--gpus=all", "--arena=device"},
     "rtx4090-pcie-2.json",
     {"--arena device", "GPU 1 (GPU-", "has no NVLink, but a PCIe path (PHB), to GPU 0",
      "--gpus 0 --workers_per_gpu 2", "--arena host"}},
    {"ArenaWithPcieAccessAlone",
     {"--gpus=2,1", "--workers_per_gpu=2", "--arena=device"},
     "a100-pcie-4.json",
     {"GPU 1 (GPU-", "has no NVLink, but a PCIe path (SYS), to GPU 2 (GPU-",
      "--gpus 2 --workers_per_gpu 4"}},
    {"ArenaOnBridgesThatDoNotMeet",
     {"--gpus=all", "--arena=device"},
     "a100-bridge-4.json",
     {"GPU 2 (GPU-", "has no NVLink, but a PCIe path (SYS), to GPU 0 (GPU-"}},
    {"ArenaFromAMigInstance",
     {"--gpus=1,0:3", "--arena=device"},
     "h100-mig.json",
     {"MIG-", "is a MIG instance", "a whole GPU"}},
    {"TooLargeShares",
     {"--gpus=0", "--workers_per_gpu=4", "--per_process_gpu_memory_fraction=0.3"},
     "dgx-h100.json",
     {"0.3", "4 workers", "1.2", "at most 0.25"}},
    {"TowersOnAGpu",
     {"--gpus=all", "--towers=2"},
     "dgx-h100.json",
     {"--towers 2", "worker/0 computes on a GPU", "--towers 1"}},
    {"SumsOfGradientsOnAGpu",
     {"--device=cuda", "--push_every=3"},
     "dgx-h100.json",
     {"--push_every 3", "worker/0 computes on a GPU", "--batch_size 3 times"}},
    {"NoFile", {}, "none.json", {"--topology: ", "none.json", "No such file"}},
    {"AFileThatIsNone", {}, "README.md", {"README.md", "not JSON"}},
};

INSTANTIATE_TEST_SUITE_P(Flags, BadLaunchTest, ::testing::ValuesIn(kBadLaunches),
                         [](const auto& test) { return test.param.name; });

TEST(LaunchSetupTest, ARecordedMachineIsForDryRunsAlone) {
  TrainSettings settings;
  settings.launch.topology = "dgx-h100.json";
  const Result<JobConfig> config = CheckTrainSettings(&settings);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Status status = SetUpLaunch(settings, *config).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("--dry_run"), std::string::npos) << status.message();
}

TEST(LaunchSetupTest, WorkersFollowFromTheGpus) {
  TrainSettings settings;
  settings.launch.dry_run = true;
  settings.launch.topology =
      std::string(PASSEL_SOURCE_DIR) + "/tests/data/topologies/a100-pcie-4.json";
  Give({"--gpus=all", "--workers_per_gpu=2"}, &settings);
  const Result<JobConfig> config = CheckTrainSettings(&settings);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Result<LaunchSetup> setup = SetUpLaunch(settings, *config);
  ASSERT_TRUE(setup.ok()) << setup.status().message();
  EXPECT_EQ(setup->workers, 8);
  EXPECT_EQ(setup->num_gpus, 4);
  EXPECT_FALSE(setup->may_fall_back);
}

}  // namespace
}  // namespace passel::job::testing
