// stores.h - a store that tries other ways to apply gradients than the product does.

#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/random.h"
#include "base/status.h"
#include "lab/arenas.h"
#include "store/open_store.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"
#include "store/wait_options.h"

namespace passel::bench {

/// For whatever takes milliseconds unless something is broken.
inline Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

/// How a shard applies gradients, other than the product does.
struct Sweep {
  enum class Claims { kNone, kAdvisory, kBinding };
  /// Order of the blocks. kThereAndBack: the product's, store/sweep_order.h; the others always go
  /// up: from block 0, from block blocks * worker / workers, from any block.
  enum class Start { kThereAndBack, kZero, kOffset, kRandom };
  Claims claims = Claims::kAdvisory;
  Start start = Start::kThereAndBack;
  int passes = 3;    ///< over busy blocks, before an advisory claim is ignored
  int pause = 0;     ///< pause instructions between two passes
  bool undo = true;  ///< rounds: save the old contents of a block first
};

/// The store of one worker on `memory`: the product's, but for `sweep`.
Result<std::unique_ptr<ParameterStore>> OpenVariantStore(const StorePlan& plan,
                                                         const ShardMemory& memory, int worker,
                                                         const WaitOptions& options,
                                                         const Sweep& sweep);

}  // namespace passel::bench
