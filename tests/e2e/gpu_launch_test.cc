// The launcher on GPUs that this machine need not have: plans of recorded machines against golden
// files, refusals, and real starts beside a driver's library that answers as a recorded machine.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/subprocess.h"
#include "cluster/topology_json.h"
#include "support/program.h"
#include "support/recorded_topologies.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTopologies = std::string(PASSEL_SOURCE_DIR) + "/tests/data/topologies/";

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kTopologies + "golden")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// `train --dry_run` with the flags of a line, in which --topology names a file of the folder.
std::vector<std::string> DryRun(const std::string& line) {
  std::vector<std::string> arguments = {"train", "--dry_run"};
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (!arguments.empty() && arguments.back() == "--topology") word = kTopologies + word;
    arguments.push_back(word);
  }
  return arguments;
}

class GoldenPlanTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenPlanTest, IsPrintedExactly) {
  const std::string golden = ReadText(kTopologies + "golden/" + GetParam() + ".txt");
  const std::size_t end = golden.find('\n');
  ASSERT_NE(end, std::string::npos);
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(DryRun(golden.substr(0, end)));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, golden.substr(end + 1));
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(sandbox.Leftovers(), "");
}

INSTANTIATE_TEST_SUITE_P(Recorded, GoldenPlanTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST(GoldenPlanTest, EveryRecordedMachineHasOne) {
  const std::vector<std::string> names = GoldenNames();
  for (const std::string& machine : RecordedTopologies()) {
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(machine + ".");
    })) << machine;
  }
}

// All that the launcher refuses is in tests/unit/job/launch_setup_test.cc.
struct BadLaunch {
  const char* name;
  const char* flags;  // after `train --dry_run`
  std::vector<const char*> words;
};

class BadLaunchTest : public ::testing::TestWithParam<BadLaunch> {};

TEST_P(BadLaunchTest, IsRefusedInOneSentence) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(DryRun(GetParam().flags));
  EXPECT_EQ(outcome.code, 2) << outcome.err << outcome.out;
  ASSERT_EQ(outcome.errors.size(), 1u) << outcome.err;
  for (const char* word : GetParam().words) EXPECT_THAT(outcome.errors[0], HasSubstr(word));
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(sandbox.Leftovers(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadLaunchTest,
    ::testing::Values(
        BadLaunch{"UnknownUuid",
                  "--gpus GPU-ffff0000 --topology dgx-h100.json",
                  {"--gpus", "GPU-ffff0000", "passel topology"}},
        BadLaunch{"FewerGpusThanWorkersOfThePreset",
                  "--preset mnist-replica --gpus 0,1 --workers 3 --topology a100-pcie-4.json",
                  {"number of gpus is less than number of workers"}}),
    [](const auto& test) { return test.param.name; });

TEST(LaunchFlagsTest, LaunchCountsItsWorkersByTheGpus) {
  Sandbox sandbox;
  const std::string file = "--topology=" + kTopologies + "a100-pcie-4.json";
  const Outcome outcome = sandbox.Run({"launch", "ps=1", "--gpus=all", "--dry_run", file});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("worker/3"), Not(HasSubstr("worker/4"))));
  const Outcome few = sandbox.Run({"launch", "ps=1", "worker=2", "--gpus=all", "--dry_run", file});
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, HasSubstr("worker=2 would leave 2 of them idle"));
}

// A preset's number of workers is a default, and --gpus sets it.
TEST(LaunchFlagsTest, APresetsWorkersGiveWayToTheGpus) {
  Sandbox sandbox;
  const Outcome outcome =
      sandbox.Run(DryRun("--preset mnist-replica --gpus 0,1,2 --topology a100-pcie-4.json"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("worker/2"), Not(HasSubstr("worker/3"))));
}

TEST(LaunchFlagsTest, TheGpusOfAFileCount) {
  Sandbox sandbox;
  const std::string config = sandbox.dir().File("c.yaml");
  WriteText(config, "gpus: [1, 3]\nworkers_per_gpu: 2\nbind: none\n");
  const Outcome outcome = sandbox.Run({"train", "--dry_run", "--config=" + config,
                                       "--topology=" + kTopologies + "a100-pcie-4.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("worker/3"), Not(HasSubstr("worker/4")), HasSubstr("binding: none")));
}

TEST(TopologyCommandTest, ShowsThisMachineAndRecordsIt) {
  Sandbox sandbox;
  sandbox.SetEnv("LD_LIBRARY_PATH", PASSEL_FAKE_NVML_DIR);
  sandbox.SetEnv("PASSEL_FAKE_NVML", TopologyPath("h100-mig"));
  sandbox.SetEnv("CUDA_MPS_PIPE_DIRECTORY", sandbox.dir().path());
  const Outcome shown = sandbox.Run({"topology"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("2 GPUs"), HasSubstr("0:6: NVIDIA H100"), HasSubstr("MPS stopped")));
  const Outcome recorded = sandbox.Run({"topology", "--json"});
  EXPECT_EQ(recorded.code, 0) << recorded.err;
  const std::string file = sandbox.dir().File("here.json");
  WriteText(file, recorded.out);
  const Result<Topology> topology = ReadTopology(file);
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  EXPECT_EQ(topology->gpus.size(), 2u);
  EXPECT_EQ(topology->NumProcessors(), static_cast<int>(AffinityCpus().size()));
  const Outcome again = sandbox.Run({"topology", "--file=" + file, "--json"});
  EXPECT_EQ(again.out, recorded.out);
  // And a plan can be made on it.
  const Outcome plan = sandbox.Run({"train", "--dry_run", "--gpus=all", "--topology=" + file});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("worker/7"));
}

TEST(TopologyCommandTest, SaysWhyThereIsNoGpu) {
  Sandbox sandbox;
  sandbox.SetEnv("LD_LIBRARY_PATH", PASSEL_FAKE_NVML_DIR);
  sandbox.SetEnv("PASSEL_FAKE_NVML_INIT", "9");
  const Outcome outcome = sandbox.Run({"topology"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("no GPU: the NVIDIA driver is installed, but its kernel"));
}

// A sandbox on a machine with the GPUs of a recorded one. Its GPU code is a file that is none: what
// is tested here is what comes before it is opened.
class GpuMachine {
 public:
  explicit GpuMachine(const std::string& name) {
    sandbox.SetEnv("LD_LIBRARY_PATH", PASSEL_FAKE_NVML_DIR);
    sandbox.SetEnv("PASSEL_FAKE_NVML", TopologyPath(name));
    sandbox.SetEnv("CUDA_MPS_PIPE_DIRECTORY", sandbox.runtime());
    const std::string plugin = sandbox.dir().File("libpassel_cuda.so");
    WriteText(plugin, "no library\n");
    sandbox.SetEnv("PASSEL_BACKEND_PATH", plugin);
  }
  Sandbox sandbox;
};

// The value of a variable in the environment of a process; "(unset)" without it.
std::string Variable(pid_t pid, const std::string& name) {
  const std::string all = ReadText(fmt::format("/proc/{}/environ", pid));
  std::istringstream entries(all);
  for (std::string entry; std::getline(entries, entry, '\0');) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return "(unset)";
}

TEST(GpuLaunchTest, EveryWorkerSeesTheGpuOfItsPlaceAndThePsNone) {
  GpuMachine machine("rtx4090-pcie-2");
  const Topology recorded = Recorded("rtx4090-pcie-2");
  Sandbox& sandbox = machine.sandbox;
  Program train = sandbox.Start(sandbox.Train({"--workers=3", "--train_steps=100000000"}));
  for (int worker = 0; worker < 3; ++worker) {
    const pid_t pid = sandbox.AwaitTask("worker", worker);
    ASSERT_NE(pid, 0) << train.Err();
    EXPECT_EQ(Variable(pid, "CUDA_VISIBLE_DEVICES"),
              recorded.gpus[static_cast<std::size_t>(worker % 2)].uuid);
    EXPECT_EQ(Variable(pid, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  }
  EXPECT_EQ(Variable(sandbox.AwaitTask("ps", 0), "CUDA_VISIBLE_DEVICES"), "");
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  train.Signal(SIGINT);
  const Outcome outcome = sandbox.Finish(train);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("worker/1: GPU 1 (NVIDIA GeForce RTX 4090, " + recorded.gpus[1].uuid),
                    HasSubstr("2 workers share GPU 0 and MPS is not running"),
                    HasSubstr("parameters in host memory (--arena host); hogwild: 3 workers each "
                              "make updates of 100 examples, without waiting for each other")));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// passel run: the GPU code of ours is not needed.
TEST(GpuLaunchTest, EveryWorkerOfAProgramSeesTheGpuOfItsPlaceAlone) {
  GpuMachine machine("rtx4090-pcie-2");
  const Topology recorded = Recorded("rtx4090-pcie-2");
  Sandbox& sandbox = machine.sandbox;
  sandbox.SetEnv("PASSEL_BACKEND_PATH", sandbox.dir().path() + "/none");
  const std::vector<std::string> program = {
      "--", "/bin/sh", "-c", "echo $WORLD_SIZE: $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"};
  for (const int workers : {2, 3}) {
    std::vector<std::string> flags = {"run", "--gpus=all"};  // one each
    if (workers == 3) flags.emplace_back("--workers=3");
    const Outcome outcome = sandbox.Run(With(flags, program));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    for (int worker = 0; worker < workers; ++worker) {
      const Gpu& gpu = recorded.gpus[static_cast<std::size_t>(worker % 2)];
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("worker/{}: {}: {} PCI_BUS_ID\n", worker,
                                                     workers, gpu.uuid)));
      EXPECT_THAT(outcome.err, HasSubstr(fmt::format("worker/{}: GPU {} (", worker, worker % 2)));
    }
    EXPECT_THAT(outcome.err, HasSubstr("each worker sees its GPU alone, as device 0"));
  }
  EXPECT_THAT(OnlyError(sandbox.Run(With({"run", "--gpus=0,7"}, program))), HasSubstr("7"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(GpuLaunchTest, CudaIsAnErrorWhereTheGpuCodeCannotBeOpened) {
  GpuMachine machine("rtx4090-pcie-2");
  const Outcome outcome = machine.sandbox.Run(machine.sandbox.Train({"--gpus=all"}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_GE(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_EQ(machine.sandbox.Leftovers(), "");
}

TEST(GpuLaunchTest, WithoutTheGpuCodeGpusAreRefusedAndAutoTrainsOnTheCpu) {
  GpuMachine machine("rtx4090-pcie-2");
  Sandbox& sandbox = machine.sandbox;
  sandbox.SetEnv("PASSEL_BACKEND_PATH", sandbox.dir().path() + "/none");
  const Outcome refused = sandbox.Run(sandbox.Train({"--gpus=all"}));
  EXPECT_EQ(refused.code, 2);
  ASSERT_EQ(refused.errors.size(), 1u) << refused.err;
  EXPECT_THAT(refused.errors[0],
              AllOf(HasSubstr("--gpus all"), HasSubstr("GPU plugin"), HasSubstr("--device cpu")));
  const Outcome trained = sandbox.Run(sandbox.Train({"--train_steps=50"}));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("computing on the CPU: there is no GPU plugin"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// "Build the GPU code" is no help where the driver is missing.
TEST(GpuLaunchTest, WhereTheDriverIsMissingEveryFlagSaysThatFirst) {
  GpuMachine machine("rtx4090-pcie-2");
  Sandbox& sandbox = machine.sandbox;
  sandbox.SetEnv("PASSEL_BACKEND_PATH", sandbox.dir().path() + "/none");
  sandbox.SetEnv("PASSEL_FAKE_NVML_INIT", "9");
  const auto is_about_the_driver =
      AllOf(HasSubstr("the NVIDIA driver is installed, but its kernel module is not loaded"),
            Not(HasSubstr("GPU plugin")));
  for (const char* flag : {"--gpus=0", "--device=cuda"}) {
    const Outcome refused = sandbox.Run(sandbox.Train({flag}));
    EXPECT_EQ(refused.code, 2) << flag;
    ASSERT_EQ(refused.errors.size(), 1u) << refused.err;
    EXPECT_THAT(refused.errors[0],
                AllOf(HasSubstr(flag == std::string("--gpus=0") ? "--gpus 0" : "--device cuda"),
                      is_about_the_driver));
  }
  EXPECT_THAT(sandbox.Run(sandbox.Train({"--train_steps=20"})).err, is_about_the_driver);
  EXPECT_THAT(sandbox.Run(sandbox.Train({"--train_steps=20", "--num_gpus=1"})).err,
              AllOf(HasSubstr("not on gpu:0 (--num_gpus 1)"), is_about_the_driver));
  EXPECT_THAT(sandbox.Run(sandbox.Task("worker", 0, 1, 1, {"--device=cuda"})).err,
              AllOf(HasSubstr("--device cuda"), is_about_the_driver));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(GpuLaunchTest, AMachineWithoutADriverTrainsOnTheCpuAndSaysWhyInOneLine) {
  for (const char* device : {"", "--device=auto", "--device=cpu"}) {
    GpuMachine machine("rtx4090-pcie-2");
    Sandbox& sandbox = machine.sandbox;
    sandbox.SetEnv("PASSEL_FAKE_NVML_INIT", "9");
    std::vector<std::string> arguments = sandbox.Train({"--train_steps=50"});
    if (*device != '\0') arguments.emplace_back(device);
    const Outcome outcome = sandbox.Run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string reason = "computing on the CPU: ";
    const std::size_t first = outcome.err.find(reason);
    if (std::string(device) == "--device=cpu") {
      EXPECT_EQ(first, std::string::npos) << outcome.err;
      continue;
    }
    ASSERT_NE(first, std::string::npos) << outcome.err;
    EXPECT_THAT(outcome.err.substr(first), HasSubstr("kernel module is not loaded"));
    EXPECT_EQ(outcome.err.find(reason, first + 1), std::string::npos) << outcome.err;
  }
}

TEST(GpuLaunchTest, AGpuThatIsLostIsNamed) {
  GpuMachine machine("rtx4090-pcie-2");
  Sandbox& sandbox = machine.sandbox;
  sandbox.SetEnv("PASSEL_FAKE_NVML_LOST", "1");
  const Outcome refused = sandbox.Run(sandbox.Train({"--gpus=0"}));
  EXPECT_NE(refused.code, 0);
  ASSERT_EQ(refused.errors.size(), 1u) << refused.err;
  EXPECT_THAT(refused.errors[0], HasSubstr("cannot open GPU 1: GPU is lost"));
  const Outcome trained = sandbox.Run(sandbox.Train({"--train_steps=50"}));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("computing on the CPU: the NVIDIA driver cannot open GPU 1"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// A driver that wakes up slowly holds nobody up after the launcher was killed.
TEST(GpuLaunchTest, TheProbeDiesWithTheLauncher) {
  GpuMachine machine("rtx4090-pcie-2");
  Sandbox& sandbox = machine.sandbox;
  sandbox.SetEnv("PASSEL_FAKE_NVML_SLEEP", "60");
  Program train = sandbox.Start(sandbox.Train({"--gpus=all"}));
  const auto probe_runs = [&] {
    const auto processes = sandbox.Processes();
    return std::any_of(processes.begin(), processes.end(), [](const auto& process) {
      return process.second.find("--output_fd") != std::string::npos;
    });
  };
  for (int i = 0; i < 200 && !probe_runs(); ++i) {
    std::this_thread::sleep_for(Scaled(std::chrono::milliseconds(25)));
  }
  ASSERT_TRUE(probe_runs()) << train.Err();
  train.Signal(SIGKILL);
  sandbox.Finish(train);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(BindTest, TheNumaNodeOfThisMachineIsAllOfItsProcessorsForUs) {
  Sandbox sandbox;
  Program train =
      sandbox.Start(sandbox.Train({"--bind=numa", "--workers=1", "--train_steps=100000000"}));
  const pid_t pid = sandbox.AwaitTask("worker", 0);
  ASSERT_NE(pid, 0) << train.Err();
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(pid, sizeof mask, &mask), 0);
  const std::vector<int> ours = AffinityCpus();
  int count = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) continue;
    ++count;
    EXPECT_TRUE(std::find(ours.begin(), ours.end(), cpu) != ours.end()) << cpu;
  }
  EXPECT_GE(count, 1);
  train.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(train).code, 130);
}

}  // namespace
}  // namespace passel::testing
