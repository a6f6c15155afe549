// topology_json.h - a machine's topology as a JSON text: what `passel topology --json` writes and
// `passel train --dry_run --topology FILE` reads. docs/gpus.md describes the format.
//
//   {"passel_topology": 1,
//    "driver_version": "580.159.03", "cuda_version": "13.0", "mps": "stopped",
//    "numa_nodes": [{"index": 0, "cores": ["0,56", "1,57"]}],
//    "gpus": [{"uuid": "GPU-...", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85520809984,
//              "compute_capability": "9.0", "pci_address": "0000:1b:00.0", "numa_node": 0}],
//    "links": [{"gpus": [0, 1], "pcie_path": "NODE", "nvlink": true, "peer_access": true,
//               "peer_atomics": true}]}
//
// The reader takes nothing for granted: unknown and missing keys, values out of range, UUIDs and
// processors that come twice, nodes and GPUs that are named but not there are errors.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cluster/topology.h"

namespace passel {

inline constexpr std::size_t kMaxTopologyBytes = 1 << 20;
inline constexpr std::size_t kMaxReasonBytes = 1000;  ///< of Topology::no_gpu_reason
inline constexpr int kMaxGpus = 64;
inline constexpr int kMaxMigInstances = 16;  ///< of one GPU
inline constexpr int kMaxNumaNodes = 256;
inline constexpr int kMaxProcessor = 1023;  ///< the highest number that a CPU set can hold

/// `origin` names the text in messages and becomes Topology::origin.
/// Errors: kInvalidArgument; kResourceExhausted above kMaxTopologyBytes.
Result<Topology> ParseTopology(std::string_view origin, std::string_view text);

/// The file `path`. Errors: also those of ReadFile().
Result<Topology> ReadTopology(const std::string& path);

/// ParseTopology() of it gives the same topology but for the origin. Indented; ends with '\n'.
std::string TopologyToJson(const Topology& topology);

}  // namespace passel
