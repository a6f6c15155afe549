#include "cluster/launch_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "cluster/device.h"

namespace passel {
namespace {

constexpr std::uint64_t kMib = 1024 * 1024;

// [Binding]
constexpr std::string_view kBindings[] = {"auto", "none", "numa", "core"};

class Planner {
 public:
  Planner(const Topology& topology, const LaunchRequest& request)
      : topology_(topology), request_(request) {}

  Result<LaunchPlan> Plan() {
    AddTasks();
    PASSEL_RETURN_IF_ERROR(LimitMemory());
    PASSEL_RETURN_IF_ERROR(ChooseBinding());
    for (TaskPlan& task : plan_.tasks) std::sort(task.processors.begin(), task.processors.end());
    SetEnvironment();
    AdviseMps();
    return std::move(plan_);
  }

 private:
  bool OnGpus() const { return !request_.devices.empty(); }

  const Gpu& GpuOf(const TaskPlan& task) const {
    return topology_.gpus[static_cast<std::size_t>(task.device->gpu)];
  }

  // The node of the task's GPU; on a machine with one node that one.
  std::optional<int> NodeNear(const TaskPlan& task) const {
    if (topology_.numa_nodes.size() == 1) return topology_.numa_nodes[0].index;
    return GpuOf(task).numa_node;
  }

  std::vector<TaskPlan*> Workers() {
    std::vector<TaskPlan*> workers;
    for (TaskPlan& task : plan_.tasks) {
      if (task.job == "worker") workers.push_back(&task);
    }
    return workers;
  }

  void AddTasks() {
    const auto add = [&](const char* job, int count) {
      for (int i = 0; i < count; ++i) {
        TaskPlan& task = plan_.tasks.emplace_back();
        task.job = job;
        task.index = i;
      }
    };
    add("ps", request_.ps);
    add("worker", request_.workers);
    add("evaluator", request_.evaluator ? 1 : 0);
    const int num_devices = static_cast<int>(request_.devices.size());
    for (TaskPlan* const worker : Workers()) {
      const Result<std::optional<int>> device = GpuOfTask(worker->index, num_devices);
      PASSEL_CHECK(device.ok(), "a number of devices is not negative");
      if (!*device) continue;
      worker->device = request_.devices[static_cast<std::size_t>(**device)];
      if (request_.arena_on_device) worker->arena = request_.devices.front();
    }
  }

  // Workers of each device, by UUID.
  std::map<std::string, int> Sharing() {
    std::map<std::string, int> sharing;
    for (const TaskPlan* const worker : Workers()) {
      if (worker->device) ++sharing[worker->device->uuid];
    }
    return sharing;
  }

  Status LimitMemory() {
    if (!request_.memory_fraction || !OnGpus()) return {};
    const double fraction = *request_.memory_fraction;
    const std::map<std::string, int> sharing = Sharing();
    for (TaskPlan* const worker : Workers()) {
      const int workers = sharing.at(worker->device->uuid);
      // Thirds that add up to all of it may be a bit above.
      if (fraction * workers > 1 + 1e-9) {
        return InvalidArgument(fmt::format(
            "--per_process_gpu_memory_fraction {} for each of {} workers on GPU {} is {:g} of its "
            "memory: use at most {:.3g}, or fewer workers",
            fraction, workers, worker->device->Index(), fraction * workers,
            static_cast<double>(static_cast<int>(1000.0 / workers)) / 1000));
      }
      // Whole MiB, as MPS counts.
      worker->memory_limit =
          static_cast<std::uint64_t>(fraction * static_cast<double>(worker->device->memory_bytes)) /
          kMib * kMib;
      if (worker->memory_limit == 0) {
        return InvalidArgument(
            fmt::format("--per_process_gpu_memory_fraction {} of the {} bytes of GPU {} is less "
                        "than 1 MiB: raise it",
                        fraction, worker->device->memory_bytes, worker->device->Index()));
      }
    }
    return {};
  }

  Status ChooseBinding() {
    if (request_.binding == Binding::kNone) return {};
    if (request_.binding == Binding::kNuma) return BindToNodes();
    if (request_.binding == Binding::kCore) return BindToCores();
    if (!OnGpus()) {
      (void)BindToCores();  // where there are too few, workers share all processors
      return {};
    }
    if (topology_.numa_nodes.size() < 2) return {};
    for (const TaskPlan* const worker : Workers()) {
      const std::optional<int> node = NodeNear(*worker);
      if (!node || topology_.FindNode(*node)->cores.empty()) return {};
    }
    return BindToNodes();
  }

  Status BindToNodes() {
    std::vector<const NumaNode*> usable;
    for (const NumaNode& node : topology_.numa_nodes) {
      if (!node.cores.empty()) usable.push_back(&node);
    }
    PASSEL_CHECK(!usable.empty(), "a machine has a processor");
    std::set<int> used;
    for (TaskPlan* const worker : Workers()) {
      const NumaNode* node = nullptr;
      if (worker->device) {
        const std::optional<int> near = NodeNear(*worker);
        if (!near) {
          return InvalidArgument(fmt::format(
              "--bind numa needs the NUMA node of GPU {}, which {} does not tell: use --bind none",
              worker->device->Index(), topology_.origin));
        }
        node = topology_.FindNode(*near);
        if (node->cores.empty()) {
          return InvalidArgument(fmt::format(
              "--bind numa needs processors of NUMA node {}, where GPU {} is, and this process may "
              "use none of them: allow some (cpuset), or use --bind none",
              *near, worker->device->Index()));
        }
      } else {
        node = usable[static_cast<std::size_t>(worker->index) % usable.size()];
      }
      worker->numa_node = node->index;
      worker->processors = node->Processors();
      used.insert(node->index);
    }
    plan_.binding = Binding::kNuma;
    if (used.size() != 1) return {};
    for (TaskPlan& task : plan_.tasks) {
      if (task.job != "ps") continue;
      task.numa_node = *used.begin();
      task.processors = topology_.FindNode(*used.begin())->Processors();
    }
    return {};
  }

  Status BindToCores() {
    const int each = request_.threads_per_worker;
    const int needed = request_.workers * each;
    if (topology_.processor_quota > 0 && needed > topology_.processor_quota) {
      return TooFew(needed, topology_.processor_quota, "processors that the CPU quota pays for");
    }
    PASSEL_RETURN_IF_ERROR(OnGpus() ? BindGpuWorkers(each) : BindCpuWorkers(each, needed));
    plan_.binding = Binding::kCore;
    return {};
  }

  Status TooFew(int needed, int there, std::string_view what) const {
    return InvalidArgument(
        fmt::format("--bind core needs {} for {} workers of {} each, and there are {} {}: use "
                    "fewer workers, or "
                    "--bind none",
                    needed, request_.workers, request_.threads_per_worker, there, what));
  }

  // First one processor of every core, then the second ones.
  Status BindCpuWorkers(int each, int needed) {
    std::vector<std::pair<int, int>> order;  // rank in its core, processor
    std::map<int, int> node_of;
    for (const NumaNode& node : topology_.numa_nodes) {
      for (const auto& core : node.cores) {
        for (std::size_t rank = 0; rank < core.size(); ++rank) {
          order.emplace_back(static_cast<int>(rank), core[rank]);
          node_of[core[rank]] = node.index;
        }
      }
    }
    std::sort(order.begin(), order.end());
    if (needed > static_cast<int>(order.size())) {
      return TooFew(needed, static_cast<int>(order.size()), "processors");
    }
    auto next = order.begin();
    for (TaskPlan* const worker : Workers()) {
      std::set<int> nodes;
      for (int i = 0; i < each; ++i, ++next) {
        worker->processors.push_back(next->second);
        nodes.insert(node_of[next->second]);
      }
      if (nodes.size() == 1 && topology_.numa_nodes.size() > 1) worker->numa_node = *nodes.begin();
    }
    return {};
  }

  // Whole cores: what drives the GPU has threads of its own beside the worker's.
  Status BindGpuWorkers(int each) {
    std::map<int, std::size_t> taken;  // cores, by node
    for (TaskPlan* const worker : Workers()) {
      std::optional<int> node = NodeNear(*worker);
      if (!node) {
        // Anywhere there is room.
        for (const NumaNode& candidate : topology_.numa_nodes) {
          if (taken[candidate.index] + static_cast<std::size_t>(each) <= candidate.cores.size()) {
            node = candidate.index;
            break;
          }
        }
        if (!node) return TooFew(request_.workers * each, topology_.NumCores(), "cores");
      }
      const NumaNode& home = *topology_.FindNode(*node);
      std::size_t& first = taken[*node];
      if (first + static_cast<std::size_t>(each) > home.cores.size()) {
        int wanted = 0;
        for (const TaskPlan* const other : Workers()) {
          if (NodeNear(*other) == node) wanted += each;
        }
        return InvalidArgument(
            fmt::format("--bind core needs {} cores for the workers on the GPUs of NUMA node {}, "
                        "and it has {}: "
                        "use fewer workers there, --bind numa or --bind none",
                        wanted, *node, home.cores.size()));
      }
      std::vector<int>& mine = worker->processors;
      for (int i = 0; i < each; ++i, ++first) {
        mine.insert(mine.end(), home.cores[first].begin(), home.cores[first].end());
      }
      if (topology_.numa_nodes.size() > 1) worker->numa_node = node;
    }
    return {};
  }

  void SetEnvironment() {
    if (!OnGpus()) return;
    for (TaskPlan& task : plan_.tasks) {
      if (!task.device) {
        task.environment = {"CUDA_VISIBLE_DEVICES="};
        continue;
      }
      std::string visible = task.device->uuid;
      if (task.arena && *task.arena != *task.device) visible += "," + task.arena->uuid;
      task.environment = {"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + visible};
      // In the process its own device has number 0; of another's memory it takes none.
      if (task.memory_limit > 0 && topology_.mps != MpsState::kStopped) {
        task.environment.push_back(
            fmt::format("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={}M", task.memory_limit / kMib));
      }
    }
  }

  void AdviseMps() {
    int most = 0;
    std::string index;
    for (const TaskPlan* const worker : Workers()) {
      if (!worker->device) continue;
      const int workers = Sharing()[worker->device->uuid];
      if (workers <= most) continue;
      most = workers;
      index = worker->device->Index();
    }
    if (most < 2 || topology_.mps == MpsState::kRunning || request_.without_mps) return;
    plan_.warnings.push_back(
        topology_.mps == MpsState::kStopped
            ? fmt::format(
                  "{} workers share GPU {} and MPS is not running, so they take turns on it, "
                  "slower than one alone: start it first with  nvidia-cuda-mps-control -d  , or "
                  "use fewer workers",
                  most, index)
            : fmt::format("{} workers share GPU {} and it cannot be seen whether MPS is running, "
                          "without which they take turns on it: start it with  "
                          "nvidia-cuda-mps-control -d  if it is not",
                          most, index));
  }

  const Topology& topology_;
  const LaunchRequest& request_;
  LaunchPlan plan_;
};

std::string Mib(std::uint64_t bytes) { return fmt::format("{} MiB", bytes / kMib); }

}  // namespace

std::string_view BindingName(Binding binding) {
  return kBindings[static_cast<std::size_t>(binding)];
}

std::optional<Binding> ParseBinding(std::string_view text) {
  if (text == "cores") return Binding::kCore;
  const auto found = std::ranges::find(kBindings, text);
  if (found == std::end(kBindings)) return std::nullopt;
  return static_cast<Binding>(found - std::begin(kBindings));
}

const TaskPlan* LaunchPlan::Find(std::string_view job, int index) const {
  const auto found = std::find_if(tasks.begin(), tasks.end(), [&](const TaskPlan& task) {
    return task.job == job && task.index == index;
  });
  return found == tasks.end() ? nullptr : &*found;
}

Result<LaunchPlan> PlanLaunch(const Topology& topology, const LaunchRequest& request) {
  return Planner(topology, request).Plan();
}

std::string TopologyLine(const Topology& topology, const LaunchPlan& plan, const TaskPlan& task) {
  std::string line;
  if (!task.device) {
    line = "CPU";
  } else {
    const Gpu& gpu = topology.gpus[static_cast<std::size_t>(task.device->gpu)];
    line = fmt::format("GPU {} ({}, {}{}{})", task.device->Index(), task.device->name,
                       task.device->uuid, gpu.pci_address.empty() ? "" : ", PCI ", gpu.pci_address);
    if (topology.numa_nodes.size() > 1) {
      line += gpu.numa_node ? fmt::format(" at NUMA node {}", *gpu.numa_node)
                            : std::string(" at a NUMA node that is not known");
    }
  }
  line += task.processors.empty()
              ? std::string(", bound to no processors")
              : fmt::format(", bound to processors {}", FormatNumberList(task.processors));
  if (!task.device) return line;
  // MIG instances reach no peer.
  std::set<int> nvlink, peers;
  for (const TaskPlan& other : plan.tasks) {
    if (!other.device || other.device->instance || task.device->instance ||
        other.device->gpu == task.device->gpu) {
      continue;
    }
    const GpuLink* const link = topology.FindLink(task.device->gpu, other.device->gpu);
    if (link == nullptr || !link->peer_access) continue;
    (link->nvlink ? nvlink : peers).insert(other.device->gpu);
  }
  const auto list = [](const std::set<int>& gpus) {
    return FormatNumberList(std::vector<int>(gpus.begin(), gpus.end()));
  };
  if (!nvlink.empty()) line += ", NVLink to GPU " + list(nvlink);
  if (!peers.empty()) line += ", PCIe peer access to GPU " + list(peers);
  if (task.arena) {
    line += fmt::format(", parameters in the memory of GPU {}", task.arena->Index());
  }
  if (task.memory_limit > 0) line += ", memory limit " + Mib(task.memory_limit);
  return line;
}

std::string DescribePlan(const LaunchPlan& plan) {
  std::size_t uuid_width = 4, processors_width = 10;
  for (const TaskPlan& task : plan.tasks) {
    if (task.device) uuid_width = std::max(uuid_width, task.device->uuid.size());
    processors_width = std::max(processors_width, FormatNumberList(task.processors).size());
  }
  std::string text = fmt::format("{:<12} {:<6} {:<{}}  {:<5} {:<{}}  {}\n", "task", "GPU", "UUID",
                                 uuid_width, "NUMA", "processors", processors_width, "GPU memory");
  for (const TaskPlan& task : plan.tasks) {
    text += fmt::format(
        "{:<12} {:<6} {:<{}}  {:<5} {:<{}}  {}\n", task.Name(),
        task.device ? task.device->Index() : "-", task.device ? task.device->uuid : "-", uuid_width,
        task.numa_node ? std::to_string(*task.numa_node) : "-",
        task.processors.empty() ? "any" : FormatNumberList(task.processors), processors_width,
        task.memory_limit > 0 ? Mib(task.memory_limit)
        : task.device         ? "no limit"
                              : "-");
  }
  text += fmt::format("binding: {}\n", BindingName(plan.binding));
  for (const TaskPlan& task : plan.tasks) {
    if (task.environment.empty()) continue;
    text += fmt::format("environment of {}:", task.Name());
    for (const std::string& variable : task.environment) text += " " + variable;
    text += '\n';
  }
  return text;
}

}  // namespace passel
