// stores.h - what benchmarks of stores share: a deadline, and a store without claims.

#pragma once

#include <chrono>
#include <memory>

#include "base/deadline.h"
#include "base/status.h"
#include "lab/arenas.h"
#include "store/open_store.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"
#include "store/wait_options.h"

namespace passel::bench {

/// For whatever takes milliseconds unless something is broken.
inline Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

/// The store of one worker on `memory`: the product's, but for pushes that sweep elements 0..P-1
/// without claims. For the modes without rounds.
Result<std::unique_ptr<ParameterStore>> OpenNaiveStore(const StorePlan& plan,
                                                       const ShardMemory& memory, int worker,
                                                       const WaitOptions& options);

}  // namespace passel::bench
