#include "lab/writers.h"

#include <fmt/core.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

#include "base/process_identity.h"
#include "base/subprocess.h"
#include "lab/arenas.h"
#include "optim/update_kernels.h"
#include "store/open_store.h"

namespace passel::lab {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(120)); }

// The product.
class StoreWriter final : public Writer {
 public:
  StoreWriter(std::unique_ptr<ParameterStore> store, PullMode pull)
      : store_(std::move(store)), pull_(pull) {}

  Status Update(Deadline deadline) override {
    PASSEL_ASSIGN_OR_RETURN(const ParamView view, store_->Pull(pull_));
    const GradientBuffer buffer = store_->LendGradient();
    PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store_->Push(buffer, view.stamp(), deadline));
    PASSEL_ASSIGN_OR_RETURN(const PushOutcome outcome, store_->Wait(ticket, deadline));
    return outcome.applied ? Status() : Internal("a push was dropped, though all are counted");
  }
  float* gradient() const override { return store_->LendGradient().values(0).data(); }
  Collisions collisions() const override {
    const WorkerCounters& counters = store_->counters();
    Collisions found;
    found.busy = counters.busy_blocks.load(std::memory_order_relaxed);
    found.overlapped = counters.overlapped_blocks.load(std::memory_order_relaxed);
    return found;
  }
  Status Leave() override { return store_->Leave(); }

 private:
  const std::unique_ptr<ParameterStore> store_;
  const PullMode pull_;
};

// What one would write instead.
class FoilWriter final : public Writer {
 public:
  FoilWriter(const Cell& cell, const StorePlan& plan, const ShardMemory& memory, int index,
             SharedMutex* mutex)
      : foil_(cell.sharing.foil),
        elements_(cell.elements),
        optimizer_(plan.optimizer),
        memory_(memory),
        gradient_(memory.Gradient(index, 0)),
        mutex_(cell.sharing.foil == Foil::kMutex ? mutex : nullptr),
        copy_(cell.op == CellOp::kPushPull ? cell.elements : 0) {}

  Status Update(Deadline deadline) override {
    if (!copy_.empty()) {
      if (mutex_ != nullptr) PASSEL_RETURN_IF_ERROR(mutex_->Lock(deadline));
      CopyValues(copy_.data(), memory_.values, elements_);
      if (mutex_ != nullptr) mutex_->Unlock();
    }
    if (mutex_ != nullptr) PASSEL_RETURN_IF_ERROR(mutex_->Lock(deadline));
    // Relaxed: a number of its own.
    const StepScalars scalars = Prepare(
        optimizer_, memory_.state->optimizer_step.fetch_add(1, std::memory_order_relaxed) + 1);
    if (foil_ == Foil::kAtomic) {
      ApplyAtomically(scalars, memory_.values, memory_.slots, gradient_, elements_);
    } else {
      Apply(scalars, memory_.values, memory_.slots, gradient_, elements_);
    }
    if (mutex_ != nullptr) mutex_->Unlock();
    return {};
  }
  float* gradient() const override { return gradient_; }

 private:
  const Foil foil_;
  const std::size_t elements_;
  const OptimizerConfig optimizer_;
  const ShardMemory memory_;
  float* const gradient_;     // [elements_]
  SharedMutex* const mutex_;  // null: no lock
  std::vector<float> copy_;   // [elements_], or none
};

}  // namespace

Status SharedMutex::Init() {
  pthread_mutexattr_t attributes;
  int error = ::pthread_mutexattr_init(&attributes);
  if (error == 0) error = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = ::pthread_mutex_init(&mutex_, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return error == 0 ? Status() : ErrnoStatus(error, "cannot make a mutex for several processes");
}

Status SharedMutex::Lock(Deadline deadline) {
  int error = ::pthread_mutex_trylock(&mutex_);
  if (error == EBUSY) {
    timespec until{};
    until.tv_sec = static_cast<time_t>(deadline.at_ns() / 1'000'000'000);
    until.tv_nsec = static_cast<long>(deadline.at_ns() % 1'000'000'000);
    error = ::pthread_mutex_clocklock(&mutex_, CLOCK_MONOTONIC, &until);
  }
  if (error == 0) return {};
  if (error == ETIMEDOUT) return DeadlineExceeded("another writer kept the lock for too long");
  return ErrnoStatus(error, "cannot lock the mutex of a cell");
}

void SharedMutex::Unlock() { ::pthread_mutex_unlock(&mutex_); }

Result<std::unique_ptr<Writer>> OpenWriter(const Cell& cell, const StorePlan& plan,
                                           const ShardMemory& memory, int index,
                                           SharedMutex* mutex) {
  if (cell.sharing.is_foil()) {
    return std::unique_ptr<Writer>(std::make_unique<FoilWriter>(cell, plan, memory, index, mutex));
  }
  const int cores = cell.placement == Placement::kOne ? 1 : static_cast<int>(UsableCpus().size());
  PASSEL_ASSIGN_OR_RETURN(
      std::unique_ptr<ParameterStore> store,
      OpenStore(plan, {&memory, 1}, index, SelfIdentity(), EngineFor(cell.writers, cores)));
  if (index == 0) {
    PASSEL_RETURN_IF_ERROR(store->Initialize([](VarId, std::span<float>) {}));
  }
  PASSEL_RETURN_IF_ERROR(store->WaitUntilInitialized(Soon()));
  const PullMode pull = cell.op == CellOp::kPushPull ? PullMode::kCopy : PullMode::kView;
  return std::unique_ptr<Writer>(std::make_unique<StoreWriter>(std::move(store), pull));
}

}  // namespace passel::lab
