#include "cluster/machine_probe.h"

#include <fmt/core.h>
#include <hwloc.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "base/subprocess.h"

namespace passel {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

Status HwlocProblem(const char* what, int error) {
  return Internal(fmt::format("hwloc cannot {} ({}): use --bind none, which needs no topology",
                              what, std::strerror(error)));
}

}  // namespace

Status ProbeProcessors(Topology* topology) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return HwlocProblem("begin", errno);
  const HwlocTopology machine(raw);
  if (hwloc_topology_load(raw) != 0) return HwlocProblem("read this machine", errno);
  const std::vector<int> allowed = AffinityCpus();
  const std::set<int> usable(allowed.begin(), allowed.end());
  // NUMA node -> core (its first processor's logical place) -> processors
  std::map<int, std::map<unsigned, std::vector<int>>> nodes;
  for (hwloc_obj_t pu = nullptr;
       (pu = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const int processor = static_cast<int>(pu->os_index);
    if (!usable.contains(processor)) continue;
    // A core may have near it, say, a node of fast and one of slow memory: the first stands for it.
    const int node = pu->nodeset == nullptr ? 0 : std::max(0, hwloc_bitmap_first(pu->nodeset));
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(raw, HWLOC_OBJ_CORE, pu);
    nodes[node][core == nullptr ? pu->logical_index : core->logical_index].push_back(processor);
  }
  if (nodes.empty()) return HwlocProblem("find a processor that this process may use", ENOENT);
  topology->numa_nodes.clear();
  for (auto& [index, cores] : nodes) {
    NumaNode& node = topology->numa_nodes.emplace_back();
    node.index = index;
    for (auto& [place, processors] : cores) {
      std::sort(processors.begin(), processors.end());
      node.cores.push_back(std::move(processors));
    }
  }
  const std::size_t paid = UsableCpus().size();
  topology->processor_quota = paid < allowed.size() ? static_cast<int>(paid) : 0;
  return {};
}

MpsState ProbeMps(const std::string& pipe_directory) {
  // The daemon writes its process id there.
  std::ifstream file(pipe_directory + "/nvidia-cuda-mps-control.pid");
  long pid = 0;
  if (file >> pid && pid > 0 && pid <= 1L << 22 &&
      (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM)) {
    return MpsState::kRunning;
  }
  struct stat status {};
  return ::stat((pipe_directory + "/control").c_str(), &status) == 0 ? MpsState::kUnknown
                                                                     : MpsState::kStopped;
}

Result<Topology> ProbeMachine(const ProbeOptions& options) {
  Topology topology;
  topology.origin = "this machine";
  PASSEL_RETURN_IF_ERROR(ProbeProcessors(&topology));
  PASSEL_RETURN_IF_ERROR(ProbeGpus(options, &topology));
  std::string pipes = options.mps_pipe_directory;
  if (pipes.empty()) {
    const char* const set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    pipes = set != nullptr && *set != '\0' ? set : "/tmp/nvidia-mps";
  }
  if (topology.mps != MpsState::kRunning) topology.mps = ProbeMps(pipes);
  // GPUs at nodes of which we may use no processor.
  for (const Gpu& gpu : topology.gpus) {
    if (!gpu.numa_node || topology.FindNode(*gpu.numa_node) != nullptr) continue;
    NumaNode node;
    node.index = *gpu.numa_node;
    topology.numa_nodes.push_back(std::move(node));
    std::sort(topology.numa_nodes.begin(), topology.numa_nodes.end(),
              [](const NumaNode& a, const NumaNode& b) { return a.index < b.index; });
  }
  return topology;
}

}  // namespace passel
