// one_worker.h - the store of a single worker on an arena, ready to push.

#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "shm/arena.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"

namespace passel::bench {

struct OneWorker {
  std::unique_ptr<shm::Arena> arena;
  std::unique_ptr<ParameterStore> store;

  /// Creates the arena, joins it as worker 0 and initialises the values. `plan` has one worker.
  static Result<OneWorker> Make(const StorePlan& plan);
};

/// A gradient for variable 0 with elements of both signs, none of them large.
void FillGradient(const GradientBuffer& gradient);

}  // namespace passel::bench
