#include "job/supervisor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/check.h"

// Workers that are a program of somebody else: what a task of ours has in its arguments, they learn
// from their environment.

namespace passel::job {
namespace {

// One that the user has set stays.
void SetUnlessSet(const char* name, const std::string& value, SpawnOptions* spawn) {
  if (std::getenv(name) == nullptr) spawn->environment.push_back(fmt::format("{}={}", name, value));
}

}  // namespace

bool Supervisor::IsProgram(const Child& child) const {
  return child.job == "worker" && !options_.program.empty();
}

void Supervisor::BecomeProgram(const Child& child, double spin_us, SpawnOptions* spawn) const {
  const TaskPlan* const place = options_.plan.Find(child.job, child.index);
  PASSEL_CHECK(place != nullptr, "every task has a place");
  spawn->executable = spawn->name = options_.program.front();
  spawn->arguments.assign(options_.program.begin() + 1, options_.program.end());
  spawn->cpus = place->processors;
  // Our descriptor, not an inherited one: programs in between close what they do not know.
  std::string settings = fmt::format(
      "job_id={}\ntoken_file=/proc/{}/fd/{}\njob_name=worker\ntask_index={}\nps_hosts={}\n"
      "worker_hosts={}\nspin_us={}\n",
      options_.job_id, ::getpid(), token_file_.get(), child.index, ps_hosts_, worker_hosts_,
      spin_us);
  for (const std::string& setting : options_.program_settings) settings += setting + "\n";
  const auto set = [spawn](const char* name, const std::string& value) {
    spawn->environment.push_back(fmt::format("{}={}", name, value));
  };
  spawn->environment.clear();
  set("PASSEL_SETTINGS", settings);
  set("PASSEL_JOB_ID", options_.job_id);
  set("PASSEL_RESTARTS", std::to_string(child.starts));
  for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, std::to_string(child.index));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    set(name, std::to_string(options_.workers));
  }
  // Threads for the processors that it has. Of OpenBLAS the variable is ours (see
  // tools/passel/process_start.cc), so that of OpenMP counts for it, too.
  const std::size_t own =
      place->processors.empty()
          ? static_cast<std::size_t>(std::max(1, num_cpus_ / std::max(1, options_.max_workers)))
          : place->processors.size();
  const char* const wanted = std::getenv("OMP_NUM_THREADS");
  const std::string threads = wanted == nullptr ? std::to_string(own) : wanted;
  set("OMP_NUM_THREADS", threads);
  set("OPENBLAS_NUM_THREADS", threads);
  // Lines as they are printed: the last ones of a worker that is killed are not lost.
  SetUnlessSet("PYTHONUNBUFFERED", "1", spawn);
}

}  // namespace passel::job
