// `passel topology`: what this machine has to compute with.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/log.h"
#include "cluster/machine_probe.h"
#include "cluster/topology_json.h"
#include "compute/accelerator_loader.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"

namespace passel {
namespace {

struct TopologyFlags {
  std::string file;
  bool json = false;
  int output_fd = -1;  // of who asked; the answer or the error goes there
};

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

int TopologyCommand(const TopologyFlags& flags) {
  const Result<Topology> topology = flags.file.empty() ? ProbeMachine() : ReadTopology(flags.file);
  if (!topology.ok()) {
    if (flags.output_fd >= 0) {
      (void)WriteAll(flags.output_fd, topology.status().message());
    } else {
      LogError("{}", topology.status().message());
    }
    return ExitCodeFor(topology.status()) == kExitUsage ? kExitUsage : kExitFailed;
  }
  const std::string text = flags.json ? TopologyToJson(*topology) : DescribeTopology(*topology);
  if (flags.output_fd >= 0) return WriteAll(flags.output_fd, text) ? kExitDone : kExitFailed;
  fmt::print("{}", text);
  if (!flags.json && flags.file.empty()) {
    const Result<std::string> plugin = FindAcceleratorPlugin();
    fmt::print("GPU plugin: {}\n", plugin.ok() ? *plugin : plugin.status().message());
  }
  return kExitDone;
}

}  // namespace

void AddTopologyCommand(CLI::App& app, Run* run) {
  auto flags = std::make_shared<TopologyFlags>();
  CLI::App* command = app.add_subcommand(
      "topology", "Show this machine: GPUs, links between them, NUMA nodes and cores");
  command->add_option("--file", flags->file, "Show what this file recorded instead");
  command->add_flag(
      "--json", flags->json,
      "As JSON, for passel train --dry_run --topology FILE; docs/gpus.md describes it");
  command->add_option("--output_fd", flags->output_fd)->group("");
  command->callback([flags, run] { *run = [flags] { return TopologyCommand(*flags); }; });
}

}  // namespace passel
