#include "bench/fabric_step.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "bench/stores.h"
#include "fabric/client.h"
#include "fabric/server.h"
#include "lab/arenas.h"
#include "store/open_store.h"

namespace passel::bench {
namespace {

Result<StorePlan> PlanOf(std::size_t floats, std::size_t workers) {
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan,
                          lab::FlatPlan(Mode::kHogwild, "sgd", floats, static_cast<int>(workers)));
  plan.optimizer.learning_rate = 1;
  return plan;
}

// Each update adds 1 to all.
Status OneStep(ParameterStore& store) {
  PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kView));
  const GradientBuffer buffer = store.LendGradient();
  PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store.Push(buffer, view.stamp(), Soon()));
  PASSEL_ASSIGN_OR_RETURN(const PushOutcome outcome, store.Wait(ticket, Soon()));
  return outcome.applied ? Status() : Internal("a step was not applied");
}

// The gradient lies in all buffers that may be lent.
Status Prepare(ParameterStore& store, int* steps) {
  for (int i = 0; i < 4; ++i, ++*steps) {
    const GradientBuffer buffer = store.LendGradient();
    for (float& value : buffer.values(0)) value = -1;
    PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kView));
    PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store.Push(buffer, view.stamp(), Soon()));
    PASSEL_RETURN_IF_ERROR(store.Wait(ticket, Soon()).status());
  }
  return {};
}

Status Expect(ParameterStore& store, int updates) {
  PASSEL_RETURN_IF_ERROR(OneStep(store));  // what comes with it is newer than all before
  PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kCopy));
  for (const float value : view.values(0)) {
    if (value != static_cast<float>(updates + 1)) {
      return Internal(fmt::format("WRONG: after {} updates a value is {}", updates + 1, value));
    }
  }
  return {};
}

Status Steps(ParameterStore& store, int steps, std::vector<double>* us) {
  for (int i = 0; i < steps; ++i) {
    const std::int64_t begin = MonotonicNs();
    PASSEL_RETURN_IF_ERROR(OneStep(store));
    if (us != nullptr) us->push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
  }
  return {};
}

fabric::Connector Once(std::unique_ptr<fabric::Pipe> pipe) {
  const auto there = std::make_shared<std::unique_ptr<fabric::Pipe>>(std::move(pipe));
  return [there](Deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
    if (*there == nullptr) return Unavailable("the pipe has ended");
    return std::move(*there);
  };
}

}  // namespace

Status ServeSteps(std::size_t floats, std::vector<StepPipe> pipes, int socket) {
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanOf(floats, pipes.size()));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<InProcessArena> arena,
                          InProcessArena::Create(plan));
  fabric::Server server({plan, 0, arena->shard(0), {}});
  for (StepPipe& one : pipes) server.Serve(std::move(one.pipe));
  char end = 0;
  (void)::recv(socket, &end, 1, 0);
  return {};
}

Result<StepResult> MeasureSteps(std::size_t floats, std::vector<StepPipe> pipes, int rounds,
                                int steps) {
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanOf(floats, pipes.size()));
  PASSEL_ASSIGN_OR_RETURN(const StorePlan alone, PlanOf(floats, 1));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<InProcessArena> arena,
                          InProcessArena::Create(alone));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ParameterStore> own, arena->Open(0));
  const auto fill = [](VarId, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0F);
  };
  int own_updates = 0, updates = 0;
  PASSEL_RETURN_IF_ERROR(own->Initialize(fill));
  PASSEL_RETURN_IF_ERROR(Prepare(*own, &own_updates));
  StepResult result;
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (StepPipe& one : pipes) {
    result.remote.push_back({one.name, {}});
    std::vector<fabric::Connector> connectors;
    connectors.push_back(Once(std::move(one.pipe)));
    PASSEL_ASSIGN_OR_RETURN(
        std::unique_ptr<ParameterStore> store,
        fabric::OpenRemoteStore(plan, static_cast<int>(stores.size()), std::move(connectors), {}));
    if (stores.empty()) PASSEL_RETURN_IF_ERROR(store->Initialize(fill));
    PASSEL_RETURN_IF_ERROR(store->WaitUntilInitialized(Soon()));
    PASSEL_RETURN_IF_ERROR(Prepare(*store, &updates));
    stores.push_back(std::move(store));
  }
  for (int round = -1; round < rounds; ++round) {  // the first is for warming up
    const auto keep = [round](std::vector<double>& us) { return round < 0 ? nullptr : &us; };
    for (std::size_t i = 0; i < stores.size(); ++i) {
      // Who was before does not poll any more.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      PASSEL_RETURN_IF_ERROR(Steps(*stores[i], steps, keep(result.remote[i].us)));
      updates += steps;
    }
    PASSEL_RETURN_IF_ERROR(Steps(*own, steps, keep(result.update_us)));
    own_updates += steps;
  }
  for (const auto& store : stores) PASSEL_RETURN_IF_ERROR(Expect(*store, updates++));
  PASSEL_RETURN_IF_ERROR(Expect(*own, own_updates));
  for (const auto& store : stores) PASSEL_RETURN_IF_ERROR(store->Leave());
  return result;
}

}  // namespace passel::bench
