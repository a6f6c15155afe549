#include "job/oom_watch.h"

#include <fmt/core.h>

#include <fstream>
#include <optional>

namespace passel::job {
namespace {

std::optional<std::uint64_t> ReadKills(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  std::uint64_t count = 0;
  while (file >> key >> count) {
    if (key == "oom_kill") return count;
  }
  return std::nullopt;
}

// The files of our memory cgroup, as /proc/self/cgroup names it, that may have the count. Where a
// container shows it the path of its host, its own group is the root of what it sees.
std::string FileOfGroup(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // hierarchy:controllers:path, with no controllers named in v2
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string mount = root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (const std::string& group : {line.substr(second + 1), std::string("/")}) {
      const std::string file =
          mount + group + (group == "/" ? "" : "/") + (v2 ? "memory.events" : "memory.oom_control");
      if (ReadKills(file)) return file;
    }
  }
  return "";
}

}  // namespace

OomWatch::OomWatch(const std::string& root) : file_(FileOfGroup(root)) {
  if (file_.empty()) file_ = root + "/proc/vmstat";
  told_ = ReadKills(file_).value_or(0);
}

std::string OomWatch::Explain() {
  const std::uint64_t kills = ReadKills(file_).value_or(0);
  if (kills <= told_) return "";
  ++told_;
  return fmt::format(", out of memory? (oom_kill of {} has risen)", file_);
}

}  // namespace passel::job
