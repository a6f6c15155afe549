// fuzz_topology.cc - libFuzzer target: no text may crash the reader of topologies, the choice of
// GPUs or the plan of a launch; what is accepted comes back when it is written again, and no plan
// binds a task to a processor that is not there.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "cluster/launch_plan.h"
#include "cluster/topology_json.h"

namespace {

using namespace passel;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_topology: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const Status& status) {
  const std::string& text = status.message();
  if (text.empty() || text.size() > 2000) Fail("message of a wrong length");
  for (const char c : text) {
    if (c < 0x20 || c > 0x7E) Fail("message that cannot be printed");
  }
}

void CheckPlan(const Topology& topology, const LaunchRequest& request) {
  const auto plan = PlanLaunch(topology, request);
  if (!plan.ok()) return CheckMessage(plan.status());
  std::set<int> there;
  for (const NumaNode& node : topology.numa_nodes) {
    for (const auto& core : node.cores) there.insert(core.begin(), core.end());
  }
  for (const TaskPlan& task : plan->tasks) {
    for (const int processor : task.processors) {
      if (!there.contains(processor)) Fail("bound to a processor that is not there");
    }
    if (TopologyLine(topology, *plan, task).empty()) Fail("no line");
  }
  if (DescribePlan(*plan).empty()) Fail("no description");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto topology = ParseTopology("file", text);
  if (!topology.ok()) {
    CheckMessage(topology.status());
    return 0;
  }
  const auto again = ParseTopology("file", TopologyToJson(*topology));
  if (!again.ok()) Fail("written, but: " + again.status().ToString());
  if (*again != *topology) Fail("changed by writing");
  if (DescribeTopology(*topology).empty()) Fail("no description");
  for (const char* spec : {"all", "0", "0:0,1", "GPU-"}) {
    const auto choice = ChooseDevices(*topology, spec, {"0,1", "PCI_BUS_ID"});
    if (!choice.ok()) CheckMessage(choice.status());
    for (const Binding binding : {Binding::kAuto, Binding::kNone, Binding::kNuma, Binding::kCore}) {
      LaunchRequest request;
      request.workers = 3;
      request.binding = binding;
      request.memory_fraction = 0.3;
      if (choice.ok()) request.devices = choice->devices;
      CheckPlan(*topology, request);
    }
  }
  return 0;
}
