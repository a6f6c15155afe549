#include "job/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "job/ask_jobs.h"
#include "job/blas_variables.h"
#include "job/exit_code.h"

// Workers that are a program of somebody else: what a task of ours has in its arguments, they learn
// from their environment.

namespace passel::job {
namespace {

// One that the user has set stays.
void SetUnlessSet(const char* name, const std::string& value, SpawnOptions* spawn) {
  if (std::getenv(name) == nullptr) spawn->environment.push_back(fmt::format("{}={}", name, value));
}

constexpr std::chrono::milliseconds kAnswer{500};

}  // namespace

// Lives of before stand before it.
Result<FileDescriptor> Supervisor::OutputFileOf(const Child& child) const {
  if (options_.output_dir.empty()) return FileDescriptor();
  const std::string path =
      fmt::format("{}/{}_{}.log", options_.output_dir, child.id.job, child.id.index);
  FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666));
  if (file.valid()) return file;
  return ErrnoStatus(errno, fmt::format("cannot write {} (--output_dir)", path));
}

// Worker 0 has ended without a word to the job: whoever has joined waits for nothing. Programs that
// never join are nobody's business.
void Supervisor::CheckChief() {
  if (!chief_ended_ || stopping_ || Initialized()) return;
  const Result<Json> status = AskJob(options_.job_id, Deadline::After(kAnswer));
  if (!status.ok() || status->Find("arena") != nullptr) return;
  const Json* const joined = status->Find("joined");
  if (joined == nullptr || joined->list() == nullptr || joined->list()->empty()) return;
  chief_ended_ = false;
  const std::string what = fmt::format(
      "worker/0 has ended and has not joined, and worker/{} waits for the first values, which "
      "worker/0 gives: let all workers join, or none",
      joined->list()->front().As<int>().value_or(0));
  outcome_.notes.push_back(what);
  LogError("{}", what);
  BeginStopping(kExitFailed, false);
}

bool Supervisor::IsProgram(const Child& child) const {
  return child.job == "worker" && !options_.program.empty();
}

void Supervisor::BecomeProgram(const Child& child, double spin_us, SpawnOptions* spawn) const {
  const TaskPlan* const place = options_.plan.Find(child.job, child.place);
  PASSEL_CHECK(place != nullptr, "every task has a place");
  spawn->executable = spawn->name = options_.program.front();
  spawn->arguments.assign(options_.program.begin() + 1, options_.program.end());
  spawn->cpus = place->processors;
  std::string settings = fmt::format("spin_us={}\n", spin_us);
  if (options_.part != nullptr) {
    settings += options_.part->LinesOf(child.id);
  } else {
    // Our descriptor, not an inherited one: programs in between close what they do not know.
    settings += fmt::format(
        "supervised=true\njob_id={}\ntoken_file=/proc/{}/fd/{}\njob_name=worker\ntask_index={}\n"
        "ps_hosts={}\nworker_hosts={}\n",
        options_.job_id, ::getpid(), token_file_.get(), child.index, ps_hosts_, worker_hosts_);
    if (options_.max_workers > options_.workers) {
      settings += fmt::format("max_workers={}\n", options_.max_workers);
    }
  }
  for (const std::string& setting : options_.program_settings) settings += setting + "\n";
  const auto set = [spawn](const char* name, const std::string& value) {
    spawn->environment.push_back(fmt::format("{}={}", name, value));
  };
  spawn->environment = place->environment;  // its GPU
  set("PASSEL_SETTINGS", settings);
  set("PASSEL_JOB_ID", options_.job_id);
  set("PASSEL_RESTARTS", std::to_string(child.starts));
  set("RANK", std::to_string(child.index));
  set("LOCAL_RANK", std::to_string(child.place));
  // Places, as in passel.join(): with --max_workers some of them may be free.
  set("WORLD_SIZE", std::to_string(options_.part != nullptr ? options_.part->task.NumTrainers()
                                                            : options_.max_workers));
  set("LOCAL_WORLD_SIZE", std::to_string(options_.max_workers));
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
  if (std::getenv(kBlasCoreIsOurs) != nullptr) spawn->not_handed_on = {kBlasCore, kBlasCoreIsOurs};
  // Lines as they are printed: the last ones of a worker that is killed are not lost.
  SetUnlessSet("PYTHONUNBUFFERED", "1", spawn);
}

}  // namespace passel::job
