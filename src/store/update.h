// update.h - what one sweep over the blocks applies. Inside the engine only.

#pragma once

#include "optim/update_kernels.h"
#include "store/local_shard.h"

namespace passel {

struct LocalShard::Update {
  StepScalars scalars;
  const float* const* gradients;  // [count], each the whole shard
  int count;
  int weight;  // > 1: divides their sum, taken in this order
};

}  // namespace passel
