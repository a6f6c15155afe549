// topology.h - what a machine has to compute with, as data: NUMA nodes and their cores, GPUs, how
// the GPUs reach each other. Read from the machine (cluster/machine_probe.h) or from a file
// (cluster/topology_json.h); everything that is decided from it is decided without the machine.
//
// Processors are logical processors as the kernel numbers them; a core has one or more of them.
//
// Thread safety: plain data.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace passel {

struct NumaNode {
  int index = 0;  ///< as the kernel numbers it
  /// [core] its processors, ascending; only those that this process may use. May be empty.
  std::vector<std::vector<int>> cores;

  /// All of them, ascending.
  std::vector<int> Processors() const;
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

/// A part of a GPU that counts as a GPU of its own.
struct MigInstance {
  std::string uuid;  ///< "MIG-..."
  std::string name;  ///< "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
  std::uint64_t memory_bytes = 0;
  friend bool operator==(const MigInstance&, const MigInstance&) = default;
};

struct Gpu {
  int index = 0;     ///< as nvidia-smi numbers it: in order of PCI addresses
  std::string uuid;  ///< "GPU-..."; "" where only an instance of it is known
  std::string name;
  std::uint64_t memory_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0
  std::string pci_address;     ///< "0000:1b:00.0"; "" if not known
  std::optional<int> numa_node;
  bool mig_enabled = false;  ///< then nothing runs on the GPU itself, only on instances
  std::vector<MigInstance> mig_instances;
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

/// Between two GPUs, the lower index first. False also where it is not known.
struct GpuLink {
  int first = 0, second = 0;
  /// As in the matrix of nvidia-smi: PIX, PXB, PHB, NODE or SYS; "" if not known.
  std::string pcie_path;
  bool nvlink = false;
  bool peer_access = false;   ///< one reads and writes the other's memory
  bool peer_atomics = false;  ///< and has native atomics there
  friend bool operator==(const GpuLink&, const GpuLink&) = default;
};

/// The service that lets processes share a GPU at the same time.
enum class MpsState {
  kUnknown,  ///< there is a control pipe, but who reads it cannot be seen from here
  kStopped,
  kRunning,
};
std::string_view MpsStateName(MpsState state);  ///< "unknown", "stopped", "running"

struct Topology {
  /// The name of the file, or "this machine": for messages.
  std::string origin;
  std::string driver_version;  ///< "580.159.03"; "" without a driver
  std::string cuda_version;    ///< that the driver supports, "13.0"; "" if not known
  /// Why `gpus` is empty, in one sentence without a full stop; "" if it is not.
  std::string no_gpu_reason;
  MpsState mps = MpsState::kStopped;
  /// NVML, which tells of GPUs, was missing: `gpus` is the one that CUDA shows first, within what
  /// CUDA_VISIBLE_DEVICES left.
  bool without_nvml = false;
  /// Processors that the CPU quota pays for; 0: no quota.
  int processor_quota = 0;
  std::vector<NumaNode> numa_nodes;  ///< at least one, ascending
  std::vector<Gpu> gpus;             ///< [index]
  std::vector<GpuLink> links;        ///< at most one for each pair

  /// Null if there is none.
  const NumaNode* FindNode(int index) const;
  /// In any order. Null if nothing is known of the pair.
  const GpuLink* FindLink(int one, int other) const;
  int NumCores() const;
  int NumProcessors() const;
  friend bool operator==(const Topology&, const Topology&) = default;
};

/// One node of which only the processors are known, each taken for a core.
Topology FlatTopology(std::span<const int> processors);

/// What it means that a topology was read without NVML, and the remedy.
inline constexpr std::string_view kWithoutNvml =
    "NVML (libnvidia-ml.so.1) is missing, so only the first GPU is known, and not which processors "
    "are near it: in a container, start that with NVIDIA_DRIVER_CAPABILITIES=compute,utility";

/// "0-3,8" for ascending `numbers`; "-" for none.
std::string FormatNumberList(std::span<const int> numbers);
/// The numbers of "0-3,8"; nothing for anything else, or a number above `max`.
std::optional<std::vector<int>> ParseNumberList(std::string_view text, int max);

/// What one `passel topology` prints: machine, GPUs, links, NUMA nodes. Ends with '\n'.
std::string DescribeTopology(const Topology& topology);

}  // namespace passel
