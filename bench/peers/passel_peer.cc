// passel_peer - what the programs of bench/peers measure, by passel's stores on an arena.
//
// --variant hogwild or locked: a view, a push (in place, from the lent gradient), a copying pull, a
// copying pull and a push, and the push of two writers at once; --variant barrier: rounds of two
// workers, each a pull as a view, a push and the wait for the round. The optimizer is sgd with rate
// 1. Each writer is a process that adopted the arena.

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>

#include "bench/peers/peer.h"
#include "bench/stores.h"
#include "lab/processes.h"
#include "store/sharded_store.h"

namespace peers {
namespace {

using passel::Deadline;
using passel::GradientBuffer;
using passel::Internal;
using passel::Mode;
using passel::ParameterStore;
using passel::ParamView;
using passel::PullMode;
using passel::Result;
using passel::Status;
using passel::StorePlan;
using passel::Ticket;
using passel::lab::Gate;
using passel::lab::SharedArray;

constexpr const char* kMe = "passel_peer";

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

// Of one of two writers. Both stop after the same number of pushes.
struct WriterLog {
  std::size_t samples = 0;
  double us[kMost + kTurn] = {};
  std::int64_t pushes = 0;
};

void Fill(passel::VarId, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = InitialValue(i);
}

// A worker's store on the arena `fd`, ready to push.
struct Worker {
  std::unique_ptr<passel::shm::Arena> arena;
  std::unique_ptr<ParameterStore> store;

  static Result<Worker> Open(const StorePlan& plan, int fd, int index) {
    Worker worker;
    PASSEL_ASSIGN_OR_RETURN(passel::shm::Arena arena, passel::lab::AdoptArena(fd));
    worker.arena = std::make_unique<passel::shm::Arena>(std::move(arena));
    const passel::ShardMemory memory = worker.arena->memory();
    PASSEL_ASSIGN_OR_RETURN(worker.store,
                            passel::OpenStore(plan, {&memory, 1}, index, passel::SelfIdentity(),
                                              passel::lab::EngineFor(plan.num_workers, 2)));
    if (index == 0) PASSEL_RETURN_IF_ERROR(worker.store->Initialize(Fill));
    PASSEL_RETURN_IF_ERROR(worker.store->WaitUntilInitialized(Soon()));
    return worker;
  }

  // The gradient is in the lent buffer, where a trainer computes it.
  Status FillGradients() {
    for (int i = 0; i < 4; ++i) {
      const GradientBuffer buffer = store->LendGradient();
      const std::span<float> values = buffer.values(0);
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = GradientValue(k);
      PASSEL_ASSIGN_OR_RETURN(const ParamView view, store->Pull(PullMode::kView));
      PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store->Push(buffer, view.stamp(), Soon()));
      PASSEL_RETURN_IF_ERROR(store->Wait(ticket, Soon()).status());
    }
    return {};
  }
  static constexpr std::int64_t kFillPushes = 4;

  Status Push(PullMode mode, const float** seen) {
    PASSEL_ASSIGN_OR_RETURN(const ParamView view, store->Pull(mode));
    *seen = view.values(0).data();
    const GradientBuffer buffer = store->LendGradient();
    PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store->Push(buffer, view.stamp(), Soon()));
    return store->Wait(ticket, Soon()).status();
  }
};

void Must(const Status& status) {
  if (!status.ok()) Fail(kMe, status.message());
}

Status OneWriter(const Options& options, Mode mode) {
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan, passel::lab::FlatPlan(mode, "sgd", options.elements, 1));
  plan.optimizer.learning_rate = 1;
  PASSEL_ASSIGN_OR_RETURN(const passel::shm::Arena arena, passel::lab::CreateArena(plan));
  return passel::lab::RunProcesses({{options.first_cpu}}, Soon(), [&](int, Gate&) -> Status {
    PASSEL_ASSIGN_OR_RETURN(Worker worker, Worker::Open(plan, arena.fd(), 0));
    PASSEL_RETURN_IF_ERROR(worker.FillGradients());
    ParameterStore& store = *worker.store;
    std::int64_t pushes = Worker::kFillPushes;
    const float* seen = nullptr;
    const auto pull = [&](PullMode how) {
      const Result<ParamView> view = store.Pull(how);
      Must(view.status());
      const float* volatile first = view->values(0).data();
      seen = first;
    };
    const auto push = [&](PullMode how) {
      Must(worker.Push(how, &seen));
      ++pushes;
    };
    const Samples viewed = MeasureBatches(options.seconds / 5, 64, [&] { pull(PullMode::kView); });
    if (seen != worker.arena->memory().values) return Internal("a view is a copy");
    const Samples pushed = Measure(options.seconds, [&] { push(PullMode::kView); });
    Verify(kMe, worker.arena->memory().values, options.elements, pushes);
    const Samples pulled = Measure(options.seconds, [&] { pull(PullMode::kCopy); });
    if (seen == worker.arena->memory().values) return Internal("a copy is a view");
    Verify(kMe, seen, options.elements, pushes);
    const Samples both = Measure(options.seconds, [&] { push(PullMode::kCopy); });
    Verify(kMe, worker.arena->memory().values, options.elements, pushes);
    Print("view", viewed);
    Print("push", pushed);
    Print("pull", pulled);
    Print("push+pull", both);
    return store.Leave();
  });
}

Status TwoWriters(const Options& options, Mode mode, const char* op) {
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan, passel::lab::FlatPlan(mode, "sgd", options.elements, 2));
  plan.optimizer.learning_rate = 1;
  PASSEL_ASSIGN_OR_RETURN(const passel::shm::Arena arena, passel::lab::CreateArena(plan));
  // Async: a sample is a turn until both have ended it, for one push of each.
  const bool rounds = mode == Mode::kBarrier;
  SharedArray<WriterLog> results(2);
  SharedArray<std::atomic<int>> enough(1);
  const Status ran = passel::lab::RunProcesses(
      {{options.first_cpu}, {options.second_cpu}}, Soon(), [&](int index, Gate& gate) -> Status {
        PASSEL_ASSIGN_OR_RETURN(Worker worker, Worker::Open(plan, arena.fd(), index));
        PASSEL_RETURN_IF_ERROR(worker.FillGradients());
        WriterLog& result = results[static_cast<std::size_t>(index)];
        result.pushes = Worker::kFillPushes;
        const float* seen = nullptr;
        PASSEL_RETURN_IF_ERROR(gate.Wait(Soon()));
        const std::int64_t end = NowNs() + static_cast<std::int64_t>(1e9 * options.seconds);
        for (;;) {
          const std::int64_t turn_begin = NowNs();
          for (std::size_t i = 0; i < kTurn; ++i) {
            const std::int64_t begin = NowNs();
            PASSEL_RETURN_IF_ERROR(worker.Push(PullMode::kView, &seen));
            if (rounds) result.us[result.samples++] = 1e-3 * static_cast<double>(NowNs() - begin);
            ++result.pushes;
          }
          PASSEL_RETURN_IF_ERROR(gate.Wait(Soon()));
          const std::int64_t now = NowNs();
          if (!rounds) {
            result.us[result.samples++] = 1e-3 * static_cast<double>(now - turn_begin) / kTurn;
          }
          // As in mpi_peer, writer 0 says when it is enough, between two turns.
          if (index == 0 && (now >= end || result.samples >= kMost)) enough[0].store(1);
          PASSEL_RETURN_IF_ERROR(gate.Wait(Soon()));
          if (enough[0].load() != 0) break;
          PASSEL_RETURN_IF_ERROR(gate.Wait(Soon()));
        }
        return worker.store->Leave();
      });
  PASSEL_RETURN_IF_ERROR(ran);
  const std::int64_t total = results[0].pushes + results[1].pushes;
  const float* const values = arena.memory().values;
  if (mode == Mode::kBarrier) {
    // Both hand in the same gradient: a round is one update by it.
    Verify(kMe, values, options.elements, total / 2);
  } else if (mode == Mode::kLocked) {
    Verify(kMe, values, options.elements, total);
  } else {
    // hogwild may lose updates where the two meet: not more than 5 % of what was pushed here.
    double lost = 0, pushed = 0;
    for (std::size_t i = 0; i < options.elements; ++i) {
      const double wanted = -static_cast<double>(total) * GradientValue(i);
      lost += std::abs(static_cast<double>(values[i]) - InitialValue(i) - wanted);
      pushed += std::abs(wanted);
    }
    if (lost > 0.05 * pushed)
      return Internal(
          fmt::format("WRONG: {:.1f} % of the updates of two writers are lost, limit 5 %",
                      100 * lost / pushed));
    std::printf("{\"op\": \"lost\", \"percent\": %.4f}\n", 100 * lost / pushed);
  }
  const WriterLog& mine = results[0];
  Print(op, Samples(mine.us, mine.us + mine.samples));
  return {};
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.variant == "barrier") {
    Must(TwoWriters(options, Mode::kBarrier, "round of 2"));
    return 0;
  }
  if (options.variant != "hogwild" && options.variant != "locked")
    Fail(kMe, "--variant must be hogwild, locked or barrier", 2);
  const Mode mode = options.variant == "locked" ? Mode::kLocked : Mode::kHogwild;
  Must(OneWriter(options, mode));
  Must(TwoWriters(options, mode, "push, 2 writers"));
  return 0;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) { return peers::Main(argc, argv); }
