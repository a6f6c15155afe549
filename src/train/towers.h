// towers.h - in-graph replication: one worker computes its batch on several threads.
//
//   batch of 100 ─► tower 0: 34 examples ─► gradient 0 ─┐
//                   tower 1: 33 examples ─► gradient 1 ─┼─► mean, in this order ─► one push
//                   tower 2: 33 examples ─► gradient 2 ─┘
//
// Each tower has a backend, activations and gradients of its own; the parameters are shared. The
// first (batch mod towers) towers take one example more. The mean is over examples, so it is that
// of the whole batch whatever the remainder; gradients are added in the order of the towers, so
// that it is the same bit for bit each time.
//
// Threads    One caller at a time. It computes tower 0 itself; the others have a thread each, which
//            spins for a while between steps, then sleeps, and ends with this object.
// Errors     The backends'; of several the lowest tower's.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/event_word.h"
#include "base/status.h"
#include "nn/model.h"

namespace passel {

inline constexpr int kMaxTowers = 64;

class Towers {
 public:
  using MakeBackend = std::function<Result<std::unique_ptr<Backend>>()>;

  /// For batches of `towers` to `max_batch` examples. `make` is called once for each tower; the
  /// backends' memory must be memory of this process. `spin`: how long a tower without work, and
  /// the caller while others compute, spin before they sleep, at most: less while it does not help.
  /// Errors: kInvalidArgument for `towers` outside [1, kMaxTowers] or above `max_batch`; those of
  /// `make` and of Model::Create().
  static Result<std::unique_ptr<Towers>> Create(const ModelConfig& config, int towers,
                                                std::size_t max_batch, const MakeBackend& make,
                                                std::chrono::nanoseconds spin);
  ~Towers();
  Towers(const Towers&) = delete;
  Towers& operator=(const Towers&) = delete;

  /// As Model::LossAndGradient() of the whole batch, but for the order in which is added up.
  /// REQUIRES: towers <= batch.indices.size() <= max_batch.
  Result<BatchResult> LossAndGradient(const Batch& batch, ParameterParts params,
                                      GradientParts gradients);

 private:
  struct Tower {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Model> model;
    std::vector<std::vector<float>> gradient;        // [variables][elements]
    std::vector<std::vector<MutableRowPart>> parts;  // of `gradient`, one each
    Result<BatchResult> result = BatchResult{};
    float weight = 1;  // of its gradient in the whole
  };
  Towers(const ModelConfig& config, std::chrono::nanoseconds spin);
  class Waiter;
  void Serve(int tower);
  /// `work(tower)` for all towers at once, each on its thread.
  void RunAll(const std::function<void(int)>& work);
  void Compute(int tower, const Batch& batch, ParameterParts params);
  void AddUp(int tower, GradientParts gradients) const;

  const ModelConfig config_;
  const std::chrono::nanoseconds spin_;
  std::vector<std::unique_ptr<Tower>> towers_;

  EventWord begin_, end_;
  std::unique_ptr<Waiter> waiter_;                  // of the caller
  const std::function<void(int)>* work_ = nullptr;  // of this turn
  // Release in RunAll(), acquire in Serve(): who sees the turn sees its work.
  std::atomic<std::uint64_t> turn_{0};
  // Towers that are not done. Release in Serve(), acquire in RunAll(): who sees 0 sees all results.
  std::atomic<int> busy_{0};
  std::atomic<bool> quit_{false};
  std::vector<std::thread> threads_;  // of towers 1 and up
};

}  // namespace passel
