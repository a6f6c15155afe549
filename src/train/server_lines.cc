#include "train/server_lines.h"

#include <fmt/core.h>

namespace passel {

bool TellsOfServers(LogStyle style) {
  return style == LogStyle::kDistMnist || style == LogStyle::kAsyncSoftmax;
}

std::vector<std::string> ChannelLines(const ClusterSpec& spec) {
  std::vector<std::string> lines;
  for (const auto& [job, tasks] : spec.jobs()) {
    std::string channels;
    for (const auto& [index, address] : tasks) {
      channels +=
          fmt::format("{}{} -> {}", channels.empty() ? "" : ", ", index, address.ToString());
    }
    lines.push_back(fmt::format("Initialize GrpcChannelCache for job {} -> {{{}}}", job, channels));
  }
  return lines;
}

std::string StartedServerLine(const std::string& address) {
  return "Started server with target: grpc://" + address;
}

std::string WaitingLine(LogStyle style, std::string_view task) {
  if (!ImitatesProgram(style)) return fmt::format("still waiting for {}", task);
  const std::size_t slash = task.find('/');
  return fmt::format(
      "CreateSession still waiting for response from worker: /job:{}/replica:0/task:{}",
      task.substr(0, slash), task.substr(slash + 1));
}

std::string MasterSessionLine(std::uint64_t session, const SessionConfig& config) {
  std::string text;
  for (const std::string& filter : config.device_filters) {
    text += fmt::format(" device_filters: \"{}\"", filter);
  }
  if (config.per_process_gpu_memory_fraction) {
    text += fmt::format(" gpu_options {{ per_process_gpu_memory_fraction: {} }}",
                        *config.per_process_gpu_memory_fraction);
  }
  if (config.allow_soft_placement) text += " allow_soft_placement: true";
  if (config.log_device_placement) text += " log_device_placement: true";
  return fmt::format("Start master session {:016x} with config:{}", session, text);
}

}  // namespace passel
