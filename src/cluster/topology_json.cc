#include "cluster/topology_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json_document_internal.h"
#include "cluster/text.h"

namespace passel {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
// root > numa_nodes > node > cores
constexpr int kTopologyDepth = 4;
constexpr std::size_t kMaxText = 200;
constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 50;  // a pebibyte
constexpr std::string_view kPaths[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

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

/// The members of one object, each asked for once.
class Fields {
 public:
  /// `where`: "gpus[2]", for messages.
  Fields(std::string_view origin, std::string where, const Json& json)
      : origin_(origin), where_(std::move(where)), json_(json) {}

  Status Problem(std::string_view sentence) const {
    return InvalidArgument(where_.empty() ? fmt::format("{}: {}", origin_, sentence)
                                          : fmt::format("{}: {}: {}", origin_, where_, sentence));
  }

  Status CheckKeys(std::initializer_list<std::string_view> known) const {
    if (!json_.is_object()) return Problem("an object { } is expected here");
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      std::vector<std::string> names(known.begin(), known.end());
      const std::string_view nearest = NearestName(key, names);
      return Problem(fmt::format(
          "the key {} is not known: {}", Quoted(key),
          nearest.empty() ? "remove it" : fmt::format("did you mean \"{}\"?", nearest)));
    }
    return {};
  }

  bool Has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  Result<std::string> Text(const char* key, bool required, std::size_t most = kMaxText) const {
    if (!Has(key)) {
      if (required) return Problem(fmt::format("\"{}\" is missing: add it", key));
      return std::string();
    }
    const Json& value = json_[key];
    if (!value.is_string()) return Problem(fmt::format("\"{}\" must be a text", key));
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > most || !IsPrintable(text)) {
      return Problem(fmt::format("\"{}\" has {} bytes: it takes up to {} of printable ASCII", key,
                                 text.size(), most));
    }
    return text;
  }

  Result<std::uint64_t> Number(const char* key, bool required, std::uint64_t max) const {
    if (!Has(key)) {
      if (required) return Problem(fmt::format("\"{}\" is missing: add it", key));
      return std::uint64_t{0};
    }
    const Json& value = json_[key];
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > max) {
      return Problem(
          fmt::format("\"{}\" must be a whole number from 0 to {}, not {}", key, max,
                      Printable(value.dump(-1, ' ', true, Json::error_handler_t::replace), 64)));
    }
    return value.get<std::uint64_t>();
  }

  Result<bool> Bool(const char* key) const {
    if (!Has(key)) return false;
    if (!json_[key].is_boolean()) return Problem(fmt::format("\"{}\" must be true or false", key));
    return json_[key].get<bool>();
  }

  /// Null for none.
  Result<const Json*> List(const char* key, bool required, std::size_t most) const {
    if (!Has(key)) {
      if (required) return Problem(fmt::format("\"{}\" is missing: add it", key));
      return static_cast<const Json*>(nullptr);
    }
    const Json& value = json_[key];
    if (!value.is_array()) return Problem(fmt::format("\"{}\" must be a list", key));
    if (value.size() > most) {
      return Problem(
          fmt::format("\"{}\" has {} elements: it takes at most {}", key, value.size(), most));
    }
    return &value;
  }

 private:
  const std::string_view origin_;
  const std::string where_;
  const Json& json_;
};

class TopologyReader {
 public:
  explicit TopologyReader(std::string_view origin) : origin_(origin) { topology_.origin = origin; }

  Status Read(const Json& root) {
    const Fields fields(origin_, "", root);
    PASSEL_RETURN_IF_ERROR(fields.CheckKeys({"passel_topology", "comment", "driver_version",
                                             "cuda_version", "no_gpu_reason", "mps", "without_nvml",
                                             "processor_quota", "numa_nodes", "gpus", "links"}));
    PASSEL_ASSIGN_OR_RETURN(const std::uint64_t format,
                            fields.Number("passel_topology", true, 1'000'000));
    if (format != kFormat) {
      return fields.Problem(
          fmt::format("\"passel_topology\" is {}: this program reads format {}", format, kFormat));
    }
    PASSEL_RETURN_IF_ERROR(fields.Text("comment", false).status());
    PASSEL_ASSIGN_OR_RETURN(topology_.driver_version, fields.Text("driver_version", false));
    PASSEL_ASSIGN_OR_RETURN(topology_.cuda_version, fields.Text("cuda_version", false));
    PASSEL_ASSIGN_OR_RETURN(topology_.no_gpu_reason,
                            fields.Text("no_gpu_reason", false, kMaxReasonBytes));
    PASSEL_RETURN_IF_ERROR(ReadMps(fields));
    PASSEL_ASSIGN_OR_RETURN(topology_.without_nvml, fields.Bool("without_nvml"));
    PASSEL_ASSIGN_OR_RETURN(const std::uint64_t quota,
                            fields.Number("processor_quota", false, kMaxProcessor + 1));
    topology_.processor_quota = static_cast<int>(quota);
    PASSEL_RETURN_IF_ERROR(ReadNodes(fields));
    PASSEL_RETURN_IF_ERROR(ReadGpus(fields));
    PASSEL_RETURN_IF_ERROR(ReadLinks(fields));
    if (topology_.NumProcessors() == 0) {
      return fields.Problem("no node has a core: at least one processor runs the launcher itself");
    }
    if (topology_.gpus.empty() == topology_.no_gpu_reason.empty()) {
      return fields.Problem(topology_.gpus.empty()
                                ? "there is no GPU: add \"no_gpu_reason\", a sentence that says why"
                                : "there are GPUs: remove \"no_gpu_reason\"");
    }
    return {};
  }

  Topology Take() { return std::move(topology_); }

 private:
  Status ReadMps(const Fields& fields) {
    PASSEL_ASSIGN_OR_RETURN(const std::string name, fields.Text("mps", false));
    if (name.empty()) return {};
    for (const MpsState state : {MpsState::kUnknown, MpsState::kStopped, MpsState::kRunning}) {
      if (name != MpsStateName(state)) continue;
      topology_.mps = state;
      return {};
    }
    return fields.Problem(
        fmt::format("\"mps\" is running, stopped or unknown, not {}", Quoted(name)));
  }

  Status ReadNodes(const Fields& fields) {
    PASSEL_ASSIGN_OR_RETURN(const Json* const nodes,
                            fields.List("numa_nodes", true, kMaxNumaNodes));
    if (nodes->empty())
      return fields.Problem("\"numa_nodes\" is empty: a machine has at least one");
    std::set<int> processors;
    for (std::size_t i = 0; i < nodes->size(); ++i) {
      const Fields node(origin_, fmt::format("numa_nodes[{}]", i), (*nodes)[i]);
      PASSEL_RETURN_IF_ERROR(node.CheckKeys({"index", "cores"}));
      PASSEL_ASSIGN_OR_RETURN(const std::uint64_t index, node.Number("index", true, 65535));
      NumaNode& out = topology_.numa_nodes.emplace_back();
      out.index = static_cast<int>(index);
      if (i > 0 && topology_.numa_nodes[i - 1].index >= out.index) {
        return node.Problem(
            fmt::format("\"index\" is {} after {}: list the nodes in ascending "
                        "order, each once",
                        out.index, topology_.numa_nodes[i - 1].index));
      }
      PASSEL_ASSIGN_OR_RETURN(const Json* const cores, node.List("cores", true, kMaxProcessor + 1));
      for (const Json& core : *cores) {
        const auto list = core.is_string()
                              ? ParseNumberList(core.get_ref<const std::string&>(), kMaxProcessor)
                              : std::nullopt;
        if (!list) {
          return node.Problem(
              fmt::format("a core is a text such as \"0,56\" with its processors, 0 "
                          "to {} in ascending order",
                          kMaxProcessor));
        }
        for (const int processor : *list) {
          if (processors.insert(processor).second) continue;
          return node.Problem(fmt::format("processor {} is in two cores: remove one", processor));
        }
        out.cores.push_back(*list);
      }
    }
    return {};
  }

  Status TakeUuid(const Fields& fields, std::string_view prefix, std::string* uuid) {
    PASSEL_ASSIGN_OR_RETURN(*uuid, fields.Text("uuid", true));
    if (!IsUuid(*uuid, prefix)) {
      return fields.Problem(fmt::format("\"uuid\" is {}, not {} and letters, digits and dashes",
                                        Quoted(*uuid), prefix));
    }
    if (!uuids_.insert(*uuid).second) {
      return fields.Problem(fmt::format("the UUID {} is there twice: remove one", *uuid));
    }
    return {};
  }

  Status ReadGpus(const Fields& fields) {
    PASSEL_ASSIGN_OR_RETURN(const Json* const gpus, fields.List("gpus", true, kMaxGpus));
    for (std::size_t i = 0; i < gpus->size(); ++i) {
      const std::string where = fmt::format("gpus[{}]", i);
      const Fields in(origin_, where, (*gpus)[i]);
      PASSEL_RETURN_IF_ERROR(
          in.CheckKeys({"uuid", "name", "memory_bytes", "compute_capability", "pci_address",
                        "numa_node", "mig_enabled", "mig_instances"}));
      Gpu& gpu = topology_.gpus.emplace_back();
      gpu.index = static_cast<int>(i);
      // A GPU of which only an instance is known has no UUID.
      PASSEL_ASSIGN_OR_RETURN(gpu.mig_enabled, in.Bool("mig_enabled"));
      if (in.Has("uuid") || !gpu.mig_enabled) {
        PASSEL_RETURN_IF_ERROR(TakeUuid(in, "GPU-", &gpu.uuid));
      }
      PASSEL_ASSIGN_OR_RETURN(gpu.name, in.Text("name", true));
      PASSEL_ASSIGN_OR_RETURN(gpu.memory_bytes, in.Number("memory_bytes", true, kMaxMemory));
      PASSEL_ASSIGN_OR_RETURN(const std::string capability, in.Text("compute_capability", true));
      const std::size_t dot = std::min(capability.find('.'), capability.size());
      const auto major = ParseDecimal(std::string_view(capability).substr(0, dot), 99);
      const auto minor = dot < capability.size()
                             ? ParseDecimal(std::string_view(capability).substr(dot + 1), 9)
                             : std::nullopt;
      if (!major || !minor) {
        return in.Problem(fmt::format("\"compute_capability\" is {}, not a text such as \"9.0\"",
                                      Quoted(capability)));
      }
      gpu.compute_capability = *major * 10 + *minor;
      PASSEL_ASSIGN_OR_RETURN(gpu.pci_address, in.Text("pci_address", false));
      if (in.Has("pci_address") && !IsPciAddress(gpu.pci_address)) {
        return in.Problem(fmt::format("\"pci_address\" is {}, not such as \"0000:1b:00.0\"",
                                      Quoted(gpu.pci_address)));
      }
      if (in.Has("numa_node")) {
        PASSEL_ASSIGN_OR_RETURN(const std::uint64_t node, in.Number("numa_node", true, 65535));
        gpu.numa_node = static_cast<int>(node);
        if (topology_.FindNode(*gpu.numa_node) == nullptr) {
          return in.Problem(
              fmt::format("\"numa_node\" is {}, which is not among \"numa_nodes\"", node));
        }
      }
      PASSEL_RETURN_IF_ERROR(ReadInstances(in, where, &gpu));
    }
    return {};
  }

  Status ReadInstances(const Fields& in, const std::string& where, Gpu* gpu) {
    PASSEL_ASSIGN_OR_RETURN(const Json* const instances,
                            in.List("mig_instances", false, kMaxMigInstances));
    if (instances == nullptr) return {};
    if (!gpu->mig_enabled && !instances->empty()) {
      return in.Problem("there are \"mig_instances\", but \"mig_enabled\" is not true");
    }
    for (std::size_t i = 0; i < instances->size(); ++i) {
      const Fields fields(origin_, fmt::format("{}.mig_instances[{}]", where, i), (*instances)[i]);
      PASSEL_RETURN_IF_ERROR(fields.CheckKeys({"uuid", "name", "memory_bytes"}));
      MigInstance& instance = gpu->mig_instances.emplace_back();
      PASSEL_RETURN_IF_ERROR(TakeUuid(fields, "MIG-", &instance.uuid));
      PASSEL_ASSIGN_OR_RETURN(instance.name, fields.Text("name", true));
      PASSEL_ASSIGN_OR_RETURN(instance.memory_bytes,
                              fields.Number("memory_bytes", true, kMaxMemory));
    }
    return {};
  }

  Status ReadLinks(const Fields& fields) {
    PASSEL_ASSIGN_OR_RETURN(const Json* const links,
                            fields.List("links", false, kMaxGpus * (kMaxGpus - 1) / 2));
    if (links == nullptr) return {};
    const auto num_gpus = static_cast<std::uint64_t>(topology_.gpus.size());
    for (std::size_t i = 0; i < links->size(); ++i) {
      const Fields in(origin_, fmt::format("links[{}]", i), (*links)[i]);
      PASSEL_RETURN_IF_ERROR(
          in.CheckKeys({"gpus", "pcie_path", "nvlink", "peer_access", "peer_atomics"}));
      PASSEL_ASSIGN_OR_RETURN(const Json* const pair, in.List("gpus", true, 2));
      GpuLink link;
      const auto is_gpu = [&](const Json& value) {
        return value.is_number_unsigned() && value.get<std::uint64_t>() < num_gpus;
      };
      if (pair->size() != 2 || !is_gpu((*pair)[0]) || !is_gpu((*pair)[1]) ||
          (*pair)[0].get<int>() >= (*pair)[1].get<int>()) {
        return in.Problem(fmt::format(
            "\"gpus\" must be two GPUs, the lower first, out of {}: such as [0, 1]", num_gpus));
      }
      link.first = (*pair)[0].get<int>();
      link.second = (*pair)[1].get<int>();
      if (topology_.FindLink(link.first, link.second) != nullptr) {
        return in.Problem(
            fmt::format("the GPUs {} and {} are there twice: remove one", link.first, link.second));
      }
      PASSEL_ASSIGN_OR_RETURN(link.pcie_path, in.Text("pcie_path", false));
      if (!link.pcie_path.empty() &&
          std::find(std::begin(kPaths), std::end(kPaths), link.pcie_path) == std::end(kPaths)) {
        return in.Problem(fmt::format("\"pcie_path\" is PIX, PXB, PHB, NODE or SYS, not {}",
                                      Quoted(link.pcie_path)));
      }
      PASSEL_ASSIGN_OR_RETURN(link.nvlink, in.Bool("nvlink"));
      PASSEL_ASSIGN_OR_RETURN(link.peer_access, in.Bool("peer_access"));
      PASSEL_ASSIGN_OR_RETURN(link.peer_atomics, in.Bool("peer_atomics"));
      if (link.peer_atomics && !link.peer_access) {
        return in.Problem("\"peer_atomics\" without \"peer_access\" cannot be");
      }
      topology_.links.push_back(std::move(link));
    }
    return {};
  }

  const std::string_view origin_;
  Topology topology_;
  std::set<std::string> uuids_;
};

// One element of a list in a line.
std::string Lines(const nlohmann::ordered_json& list) {
  std::string text = "[";
  for (const auto& element : list) {
    text += text.size() == 1 ? "\n    " : ",\n    ";
    text += element.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  }
  return text + (list.empty() ? "]" : "\n  ]");
}

}  // namespace

Result<Topology> ParseTopology(std::string_view origin, std::string_view text) {
  const std::string name = Printable(origin, 256);
  if (text.size() > kMaxTopologyBytes) {
    return ResourceExhausted(fmt::format("{} has {} bytes: a topology has at most {}", name,
                                         text.size(), kMaxTopologyBytes));
  }
  PASSEL_ASSIGN_OR_RETURN(const Json document, ParseJsonDocument(name, text, kTopologyDepth));
  TopologyReader reader(name);
  PASSEL_RETURN_IF_ERROR(reader.Read(document));
  return reader.Take();
}

Result<Topology> ReadTopology(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> bytes, ReadFile(path, kMaxTopologyBytes));
  return ParseTopology(path,
                       std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string TopologyToJson(const Topology& t) {
  using Ordered = nlohmann::ordered_json;
  Ordered nodes = Ordered::array(), gpus = Ordered::array(), links = Ordered::array();
  for (const NumaNode& node : t.numa_nodes) {
    Ordered cores = Ordered::array();
    for (const auto& core : node.cores) cores.push_back(FormatNumberList(core));
    nodes.push_back({{"index", node.index}, {"cores", std::move(cores)}});
  }
  for (const Gpu& gpu : t.gpus) {
    Ordered out;
    if (!gpu.uuid.empty()) out["uuid"] = gpu.uuid;
    out["name"] = gpu.name;
    out["memory_bytes"] = gpu.memory_bytes;
    out["compute_capability"] =
        fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10);
    if (!gpu.pci_address.empty()) out["pci_address"] = gpu.pci_address;
    if (gpu.numa_node) out["numa_node"] = *gpu.numa_node;
    if (gpu.mig_enabled) {
      out["mig_enabled"] = true;
      out["mig_instances"] = Ordered::array();
      for (const MigInstance& instance : gpu.mig_instances) {
        out["mig_instances"].push_back({{"uuid", instance.uuid},
                                        {"name", instance.name},
                                        {"memory_bytes", instance.memory_bytes}});
      }
    }
    gpus.push_back(std::move(out));
  }
  for (const GpuLink& link : t.links) {
    Ordered out;
    out["gpus"] = {link.first, link.second};
    if (!link.pcie_path.empty()) out["pcie_path"] = link.pcie_path;
    out["nvlink"] = link.nvlink;
    out["peer_access"] = link.peer_access;
    out["peer_atomics"] = link.peer_atomics;
    links.push_back(std::move(out));
  }
  std::string text = fmt::format("{{\n  \"passel_topology\": {},\n", kFormat);
  const auto add = [&](const char* key, const Ordered& value) {
    text += fmt::format("  \"{}\": {},\n", key,
                        value.dump(-1, ' ', true, Ordered::error_handler_t::replace));
  };
  if (!t.driver_version.empty()) add("driver_version", t.driver_version);
  if (!t.cuda_version.empty()) add("cuda_version", t.cuda_version);
  if (!t.no_gpu_reason.empty()) add("no_gpu_reason", t.no_gpu_reason);
  add("mps", std::string(MpsStateName(t.mps)));
  if (t.without_nvml) add("without_nvml", true);
  if (t.processor_quota > 0) add("processor_quota", t.processor_quota);
  return text + fmt::format("  \"numa_nodes\": {},\n  \"gpus\": {},\n  \"links\": {}\n}}\n",
                            Lines(nodes), Lines(gpus), Lines(links));
}

}  // namespace passel
