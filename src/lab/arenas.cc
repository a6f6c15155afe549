#include "lab/arenas.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/file_descriptor.h"

namespace passel::lab {

Result<StorePlan> FlatPlan(Mode mode, const std::string& optimizer, std::size_t elements,
                           int workers) {
  StorePlan plan;
  plan.mode = mode;
  plan.num_workers = workers;
  PASSEL_ASSIGN_OR_RETURN(plan.optimizer, ParseOptimizer(optimizer));
  VariableInfo w;
  w.name = w.logical = "w";
  w.shape = {static_cast<std::int64_t>(elements)};
  PASSEL_ASSIGN_OR_RETURN(plan.variables, VariableTable::Build({w}, 1));
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

Result<shm::Arena> CreateArena(const StorePlan& plan, HugePages huge_pages) {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  shm::ArenaOptions options;
  options.job_id = "bench";
  options.huge_pages = huge_pages;
  PASSEL_ASSIGN_OR_RETURN(shm::Arena arena, shm::Arena::Create(plan, 0, options, budget));
  arena.Publish();
  return arena;
}

bool HugePagesInEffect(const shm::Arena& arena) {
  const std::string& report = arena.huge_page_report();
  return !report.empty() && report.find("not in effect") == std::string::npos;
}

Result<shm::Arena> AdoptArena(int fd) {
  FileDescriptor own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return ErrnoStatus(errno, "cannot duplicate the arena's descriptor");
  return shm::Arena::Adopt(std::move(own));
}

Status CheckFreeMemory(std::size_t bytes) {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  if (budget.available_bytes / 5 * 4 >= bytes) return {};
  return ResourceExhausted(fmt::format("needs {} MiB and a quarter more, {} has {} MiB free",
                                       bytes >> 20, budget.limit, budget.available_bytes >> 20));
}

WaitOptions EngineFor(int workers, int cores) {
  WaitOptions options;
  options.spin = std::chrono::microseconds(workers <= cores ? 500 : 20);
  return options;
}

}  // namespace passel::lab
