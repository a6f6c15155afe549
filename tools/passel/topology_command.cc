// `passel topology`: what this machine has to compute with.

#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/log.h"
#include "cluster/machine_probe.h"
#include "cluster/text.h"
#include "cluster/topology_json.h"
#include "compute/accelerator_loader.h"
#include "job/exit_code.h"
#include "tools/passel/commands.h"

namespace passel {
namespace {

struct TopologyFlags {
  std::string file;
  bool json = false;
  int output_fd = -1;  // of who asked; the answer or the error goes there
};

// "580.159 (CUDA 13.0)", or one half of that.
void ReadDriver(const std::string& text, Topology* topology) {
  constexpr std::string_view kCuda = "CUDA ";
  const std::size_t cuda = text.find(kCuda);
  if (cuda != std::string::npos) {
    const std::size_t version = cuda + kCuda.size();
    topology->cuda_version = Printable(text.substr(version, text.find(')') - version), 64);
  }
  if (cuda != 0) topology->driver_version = Printable(text.substr(0, text.find(" (")), 64);
}

// What computes on a GPU knows it, where the library that tells of all GPUs is missing.
Status FindGpuByPlugin(Topology* topology) {
  SetLogLevel(LogLevel::kWarning);  // whoever computes there says what it found
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Accelerator> accelerator, OpenAccelerator({}));
  const AcceleratorInfo& info = accelerator->info();
  Gpu& gpu = topology->gpus.emplace_back();
  gpu.name = Printable(info.name, 96);
  gpu.memory_bytes = info.memory_bytes;
  gpu.compute_capability = info.compute_capability;
  if (info.uuid.starts_with("MIG-")) {
    gpu.mig_enabled = true;
    gpu.mig_instances.push_back({info.uuid, gpu.name, gpu.memory_bytes});
  } else {
    gpu.uuid = info.uuid;
  }
  if (info.mps) topology->mps = MpsState::kRunning;
  ReadDriver(info.driver, topology);
  return {};
}

Result<Topology> ProbeThisMachine() {
  ProbeOptions options;
  if (FindAcceleratorPlugin().ok()) options.gpu_without_nvml = FindGpuByPlugin;
  return ProbeMachine(options);
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

int TopologyCommand(const TopologyFlags& flags) {
  const Result<Topology> topology =
      flags.file.empty() ? ProbeThisMachine() : ReadTopology(flags.file);
  if (!topology.ok()) {
    if (flags.output_fd >= 0) {
      (void)WriteAll(flags.output_fd, topology.status().message());
    } else {
      LogError("{}", topology.status().message());
    }
    return job::ExitCodeFor(topology.status()) == job::kExitUsage ? job::kExitUsage
                                                                  : job::kExitFailed;
  }
  const std::string text = flags.json ? TopologyToJson(*topology) : DescribeTopology(*topology);
  if (flags.output_fd >= 0)
    return WriteAll(flags.output_fd, text) ? job::kExitDone : job::kExitFailed;
  fmt::print("{}", text);
  if (!flags.json && flags.file.empty()) {
    const Result<std::string> plugin = FindAcceleratorPlugin();
    fmt::print("GPU plugin: {}\n", plugin.ok() ? *plugin : plugin.status().message());
  }
  return job::kExitDone;
}

}  // namespace

void AddTopologyCommand(Command& program) {
  auto flags = std::make_shared<TopologyFlags>();
  Command command = program.AddCommand(
      "topology", "Show this machine: GPUs, links between them, NUMA nodes and cores");
  command.Add("--file", &flags->file, "Show what this file recorded instead");
  command.AddSwitch(
      "--json", &flags->json,
      "As JSON, for passel train --dry_run --topology FILE; docs/gpus.md describes it");
  command.Add("--output_fd", &flags->output_fd, "").Group("");
  command.OnRun([flags] { return TopologyCommand(*flags); });
}

}  // namespace passel
