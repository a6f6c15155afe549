// sampler.h - the examples of a program's own data, shared by the workers of its job: which batch
// is whose says store/shared_batches.h, and what is in it the seed and the epoch.
//
// Threads    One at a time.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "cluster/worker_names.h"
#include "data/keyed_order.h"
#include "store/shared_batches.h"

namespace passel::capi {

struct Sampling {
  std::int64_t examples = 0, batch_size = 0;
  std::int64_t epochs = 0;  ///< 0: without an end
  std::int64_t seed = 0;
  bool in_order = false;
};

class Sampler {
 public:
  /// Of the worker `worker`, which runs. Errors: kInvalidArgument.
  static Result<std::unique_ptr<Sampler>> Create(const ShardMemory& lead, int worker,
                                                 const Sampling& sampling,
                                                 const WorkerNames& names);

  struct Batch {
    std::span<const std::int64_t> examples;  ///< valid until the next one; none: there is no more
    std::int64_t epoch = 0;
  };
  /// Errors: kAborted.
  Result<Batch> Next();
  /// As SharedBatches::Done().
  void Done() { batches_->Done(); }

 private:
  Sampler(const Sampling& sampling, std::unique_ptr<SharedBatches> batches)
      : sampling_(sampling), batches_(std::move(batches)), order_(1, 0) {}
  const Sampling sampling_;
  const std::unique_ptr<SharedBatches> batches_;
  KeyedOrder order_;
  std::int64_t epoch_ = -1;  // of order_
  std::vector<std::int64_t> examples_;
};

}  // namespace passel::capi
