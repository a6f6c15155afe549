// sampler.h - the examples of a program's own data, shared by the workers of its job: which batch
// is whose says store/batch_source.h, and what is in it the seed and the epoch.
//
// Threads    One at a time.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "data/keyed_order.h"
#include "store/batch_source.h"
#include "store/batch_state.h"

namespace passel::capi {

struct Sampling {
  std::int64_t examples = 0, batch_size = 0;
  std::int64_t epochs = 0;  ///< 0: without an end
  std::int64_t seed = 0;
  bool in_order = false;
};

class Sampler {
 public:
  /// Gives the batches of these rules, before the number `end`.
  using Share = std::function<Result<std::unique_ptr<BatchSource>>(const BatchRules& rules,
                                                                   std::uint64_t end)>;
  /// Errors: kInvalidArgument; those of `share`.
  static Result<std::unique_ptr<Sampler>> Create(const Sampling& sampling, const Share& share);

  struct Batch {
    std::span<const std::int64_t> examples;  ///< valid until the next one; none: there is no more
    std::int64_t epoch = 0;
  };
  /// Errors: those of BatchSource::Next().
  Result<Batch> Next();
  /// As BatchSource::StillHeldBy().
  std::optional<int> StillHeldBy() { return batches_->StillHeldBy(); }
  void Done() { batches_->Done(); }
  void End() { batches_->End(); }

 private:
  Sampler(const Sampling& sampling, std::unique_ptr<BatchSource> batches)
      : sampling_(sampling), batches_(std::move(batches)), order_(1, 0) {}
  const Sampling sampling_;
  const std::unique_ptr<BatchSource> batches_;
  KeyedOrder order_;
  std::int64_t epoch_ = -1;  // of order_
  std::vector<std::int64_t> examples_;
};

}  // namespace passel::capi
