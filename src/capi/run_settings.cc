#include "capi/run_settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace passel::capi {
namespace {

constexpr auto kCluster =
    std::to_array<std::string_view>({"job_name", "task_index", "ps_hosts", "worker_hosts", "job_id",
                                     "token_file", "insecure_no_auth", "supervised"});

std::string_view NameOf(std::string_view setting) { return setting.substr(0, setting.find('=')); }

bool IsOfCluster(std::string_view name) {
  return std::ranges::find(kCluster, name) != kCluster.end();
}

}  // namespace

RunSettings ReadRunSettings(std::span<const std::string> given) {
  RunSettings settings;
  settings.all.assign(given.begin(), given.end());
  const char* const value = std::getenv("PASSEL_SETTINGS");
  if (value == nullptr) return settings;
  const bool own_cluster =
      std::ranges::any_of(given, [](const std::string& s) { return IsOfCluster(NameOf(s)); });
  for (std::string_view lines = value; !lines.empty();) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const std::string_view name = NameOf(line);
    if (line.empty() || (own_cluster && IsOfCluster(name))) continue;
    const auto same = [&](const std::string& s) { return NameOf(s) == name; };
    if (std::ranges::any_of(given, same)) continue;
    if (name == "supervised") {
      settings.supervised = true;
    } else {
      settings.all.emplace_back(line);
    }
  }
  return settings;
}

}  // namespace passel::capi
