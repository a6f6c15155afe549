// server_lines.h - what the framework under the reference programs logs about servers and sessions,
// for tasks of this project: the same words, about endpoints in place of ports.
//
//   Initialize GrpcChannelCache for job ps -> {0 -> localhost:9001}
//   Started server with target: grpc://localhost:9002
//   Start master session 38a6ec7a5e0b4b7d with config: allow_soft_placement: true
//   CreateSession still waiting for response from worker: /job:ps/replica:0/task:0
//
// Lines have no end of line; they belong on standard error. Whoever imitates no program is plain.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster_spec.h"
#include "train/log_lines.h"

namespace passel {

/// Whether the program of that style shows them.
bool TellsOfServers(LogStyle style);

/// One line per job.
std::vector<std::string> ChannelLines(const ClusterSpec& spec);

/// `address`: "localhost:9002".
std::string StartedServerLine(const std::string& address);

/// That a task waits for `task`, "ps/0": in the words of the framework where `style` imitates a
/// program, plainly elsewhere.
std::string WaitingLine(LogStyle style, std::string_view task);

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
