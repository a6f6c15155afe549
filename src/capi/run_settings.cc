#include "capi/run_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "optim/hyper_flags.h"
#include "optim/optimizer.h"
#include "store/mode.h"

namespace passel::capi {
namespace {

// Which task of which cluster: who says it is no worker of the command.
constexpr auto kTask =
    std::to_array<std::string_view>({"job_name", "task_index", "ps_hosts", "worker_hosts"});
// Which job, and how one gets in.
constexpr auto kJob = std::to_array<std::string_view>({"job_id", "token_file", "insecure_no_auth"});

constexpr std::size_t kShownBytes = 256;

std::string_view NameOf(std::string_view setting) { return setting.substr(0, setting.find('=')); }

std::string_view TextOf(std::string_view setting) {
  return setting.substr(std::min(setting.size(), NameOf(setting).size() + 1));
}

template <typename Names>
bool IsIn(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

using Given = std::span<const std::string>;

std::optional<std::string_view> Find(Given given, std::string_view name) {
  const auto found = std::ranges::find(given, name, [](const std::string& s) { return NameOf(s); });
  if (found == given.end()) return std::nullopt;
  return TextOf(*found);
}

// Whether a setting of the command hangs on a mode, or on an optimizer, that the program replaces.
bool HangsOnWhatIsReplaced(Given given, std::string_view name) {
  const std::optional<std::string_view> mode = Find(given, "mode");
  const bool has_first_mode = Find(given, "mode_schedule").value_or("").starts_with("0:");
  if (mode || has_first_mode) {
    if (name == "mode" || name == "sync_replicas") return true;
    const auto* const owner = std::ranges::find(kModes, name, &ModeTraits::flag);
    if (owner != std::end(kModes)) return has_first_mode || owner->name != *mode;
  }
  const std::optional<std::string_view> optimizer = Find(given, "optimizer");
  if (!optimizer || std::ranges::find(kHyperFlags, name, &HyperFlag::name) == kHyperFlags.end()) {
    return false;
  }
  const Result<OptimizerConfig> config = ParseOptimizer(*optimizer);
  return config.ok() && HyperparameterOf(config->kind, name) == nullptr;
}

// The program may name the job that it is in, but no other.
Status CheckJob(Given given, Given of_run) {
  for (const std::string_view name : kJob) {
    const std::optional<std::string_view> here = Find(given, name), there = Find(of_run, name);
    if (!here) continue;
    if (name == "insecure_no_auth") {
      const bool wanted = *here == "true" || *here == "1";
      if (wanted == there.has_value()) continue;
    }
    if (here == there) continue;
    const std::string other = there ? fmt::format("{}={}", name, Printable(*there, kShownBytes))
                                    : fmt::format("no {}", name);
    return InvalidArgument(fmt::format(
        "the program has {}={}, and passel run, which started it, has {}: omit the program's, or "
        "give passel run the same",
        name, Printable(*here, kShownBytes), other));
  }
  return {};
}

}  // namespace

Result<RunSettings> ReadRunSettings(Given given) {
  RunSettings settings;
  settings.all.assign(given.begin(), given.end());
  const char* const value = std::getenv("PASSEL_SETTINGS");
  if (value == nullptr) return settings;
  std::vector<std::string> of_run;
  for (std::string_view lines = value; !lines.empty();) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (!line.empty()) of_run.emplace_back(line);
  }
  const bool own_cluster = std::ranges::any_of(
      given, [](const std::string& setting) { return IsIn(kTask, NameOf(setting)); });
  // Somebody may have set the variable by hand, for what is no task of a cluster.
  const bool of_job = Find(of_run, "job_id").has_value();
  if (of_job && !own_cluster) PASSEL_RETURN_IF_ERROR(CheckJob(given, of_run));
  for (std::string& line : of_run) {
    const std::string_view name = NameOf(line);
    const bool of_cluster = IsIn(kTask, name) || IsIn(kJob, name) || name == "supervised";
    if ((own_cluster && of_cluster) || Find(given, name)) continue;
    if (HangsOnWhatIsReplaced(given, name)) continue;
    if (name == "supervised") {
      settings.supervised = true;
    } else {
      settings.all.push_back(std::move(line));
    }
  }
  return settings;
}

}  // namespace passel::capi
