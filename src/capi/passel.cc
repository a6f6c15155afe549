#include "capi/passel.h"

#include <fmt/core.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_children.h"
#include "base/wait_check.h"
#include "capi/guard.h"
#include "capi/structs.h"
#include "capi/worker.h"

// The memory of a handle stays for ever, so that its use after passel_leave() can be seen.
struct passel_job {
  std::unique_ptr<passel::capi::Worker> worker;  // null: it has left
  unsigned generation = 0;                       // of the process that opened it
};

namespace passel::capi {
namespace {

struct Check {
  passel_check is_over = nullptr;
  void* argument = nullptr;
};
thread_local Check t_check;
std::atomic<unsigned> g_generation{0};  // children by fork() that lie between us and the first
std::mutex g_mutex;
passel_job* g_open = nullptr;  // under g_mutex; the one job of this process, or one that is opening

Result<Worker*> WorkerOf(passel_job* handle) {
  if (handle == nullptr) return Null("the job");
  if (handle->generation != g_generation.load(std::memory_order_relaxed)) {
    return FailedPrecondition(
        "this process is a child of the one that opened the job, by fork(): use the job there, or "
        "execute a program that opens it as another worker");
  }
  if (handle->worker == nullptr) {
    return FailedPrecondition("this process has left the job: open it again with passel_open()");
  }
  return handle->worker.get();
}

// `call` gets the worker and returns a status.
template <typename Call>
passel_status With(passel_job* job, const Call& call) noexcept {
  return Guarded([&]() -> Status {
    PASSEL_ASSIGN_OR_RETURN(Worker * worker, WorkerOf(job));
    return call(*worker);
  });
}

// The one job of this process, from when it begins to open.
Result<passel_job*> TakePlace() {
  // Reachable for ever: who looks for leaks finds none.
  static auto* const handles = new std::vector<std::unique_ptr<passel_job>>;
  [[maybe_unused]] static const int once =
      ::pthread_atfork(nullptr, nullptr, [] { g_generation.fetch_add(1); });
  LeaveChildrenWithout();
  const std::lock_guard lock(g_mutex);
  if (g_open != nullptr && g_open->generation != g_generation) {
    return FailedPrecondition(
        "this process is a child of one that has a job open, by fork(), and has its memory: "
        "execute a program that opens the job");
  }
  if (g_open != nullptr) {
    return AlreadyExists(
        g_open->worker == nullptr
            ? "another thread of this process is opening a job: a process has one at a time"
            : fmt::format("this process is in job {} already, and has one at a time: call "
                          "passel_leave() first, or use another process",
                          g_open->worker->job_id()));
  }
  handles->push_back(std::make_unique<passel_job>());
  g_open = handles->back().get();
  g_open->generation = g_generation;
  return g_open;
}

void GivePlaceBack() {
  const std::lock_guard lock(g_mutex);
  g_open = nullptr;
}

void Close(passel_job& job) {
  const std::lock_guard lock(g_mutex);
  job.worker.reset();
  g_open = nullptr;
}

Status Open(const passel_options* options, const passel_variable* variables, std::size_t count,
            passel_job** job) {
  if (job == nullptr) return Null("where the job goes");
  *job = nullptr;
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> settings, ReadOptions(options));
  PASSEL_ASSIGN_OR_RETURN(const std::vector<Variable> described, ReadVariables(variables, count));
  PASSEL_ASSIGN_OR_RETURN(passel_job* const handle, TakePlace());
  struct Place {
    bool kept = false;
    ~Place() {
      if (!kept) GivePlaceBack();
    }
  } place;
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::Open(settings, described));
  const std::lock_guard lock(g_mutex);
  handle->worker = std::move(worker);
  place.kept = true;
  *job = handle;
  return {};
}

Result<std::optional<PullMode>> PullModeOf(std::int32_t how) {
  switch (how) {
    case PASSEL_PULL_AUTO:
      return std::optional<PullMode>();
    case PASSEL_PULL_VIEW:
      return std::optional(PullMode::kView);
    case PASSEL_PULL_COPY:
      return std::optional(PullMode::kCopy);
    default:
      return InvalidArgument(fmt::format(
          "a pull is PASSEL_PULL_AUTO, _VIEW or _COPY (0 to 2), not {}: use one of them", how));
  }
}

}  // namespace
}  // namespace passel::capi

using passel::Deadline;
using passel::Result;
using passel::Status;
using passel::capi::Worker;

extern "C" {

int32_t passel_abi_version(void) { return PASSEL_ABI_VERSION; }

const char* passel_error(void) { return passel::capi::Said(); }

void passel_check_waits(passel_check is_over, void* argument) {
  using passel::capi::t_check;
  t_check = {is_over, argument};
  passel::WaitCheck check;
  if (is_over != nullptr)
    check.is_over = [](void*) { return t_check.is_over(t_check.argument) != 0; };
  passel::CheckWaits(check);
}

passel_status passel_open(const passel_options* options, const passel_variable* variables,
                          size_t num_variables, passel_job** job) {
  return passel::capi::Guarded(
      [&] { return passel::capi::Open(options, variables, num_variables, job); });
}

passel_status passel_describe(passel_job* job, passel_description* description) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (description == nullptr) return passel::capi::Null("the description");
    PASSEL_RETURN_IF_ERROR(passel::capi::CheckSize("passel_description", description->struct_size,
                                                   passel::capi::kDescriptionBytes));
    passel::capi::WriteOut({0, worker.index(), worker.places(), worker.is_chief(),
                            worker.is_alone(), worker.job_id().c_str()},
                           description);
    return {};
  });
}

passel_status passel_initialize(passel_job* job, const float* const* values,
                                double timeout_seconds) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    return worker.Initialize(values, nullptr, deadline);
  });
}

passel_status passel_initialize_with(passel_job* job, const float* const* values,
                                     const passel_optimizer_state* state, double timeout_seconds) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const passel::capi::GivenState given, passel::capi::ReadState(state));
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    return worker.Initialize(values, &given, deadline);
  });
}

passel_status passel_read_optimizer_state(passel_job* job, passel_optimizer_state* state) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (state == nullptr) return passel::capi::Null("where the state goes");
    PASSEL_RETURN_IF_ERROR(passel::capi::CheckSize("passel_optimizer_state", state->struct_size,
                                                   passel::capi::kStateBytes));
    PASSEL_ASSIGN_OR_RETURN(const passel::capi::OptimizerState* const read, worker.ReadState());
    passel::capi::WriteOut(passel_optimizer_state{0, read->step(), read->names().size(),
                                                  read->names().data(), read->slots().data()},
                           state);
    return {};
  });
}

passel_status passel_beginning(passel_job* job, passel_first_values* first) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (first == nullptr) return passel::capi::Null("where the first values go");
    PASSEL_RETURN_IF_ERROR(passel::capi::CheckSize("passel_first_values", first->struct_size,
                                                   passel::capi::kFirstValuesBytes));
    PASSEL_ASSIGN_OR_RETURN(const Worker::FirstValues found, worker.Beginning());
    passel::capi::WriteOut(
        passel_first_values{0, found.number, found.global_step, found.is_own ? 1 : 0,
                            found.is_of_checkpoint ? 1 : 0},
        first);
    return {};
  });
}

passel_status passel_set_rates(passel_job* job, const passel_rates* rates, size_t groups) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const std::vector<passel::GroupRates> given,
                            passel::capi::ReadRates(rates, groups));
    return worker.SetRates(given);
  });
}

passel_status passel_pull(passel_job* job, int32_t how) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const auto mode, passel::capi::PullModeOf(how));
    return worker.Pull(mode);
  });
}

passel_status passel_values(passel_job* job, size_t variable, const float** values,
                            size_t* elements) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (values == nullptr) return passel::capi::Null("where the values go");
    PASSEL_ASSIGN_OR_RETURN(const std::span<const float> span, worker.Values(variable));
    *values = span.data();
    if (elements != nullptr) *elements = span.size();
    return {};
  });
}

passel_status passel_gradient(passel_job* job, size_t variable, float** gradient,
                              size_t* elements) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (gradient == nullptr) return passel::capi::Null("where the gradient goes");
    PASSEL_ASSIGN_OR_RETURN(const std::span<float> span, worker.Gradient(variable));
    *gradient = span.data();
    if (elements != nullptr) *elements = span.size();
    return {};
  });
}

passel_status passel_push_from(passel_job* job, const float* const* gradients,
                               double timeout_seconds) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    if (gradients == nullptr) return passel::capi::Null("the array of gradients");
    for (std::size_t i = 0; i < worker.num_variables(); ++i) {
      if (gradients[i] == nullptr && worker.elements(i) > 0)
        return passel::capi::Null("a gradient");
    }
    return worker.PushFrom(gradients, deadline);
  });
}

passel_status passel_push(passel_job* job, double timeout_seconds) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    return worker.Push(deadline);
  });
}

passel_status passel_wait(passel_job* job, double timeout_seconds, passel_outcome* outcome) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (outcome != nullptr) {
      PASSEL_RETURN_IF_ERROR(passel::capi::CheckSize("passel_outcome", outcome->struct_size,
                                                     passel::capi::kOutcomeBytes));
    }
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    PASSEL_ASSIGN_OR_RETURN(const passel::PushOutcome of, worker.Wait(deadline));
    if (outcome != nullptr) {
      passel::capi::WriteOut({0, of.applied, of.gradients, of.global_step, of.staleness}, outcome);
    }
    return {};
  });
}

passel_status passel_say_alive(passel_job* job) {
  return passel::capi::With(job, [](Worker& worker) -> Status {
    worker.SayAlive();
    return {};
  });
}

passel_status passel_sample(passel_job* job, const passel_sampling* sampling) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const passel::capi::Sampling read,
                            passel::capi::ReadSampling(sampling));
    return worker.Sample(read);
  });
}

passel_status passel_next_batch(passel_job* job, passel_batch* batch) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (batch == nullptr) return passel::capi::Null("where the batch goes");
    PASSEL_RETURN_IF_ERROR(
        passel::capi::CheckSize("passel_batch", batch->struct_size, passel::capi::kBatchBytes));
    PASSEL_ASSIGN_OR_RETURN(const passel::capi::Sampler::Batch next, worker.NextBatch());
    passel::capi::WriteOut({0, next.examples.data(), next.examples.size(), next.epoch}, batch);
    return {};
  });
}

passel_status passel_metric(passel_job* job, const char* name, double value) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (name == nullptr) return passel::capi::Null("the name of the metric");
    return worker.ShowMetric(name, value);
  });
}

passel_status passel_global_step(passel_job* job, int64_t* global_step) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (global_step == nullptr) return passel::capi::Null("where the global step goes");
    *global_step = worker.global_step();
    return {};
  });
}

passel_status passel_mode(passel_job* job, const char** mode) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (mode == nullptr) return passel::capi::Null("where the mode goes");
    *mode = passel::ModeName(worker.mode()).data();  // a literal: it ends with 0
    return {};
  });
}

passel_status passel_stop(passel_job* job) {
  return passel::capi::With(job, [](Worker& worker) -> Status {
    worker.Stop();
    return {};
  });
}

passel_status passel_stopped(passel_job* job, int32_t* stopped) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    if (stopped == nullptr) return passel::capi::Null("where the answer goes");
    *stopped = worker.stopped() ? 1 : 0;
    return {};
  });
}

passel_status passel_save(passel_job* job, double timeout_seconds, int64_t* global_step) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const Deadline deadline, passel::capi::After(timeout_seconds));
    PASSEL_ASSIGN_OR_RETURN(const std::int64_t saved, worker.Save(deadline));
    if (global_step != nullptr) *global_step = saved;
    return {};
  });
}

passel_status passel_leave(passel_job* job) {
  return passel::capi::With(job, [&](Worker& worker) -> Status {
    const Status left = worker.Leave();
    passel::capi::Close(*job);
    return left;
  });
}

}  // extern "C"
