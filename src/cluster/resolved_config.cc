#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cluster/resolve.h"

namespace passel {
namespace {

/// How many columns `text` takes, if each character takes one.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

std::string_view ResolvedConfig::Announcement() const {
  return distributed ? "Running distributed training" : "Running single-machine training";
}

const Setting* ResolvedConfig::Find(std::string_view name) const {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const Setting& setting) { return setting.name == name; });
  return found == settings.end() ? nullptr : &*found;
}

Status ResolvedConfig::CheckComplete() const {
  if (!partial) return {};
  std::string seen;
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) {
      // The first few tasks of a large cluster tell enough.
      if (seen.size() > 200) continue;
      seen += fmt::format("{}{}/{}", seen.empty() ? "" : ", ", job, index);
      if (seen.size() > 200) seen += ", ...";
    }
  }
  return FailedPrecondition(fmt::format(
      "TF_CONFIG shows this task only a part of the cluster ({}), but every task must know all ps "
      "and workers, numbered from 0: name them all in it, or run the job without dynamic workers",
      seen.empty() ? "no task" : seen));
}

std::string ResolvedConfig::Describe() const {
  std::vector<std::array<std::string, 3>> rows{{"setting", "value", "origin"}};
  for (const Setting& setting : settings) {
    rows.push_back({setting.name, setting.value, setting.origin});
  }
  const auto derive = [&](const char* name, std::string value) {
    rows.push_back({name, std::move(value), "derived"});
  };
  derive("training", distributed ? "distributed" : "single-machine");
  if (task) derive("task", task->ToString());
  derive("is_chief", is_chief ? "true" : "false");
  if (distributed && !cluster.jobs().empty()) {
    derive("cluster_hash",
           partial ? "none: the cluster is seen in part" : fmt::format("{:016x}", cluster.Hash()));
  }
  if (!target.empty()) derive("target", target);
  if (!worker_device.empty()) derive("worker_device", worker_device);
  // A cell that is longer than this pushes what follows to the right in its own row only.
  constexpr std::size_t kMaxPadding = 40;
  std::array<std::size_t, 2> widths{};
  for (auto& row : rows) {
    for (std::string& cell : row) {
      std::replace_if(
          cell.begin(), cell.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; }, '?');
    }
    if (row[1].empty()) row[1] = "\"\"";
    for (std::size_t i = 0; i < 2; ++i) {
      widths[i] = std::max(widths[i], std::min(Width(row[i]), kMaxPadding));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t width = Width(row[i]);
      text += row[i] + std::string(width < widths[i] ? widths[i] - width + 2 : 2, ' ');
    }
    text += row[2] + '\n';
  }
  return text;
}

}  // namespace passel
