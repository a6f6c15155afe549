// server_lines.h - what the framework under the reference programs logs about servers and sessions,
// for tasks of this project: the same words, about endpoints in place of ports.
//
//   Initialize GrpcChannelCache for job ps -> {0 -> localhost:9001}
//   Started server with target: grpc://localhost:9002
//   Start master session 38a6ec7a5e0b4b7d with config: allow_soft_placement: true
//
// Lines have no end of line; they belong on standard error.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster_spec.h"
#include "train/log_lines.h"

namespace passel {

/// Whether the program of that style shows such lines.
bool TellsOfServers(LogStyle style);

/// One line per job.
std::vector<std::string> ChannelLines(const ClusterSpec& spec);

std::string StartedServerLine(const std::string& target);

/// The settings that a session is opened with.
struct SessionConfig {
  std::vector<std::string> device_filters;
  std::optional<double> per_process_gpu_memory_fraction;
  bool allow_soft_placement = false;
  bool log_device_placement = false;
};
/// Only what is set is shown.
std::string MasterSessionLine(std::uint64_t session, const SessionConfig& config);

}  // namespace passel
