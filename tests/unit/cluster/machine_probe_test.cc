// Reading a machine: the fake driver answers as recorded machines do (tests/support/fake_nvml.cc),
// processors are those of this one.

#include "cluster/machine_probe.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/subprocess.h"
#include "support/recorded_topologies.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Recorded;
using testing::RecordedTopologies;
using testing::TopologyPath;

class TempFolder : public test::TempDir {
 public:
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = File(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
};

// Sets a variable for as long as it lives.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// What the probe finds on a machine with the GPUs of that recorded one.
Result<Topology> ProbeAs(const std::string& name) {
  const Topology recorded = Recorded(name);
  const TempFolder root;
  for (const Gpu& gpu : recorded.gpus) {
    root.Write("sys/bus/pci/devices/" + gpu.pci_address + "/numa_node",
               fmt::format("{}\n", gpu.numa_node.value_or(-1)));
  }
  const ScopedEnv env("PASSEL_FAKE_NVML", TopologyPath(name));
  ProbeOptions options;
  options.nvml_library = PASSEL_FAKE_NVML_LIBRARY;
  options.root = root.path();
  Topology probed;
  const Status status = ProbeGpus(options, &probed);
  if (!status.ok()) return status;
  return probed;
}

TEST(GpuProbeTest, FindsTheGpusInstancesAndLinksOfEveryRecordedMachine) {
  for (const std::string& name : RecordedTopologies()) {
    const Topology recorded = Recorded(name);
    if (recorded.gpus.empty()) continue;
    const Result<Topology> probed = ProbeAs(name);
    ASSERT_TRUE(probed.ok()) << probed.status().message();
    EXPECT_EQ(probed->gpus, recorded.gpus) << name;
    EXPECT_EQ(probed->links, recorded.links) << name;
    EXPECT_EQ(probed->driver_version, recorded.driver_version);
    EXPECT_EQ(probed->cuda_version, "13.0");
    EXPECT_EQ(probed->no_gpu_reason, "");
  }
}

TEST(GpuProbeTest, SaysWhyThereIsNoGpu) {
  ProbeOptions options;
  options.nvml_library = "libnvidia-ml-that-nobody-has.so.1";
  Topology topology;
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_THAT(topology.no_gpu_reason, HasSubstr("no NVIDIA driver is installed"));

  options.nvml_library = PASSEL_FAKE_NVML_LIBRARY;
  const ScopedEnv env("PASSEL_FAKE_NVML", TopologyPath("no-gpu"));
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_EQ(topology.no_gpu_reason, "the NVIDIA driver is there, but no GPU");
  {
    const ScopedEnv init("PASSEL_FAKE_NVML_INIT", "9");
    ASSERT_TRUE(ProbeGpus(options, &topology).ok());
    EXPECT_THAT(topology.no_gpu_reason, HasSubstr("kernel module is not loaded"));
  }
  const ScopedEnv init("PASSEL_FAKE_NVML_INIT", "18");
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_THAT(topology.no_gpu_reason, HasSubstr("does not start: some error (NVML error 18)"));
  // A library that is no driver's.
  options.nvml_library = "libm.so.6";
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_THAT(topology.no_gpu_reason, HasSubstr("too old"));
}

// What computes on a GPU may know it where the library that tells of all is missing.
TEST(GpuProbeTest, WithoutNvmlSomebodyElseIsAsked) {
  ProbeOptions options;
  options.nvml_library = "libnvidia-ml-that-nobody-has.so.1";
  options.gpu_without_nvml = [](Topology* topology) -> Status {
    topology->gpus.emplace_back().uuid = "GPU-1";
    topology->driver_version = "580.1";
    return {};
  };
  Topology topology;
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_TRUE(topology.without_nvml);
  EXPECT_EQ(topology.no_gpu_reason, "");
  ASSERT_EQ(topology.gpus.size(), 1u);
  EXPECT_EQ(topology.gpus[0].uuid, "GPU-1");
}

TEST(GpuProbeTest, WithoutNvmlTheReasonHasWhatTheOtherSays) {
  ProbeOptions options;
  options.nvml_library = "libnvidia-ml-that-nobody-has.so.1";
  options.gpu_without_nvml = [](Topology*) { return NotFound("there is no\nGPU"); };
  Topology topology;
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_FALSE(topology.without_nvml);
  EXPECT_EQ(topology.no_gpu_reason,
            "no NVIDIA driver is installed, since libnvidia-ml-that-nobody-has.so.1 is not there; "
            "the GPU plugin says: there is no?GPU");
  // As much of it as a parent reads.
  options.gpu_without_nvml = [](Topology*) { return NotFound(std::string(5000, 'x')); };
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_EQ(topology.no_gpu_reason.size(), kMaxReasonBytes);
  topology.numa_nodes = FlatTopology(std::vector{0}).numa_nodes;
  EXPECT_TRUE(ParseTopology("this machine", TopologyToJson(topology)).ok());
  // One that may answer later is no machine without a GPU.
  options.gpu_without_nvml = [](Topology*) { return Unavailable("not yet"); };
  const Status status = ProbeGpus(options, &topology);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("not yet"));
}

TEST(GpuProbeTest, WhereNvmlIsThereNobodyElseIsAsked) {
  ProbeOptions options;
  bool asked = false;
  options.gpu_without_nvml = [&asked](Topology*) {
    asked = true;
    return Status();
  };
  const ScopedEnv env("PASSEL_FAKE_NVML", TopologyPath("dgx-h100"));
  for (const char* init : {"0", "9", "18"}) {
    const ScopedEnv answer("PASSEL_FAKE_NVML_INIT", init);
    options.nvml_library = PASSEL_FAKE_NVML_LIBRARY;
    Topology topology;
    ASSERT_TRUE(ProbeGpus(options, &topology).ok());
    EXPECT_EQ(topology.gpus.empty(), init != std::string("0"));
  }
  options.nvml_library = "libm.so.6";  // no driver's, but there
  Topology topology;
  ASSERT_TRUE(ProbeGpus(options, &topology).ok());
  EXPECT_FALSE(asked);
  EXPECT_FALSE(topology.without_nvml);
}

TEST(GpuProbeTest, AGpuThatIsLostIsAnError) {
  const ScopedEnv lost("PASSEL_FAKE_NVML_LOST", "2");
  const Status status = ProbeAs("dgx-h100").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cannot open GPU 2: GPU is lost"));
}

TEST(MachineProbeTest, AGpuAtANodeWithoutProcessorsOfOursBringsTheNode) {
  const ScopedEnv env("PASSEL_FAKE_NVML", TopologyPath("dgx-h100"));
  const TempFolder root;
  root.Write("sys/bus/pci/devices/0000:1b:00.0/numa_node", "77\n");
  ProbeOptions options;
  options.nvml_library = PASSEL_FAKE_NVML_LIBRARY;
  options.root = root.path();
  options.mps_pipe_directory = root.path();
  const Result<Topology> topology = ProbeMachine(options);
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  EXPECT_EQ(topology->gpus[0].numa_node, 77);
  EXPECT_EQ(topology->gpus[1].numa_node, std::nullopt);
  ASSERT_NE(topology->FindNode(77), nullptr);
  EXPECT_TRUE(topology->FindNode(77)->cores.empty());
  EXPECT_EQ(topology->mps, MpsState::kStopped);
  // And the text that a parent would be given is one that it takes.
  EXPECT_TRUE(ParseTopology("this machine", TopologyToJson(*topology)).ok());
}

// The daemon's folder may be out of sight of a process that is its client all the same.
TEST(MachineProbeTest, MpsRunsWhereTheGpuSaysSo) {
  const TempFolder root;
  ProbeOptions options;
  options.nvml_library = "libnvidia-ml-that-nobody-has.so.1";
  options.mps_pipe_directory = root.path();
  for (const MpsState known : {MpsState::kRunning, MpsState::kStopped}) {
    options.gpu_without_nvml = [known](Topology* topology) {
      topology->gpus.emplace_back().uuid = "GPU-1";
      topology->mps = known;
      return Status();
    };
    const Result<Topology> topology = ProbeMachine(options);
    ASSERT_TRUE(topology.ok()) << topology.status().message();
    EXPECT_EQ(topology->mps, known);
  }
}

TEST(ProcessorProbeTest, FindsTheProcessorsOfThisProcess) {
  Topology topology;
  ASSERT_TRUE(ProbeProcessors(&topology).ok());
  std::vector<int> found;
  for (const NumaNode& node : topology.numa_nodes) {
    const std::vector<int> processors = node.Processors();
    found.insert(found.end(), processors.begin(), processors.end());
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, AffinityCpus());
}

TEST(ProcessorProbeTest, LeavesOutWhatTheAffinityMaskLeavesOut) {
  const int last = AffinityCpus().back();
  Topology topology;
  Status status;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(last), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    status = ProbeProcessors(&topology);
  }).join();
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(topology.numa_nodes.size(), 1u);
  EXPECT_THAT(topology.numa_nodes[0].cores, ElementsAre(ElementsAre(last)));
}

TEST(MpsProbeTest, LooksForTheDaemonInItsFolder) {
  const TempFolder folder;
  EXPECT_EQ(ProbeMps(folder.path()), MpsState::kStopped);
  EXPECT_EQ(ProbeMps(folder.path() + "/none"), MpsState::kStopped);
  folder.Write("nvidia-cuda-mps-control.pid", fmt::format("{}\n", ::getpid()));
  EXPECT_EQ(ProbeMps(folder.path()), MpsState::kRunning);
  // A daemon that has ended, or one of another container.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  folder.Write("nvidia-cuda-mps-control.pid", fmt::format("{}\n", child));
  EXPECT_EQ(ProbeMps(folder.path()), MpsState::kStopped);
  folder.Write("control", "");
  EXPECT_EQ(ProbeMps(folder.path()), MpsState::kUnknown);
  folder.Write("nvidia-cuda-mps-control.pid", "none");
  EXPECT_EQ(ProbeMps(folder.path()), MpsState::kUnknown);
}

}  // namespace
}  // namespace passel
