#include "bench/one_worker.h"

#include <utility>

#include "base/process_identity.h"
#include "bench/stores.h"

namespace passel::bench {
namespace {

void FillValues(VarId, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.001F * static_cast<float>(i % 1000) - 0.5F;
  }
}

}  // namespace

Result<OneWorker> OneWorker::Make(const StorePlan& plan) {
  OneWorker one;
  PASSEL_ASSIGN_OR_RETURN(shm::Arena arena, lab::CreateArena(plan));
  one.arena = std::make_unique<shm::Arena>(std::move(arena));
  const ShardMemory memory = one.arena->memory();
  PASSEL_ASSIGN_OR_RETURN(one.store, OpenStore(plan, {&memory, 1}, 0, SelfIdentity(), {}));
  PASSEL_RETURN_IF_ERROR(one.store->Initialize(FillValues));
  return one;
}

void FillGradient(const GradientBuffer& gradient) {
  const std::span<float> values = gradient.values(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 1e-3F * static_cast<float>(static_cast<int>(i % 17) - 8);
  }
}

}  // namespace passel::bench
