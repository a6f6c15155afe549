#include "cluster/topology.h"

#include <fmt/core.h>

#include <algorithm>

#include "cluster/text.h"

namespace passel {
namespace {

// "8 GPUs", "1 GPU"
std::string Count(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string Gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}

// One cell of the matrix of links.
std::string LinkCell(const Topology& topology, int row, int column) {
  if (row == column) return "-";
  const GpuLink* const link = topology.FindLink(row, column);
  if (link == nullptr) return "?";
  std::string cell = link->nvlink ? "NVLink" : link->pcie_path.empty() ? "?" : link->pcie_path;
  if (link->peer_atomics) return cell + "+pa";
  return link->peer_access ? cell + "+p" : cell;
}

std::string LinkMatrix(const Topology& topology) {
  std::string text = fmt::format("{:<8}", "link");
  for (const Gpu& gpu : topology.gpus) text += fmt::format("{:>11}", gpu.index);
  text += '\n';
  for (const Gpu& row : topology.gpus) {
    text += fmt::format("{:<8}", row.index);
    for (const Gpu& column : topology.gpus) {
      text += fmt::format("{:>11}", LinkCell(topology, row.index, column.index));
    }
    text += '\n';
  }
  return text + "+p: peer access, +pa: peer access with native atomics, ?: not known\n";
}

}  // namespace

std::vector<int> NumaNode::Processors() const {
  std::vector<int> all;
  for (const auto& core : cores) all.insert(all.end(), core.begin(), core.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::string_view MpsStateName(MpsState state) {
  switch (state) {
    case MpsState::kUnknown:
      return "unknown";
    case MpsState::kStopped:
      return "stopped";
    case MpsState::kRunning:
      return "running";
  }
  return "unknown";
}

const NumaNode* Topology::FindNode(int index) const {
  const auto found = std::find_if(numa_nodes.begin(), numa_nodes.end(),
                                  [&](const NumaNode& node) { return node.index == index; });
  return found == numa_nodes.end() ? nullptr : &*found;
}

const GpuLink* Topology::FindLink(int one, int other) const {
  const auto [low, high] = std::minmax(one, other);
  const auto found =
      std::find_if(links.begin(), links.end(),
                   [&, a = low, b = high](const auto& l) { return l.first == a && l.second == b; });
  return found == links.end() ? nullptr : &*found;
}

int Topology::NumCores() const {
  int count = 0;
  for (const NumaNode& node : numa_nodes) count += static_cast<int>(node.cores.size());
  return count;
}

int Topology::NumProcessors() const {
  int count = 0;
  for (const NumaNode& node : numa_nodes) count += static_cast<int>(node.Processors().size());
  return count;
}

Topology FlatTopology(std::span<const int> processors) {
  Topology topology;
  topology.origin = "this machine";
  NumaNode& node = topology.numa_nodes.emplace_back();
  for (const int processor : processors) node.cores.push_back({processor});
  return topology;
}

std::string FormatNumberList(std::span<const int> numbers) {
  if (numbers.empty()) return "-";
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::optional<std::vector<int>> ParseNumberList(std::string_view text, int max) {
  std::vector<int> numbers;
  for (std::string_view rest = text;;) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const std::size_t dash = part.find('-');
    const std::optional<int> first = ParseDecimal(part.substr(0, dash), max);
    const std::optional<int> last =
        dash == std::string_view::npos ? first : ParseDecimal(part.substr(dash + 1), max);
    if (!first || !last || *last < *first) return std::nullopt;
    for (int number = *first; number <= *last; ++number) {
      // Ascending, so that no number comes twice and the list has at most max + 1 of them.
      if (!numbers.empty() && number <= numbers.back()) return std::nullopt;
      numbers.push_back(number);
    }
    if (part.size() == rest.size()) return numbers;
    rest.remove_prefix(part.size() + 1);
  }
}

std::string DescribeTopology(const Topology& t) {
  std::string text = fmt::format("{}, {}, {}, {}", Count(t.gpus.size(), "GPU"),
                                 Count(t.numa_nodes.size(), "NUMA node"),
                                 Count(static_cast<std::size_t>(t.NumCores()), "core"),
                                 Count(static_cast<std::size_t>(t.NumProcessors()), "processor"));
  if (t.processor_quota > 0) text += fmt::format(" (a CPU quota pays for {})", t.processor_quota);
  text += '\n';
  if (!t.driver_version.empty()) {
    text += fmt::format("driver {}, CUDA {}, MPS {}\n", t.driver_version,
                        t.cuda_version.empty() ? "?" : t.cuda_version, MpsStateName(t.mps));
  }
  if (t.gpus.empty()) text += fmt::format("no GPU: {}\n", t.no_gpu_reason);
  if (t.without_nvml) text += fmt::format("{}\n", kWithoutNvml);
  for (const Gpu& gpu : t.gpus) {
    text += fmt::format(
        "GPU {}: {}, {}, {}, compute capability {}.{}, PCI {}, NUMA node {}{}\n", gpu.index,
        gpu.name, gpu.uuid.empty() ? "UUID not known" : gpu.uuid, Gib(gpu.memory_bytes),
        gpu.compute_capability / 10, gpu.compute_capability % 10,
        gpu.pci_address.empty() ? "not known" : gpu.pci_address,
        gpu.numa_node ? std::to_string(*gpu.numa_node) : "not known",
        gpu.mig_enabled ? fmt::format(", MIG with {}", Count(gpu.mig_instances.size(), "instance"))
                        : "");
    for (std::size_t i = 0; i < gpu.mig_instances.size(); ++i) {
      const MigInstance& instance = gpu.mig_instances[i];
      text += fmt::format("  {}:{}: {}, {}, {}\n", gpu.index, i, instance.name, instance.uuid,
                          Gib(instance.memory_bytes));
    }
  }
  if (t.gpus.size() > 1) text += LinkMatrix(t);
  for (const NumaNode& node : t.numa_nodes) {
    text += fmt::format("NUMA node {}: {}, processors {}\n", node.index,
                        Count(node.cores.size(), "core"), FormatNumberList(node.Processors()));
  }
  return text;
}

}  // namespace passel
