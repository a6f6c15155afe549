#include "cluster/topology_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json_fields.h"
#include "cluster/text.h"

namespace passel {
namespace {

constexpr int kFormat = 1;
// root > numa_nodes > node > cores
constexpr int kTopologyDepth = 4;
constexpr std::size_t kMaxText = 200;
constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 50;  // a pebibyte
constexpr std::string_view kPaths[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};

// Letters of a UUID, which goes into an environment variable.
bool IsUuid(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix) || text.size() <= prefix.size() || text.size() > 96) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '/';
  });
}

bool IsPciAddress(std::string_view text) {
  if (text.empty() || text.size() > 32) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' ||
           c == '.';
  });
}

Status MalformedText(std::string_view name, std::string_view text, std::string_view wanted) {
  return InvalidArgument(fmt::format("\"{}\" is {}, not {}", name, Quoted(text), wanted));
}

Status CheckUuid(std::string_view uuid, std::string_view prefix) {
  if (IsUuid(uuid, prefix)) return {};
  return MalformedText("uuid", uuid, fmt::format("{} and letters, digits and dashes", prefix));
}

Result<int> ParseCapability(std::string_view text) {
  const std::size_t dot = std::min(text.find('.'), text.size());
  const auto major = ParseDecimal(text.substr(0, dot), 99);
  const auto minor =
      dot < text.size() ? ParseDecimal(text.substr(dot + 1), 9) : std::optional<int>();
  if (major && minor) return *major * 10 + *minor;
  return MalformedText("compute_capability", text, "a text such as \"9.0\"");
}

Result<MpsState> ParseMps(std::string_view text) {
  for (const MpsState state : {MpsState::kUnknown, MpsState::kStopped, MpsState::kRunning}) {
    if (text == MpsStateName(state)) return state;
  }
  return InvalidArgument(
      fmt::format("\"mps\" is running, stopped or unknown, not {}", Quoted(text)));
}

Result<std::vector<std::vector<int>>> ParseCores(const std::vector<Json>& texts) {
  std::vector<std::vector<int>> cores;
  for (const Json& text : texts) {
    auto list = text.text() ? ParseNumberList(*text.text(), kMaxProcessor) : std::nullopt;
    if (!list) {
      return InvalidArgument(
          fmt::format("a core is a text such as \"0,56\" with its processors, 0 to {} in ascending "
                      "order",
                      kMaxProcessor));
    }
    cores.push_back(std::move(*list));
  }
  return cores;
}

// What the parts of a topology say of each other. Errors: kInvalidArgument, without the origin.
Status CheckParts(const Topology& t) {
  if (t.numa_nodes.empty()) {
    return InvalidArgument("\"numa_nodes\" is empty: a machine has at least one");
  }
  std::set<int> processors;
  for (std::size_t i = 0; i < t.numa_nodes.size(); ++i) {
    const NumaNode& node = t.numa_nodes[i];
    if (i > 0 && t.numa_nodes[i - 1].index >= node.index) {
      return InvalidArgument(fmt::format(
          "numa_nodes[{}]: \"index\" is {} after {}: list the nodes in ascending order, "
          "each once",
          i, node.index, t.numa_nodes[i - 1].index));
    }
    for (const int processor : node.Processors()) {
      if (processors.insert(processor).second) continue;
      return InvalidArgument(
          fmt::format("numa_nodes[{}]: processor {} is in two cores: remove one", i, processor));
    }
  }
  if (processors.empty()) {
    return InvalidArgument("no node has a core: at least one processor runs the launcher itself");
  }
  std::set<std::string> uuids;
  for (const Gpu& gpu : t.gpus) {
    std::vector<std::string> names = {gpu.uuid};
    for (const MigInstance& instance : gpu.mig_instances) names.push_back(instance.uuid);
    for (const std::string& uuid : names) {
      if (uuid.empty() || uuids.insert(uuid).second) continue;
      return InvalidArgument(
          fmt::format("gpus[{}]: the UUID {} is there twice: remove one", gpu.index, uuid));
    }
    if (gpu.numa_node && t.FindNode(*gpu.numa_node) == nullptr) {
      return InvalidArgument(
          fmt::format("gpus[{}]: \"numa_node\" is {}, which is not among \"numa_nodes\"", gpu.index,
                      *gpu.numa_node));
    }
  }
  std::set<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < t.links.size(); ++i) {
    const auto& [first, second] = std::pair(t.links[i].first, t.links[i].second);
    if (first >= second || second >= static_cast<int>(t.gpus.size())) {
      return InvalidArgument(
          fmt::format("links[{}]: \"gpus\" must be two GPUs, the lower first, out of {}: such as "
                      "[0, 1]",
                      i, t.gpus.size()));
    }
    if (pairs.emplace(first, second).second) continue;
    return InvalidArgument(
        fmt::format("links[{}]: the GPUs {} and {} are there twice: remove one", i, first, second));
  }
  if (t.gpus.empty() == t.no_gpu_reason.empty()) {
    return InvalidArgument(t.gpus.empty()
                               ? "there is no GPU: add \"no_gpu_reason\", a sentence that says why"
                               : "there are GPUs: remove \"no_gpu_reason\"");
  }
  return {};
}

}  // namespace

// The members of each part, as they are written and read.

void JsonMembers(auto& members, JsonPart<NumaNode> auto& node) {
  members("index", node.index, 65535);
  std::vector<Json> cores;
  for (const auto& core : node.cores) cores.emplace_back(FormatNumberList(core));
  members("cores", cores, kMaxProcessor + 1);
  if constexpr (kReadsJson<decltype(members)>) members.Accept(ParseCores(cores), node.cores);
}

void JsonMembers(auto& members, JsonPart<MigInstance> auto& instance) {
  members("uuid", instance.uuid, kMaxText);
  members("name", instance.name, kMaxText);
  members("memory_bytes", instance.memory_bytes, kMaxMemory);
  if constexpr (kReadsJson<decltype(members)>) members.Check(CheckUuid(instance.uuid, "MIG-"));
}

void JsonMembers(auto& members, JsonPart<Gpu> auto& gpu) {
  std::string capability =
      fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10);
  members.IfAny("uuid", gpu.uuid, kMaxText);
  members("name", gpu.name, kMaxText);
  members("memory_bytes", gpu.memory_bytes, kMaxMemory);
  members("compute_capability", capability, kMaxText);
  members.IfAny("pci_address", gpu.pci_address, kMaxText);
  members.IfAny("numa_node", gpu.numa_node, 65535);
  members.IfAny("mig_enabled", gpu.mig_enabled);
  members.IfAny("mig_instances", gpu.mig_instances, kMaxMigInstances);
  if constexpr (kReadsJson<decltype(members)>) {
    members.Accept(ParseCapability(capability), gpu.compute_capability);
    // A GPU of which only an instance is known has no UUID.
    if (gpu.uuid.empty() && !gpu.mig_enabled) members.Refuse("\"uuid\" is missing: add it");
    if (!gpu.uuid.empty()) members.Check(CheckUuid(gpu.uuid, "GPU-"));
    if (!gpu.pci_address.empty() && !IsPciAddress(gpu.pci_address)) {
      members.Check(MalformedText("pci_address", gpu.pci_address, "such as \"0000:1b:00.0\""));
    }
    if (!gpu.mig_enabled && !gpu.mig_instances.empty()) {
      members.Refuse("there are \"mig_instances\", but \"mig_enabled\" is not true");
    }
  }
}

void JsonMembers(auto& members, JsonPart<GpuLink> auto& link) {
  std::vector<int> gpus = {link.first, link.second};
  members("gpus", gpus, 2);
  members.IfAny("pcie_path", link.pcie_path, kMaxText);
  members.OrDefault("nvlink", link.nvlink);
  members.OrDefault("peer_access", link.peer_access);
  members.OrDefault("peer_atomics", link.peer_atomics);
  if constexpr (kReadsJson<decltype(members)>) {
    gpus.resize(2);  // of one only the other is 0, which is not above it
    link.first = gpus[0];
    link.second = gpus[1];
    if (!link.pcie_path.empty() && std::ranges::find(kPaths, link.pcie_path) == std::end(kPaths)) {
      members.Check(MalformedText("pcie_path", link.pcie_path, "PIX, PXB, PHB, NODE or SYS"));
    }
    if (link.peer_atomics && !link.peer_access) {
      members.Refuse("\"peer_atomics\" without \"peer_access\" cannot be");
    }
  }
}

void JsonMembers(auto& members, JsonPart<Topology> auto& t) {
  int format = kFormat;
  std::string comment, mps(MpsStateName(t.mps));
  members("passel_topology", format, 1'000'000);
  members.IfAny("comment", comment, kMaxText);
  members.IfAny("driver_version", t.driver_version, kMaxText);
  members.IfAny("cuda_version", t.cuda_version, kMaxText);
  members.IfAny("no_gpu_reason", t.no_gpu_reason, kMaxReasonBytes);
  members.OrDefault("mps", mps, kMaxText);
  members.IfAny("without_nvml", t.without_nvml);
  members.IfAny("processor_quota", t.processor_quota, kMaxProcessor + 1);
  members("numa_nodes", t.numa_nodes, kMaxNumaNodes);
  members("gpus", t.gpus, kMaxGpus);
  members.OrDefault("links", t.links, kMaxGpus * (kMaxGpus - 1) / 2);
  if constexpr (kReadsJson<decltype(members)>) {
    if (format != kFormat) {
      members.Refuse(
          fmt::format("\"passel_topology\" is {}: this program reads format {}", format, kFormat));
    }
    members.Accept(ParseMps(mps), t.mps);
    for (std::size_t i = 0; i < t.gpus.size(); ++i) t.gpus[i].index = static_cast<int>(i);
    members.Check(CheckParts(t));
  }
}

namespace {

// One element of a list in a line.
std::string Lines(const Json& value) {
  if (value.list() == nullptr) return value.Write(-1, Json::Charset::kAscii);
  std::string text = "[";
  for (const Json& element : *value.list()) {
    text += text.size() == 1 ? "\n    " : ",\n    ";
    text += element.Write(-1, Json::Charset::kAscii);
  }
  return text + (value.list()->empty() ? "]" : "\n  ]");
}

}  // namespace

Result<Topology> ParseTopology(std::string_view origin, std::string_view text) {
  const std::string name = Printable(origin, 256);
  if (text.size() > kMaxTopologyBytes) {
    return ResourceExhausted(fmt::format("{} has {} bytes: a topology has at most {}", name,
                                         text.size(), kMaxTopologyBytes));
  }
  PASSEL_ASSIGN_OR_RETURN(const Json document, ParseJson(name, text, kTopologyDepth));
  Topology topology;
  topology.origin = name;
  PASSEL_RETURN_IF_ERROR(ReadJson(name, document, &topology));
  return topology;
}

Result<Topology> ReadTopology(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> bytes, ReadFile(path, kMaxTopologyBytes));
  return ParseTopology(path,
                       std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string TopologyToJson(const Topology& topology) {
  const Json json = JsonOf(topology);
  std::string text;
  for (const auto& [name, value] : *json.object()) {
    text += fmt::format("{}\n  \"{}\": {}", text.empty() ? "{" : ",", name, Lines(value));
  }
  return text + "\n}\n";
}

}  // namespace passel
