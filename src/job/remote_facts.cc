#include "job/remote_facts.h"

#include <fmt/core.h>

#include "base/cpu_isa.h"
#include "base/log.h"
#include "fabric/wire.h"
#include "job/run_info.h"

namespace passel::job {

fabric::TaskFacts FactsOf(const Task& task, Role role, int index) {
  fabric::TaskFacts facts;
  facts.job_id = task.job_id;
  facts.role = role;
  facts.index = index;
  facts.wire = fabric::kProtocolVersion;
  facts.cluster = task.spec.Hash();
  if (task.network != nullptr) facts.provider = task.network->name();
  facts.build = Version();
  facts.processor = CpuIsaName(ChosenCpuIsa());
  return facts;
}

namespace {
constexpr const char* kNobodyKnows = ", and nobody has proved who is there (--insecure_no_auth)";
}  // namespace

std::string HowErrandsTravel(const Task& task) {
  return task.flags.insecure_no_auth ? std::string("by TCP") + kNobodyKnows : "by TCP, sealed";
}

std::string HowItTravels(const Task& task) {
  if (task.network == nullptr) return HowErrandsTravel(task);
  return fmt::format("by libfabric's {}, in clear text{}", task.network->name(),
                     task.flags.insecure_no_auth ? kNobodyKnows : "");
}

void WarnOfClearText(const Task& task) {
  if (task.network == nullptr) return;
  LogWarning(
      "parameters travel {}: whoever can read or write what is on the way can read and change "
      "them; without --fabric_provider they are sealed",
      HowItTravels(task));
}

fabric::LeaseOptions LeaseOf(const Task& task) {
  return fabric::LeaseOptions::Of(
      std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * task.flags.lease)));
}

std::optional<std::chrono::nanoseconds> WorkerSpin(const Task& task) {
  if (task.id.job == "ps" || !task.flags.fabric_spin_us) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e3 * *task.flags.fabric_spin_us));
}

fabric::DoorKey DoorKeyOf(const Task& task) { return {task.token, task.flags.insecure_no_auth}; }

}  // namespace passel::job
