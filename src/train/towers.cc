#include "train/towers.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/denormals.h"
#include "base/nvtx.h"

namespace passel {
namespace {

constexpr std::chrono::minutes kTurn{10};

}  // namespace

// Waits for the other threads of one step. Spinning saves the wake-up where every tower has its
// core; where other programs have it, spinning takes the time from them and from us. So a wait
// that spinning did not end makes the next ones spin less, and now and then one tries it in full.
class Towers::Waiter {
 public:
  explicit Waiter(std::chrono::nanoseconds most) : most_(most), spin_(most) {}

  template <typename Condition>
  void Wait(EventWord& event, Condition&& condition) {
    if (condition()) return;
    const std::chrono::nanoseconds spin = ++waits_ % kTryEvery == 0 ? most_ : spin_;
    bool slept = false;
    while (!WaitFor(event, spin, Deadline::After(kTurn), condition, [&] { slept = true; })) {
    }
    spin_ = slept ? spin_ / 2 : spin;
  }

 private:
  static constexpr std::uint64_t kTryEvery = 64;
  const std::chrono::nanoseconds most_;
  std::chrono::nanoseconds spin_;
  std::uint64_t waits_ = 0;
};

Towers::Towers(const ModelConfig& config, std::chrono::nanoseconds spin)
    : config_(config), spin_(spin), waiter_(std::make_unique<Waiter>(spin)) {}

Result<std::unique_ptr<Towers>> Towers::Create(const ModelConfig& config, int towers,
                                               std::size_t max_batch, const MakeBackend& make,
                                               std::chrono::nanoseconds spin) {
  if (towers < 1 || towers > kMaxTowers) {
    return InvalidArgument(
        fmt::format("the number of towers is {}: it must be from 1 to {}", towers, kMaxTowers));
  }
  const auto count = static_cast<std::size_t>(towers);
  if (count > max_batch) {
    return InvalidArgument(fmt::format(
        "{} towers need a batch of at least as many examples, not {}", towers, max_batch));
  }
  std::unique_ptr<Towers> all(new Towers(config, spin));
  for (std::size_t t = 0; t < count; ++t) {
    auto tower = std::make_unique<Tower>();
    PASSEL_ASSIGN_OR_RETURN(tower->backend, make());
    PASSEL_ASSIGN_OR_RETURN(
        tower->model, Model::Create(config, *tower->backend, (max_batch + count - 1) / count));
    for (const VariableSpec& variable : tower->model->variables()) {
      tower->gradient.emplace_back(variable.elements());
      tower->parts.push_back({{tower->gradient.back().data(), 0, variable.rows()}});
    }
    all->towers_.push_back(std::move(tower));
  }
  for (int t = 1; t < towers; ++t)
    all->threads_.emplace_back([all = all.get(), t] { all->Serve(t); });
  return all;
}

Towers::~Towers() {
  quit_.store(true, std::memory_order_release);
  Notify(begin_);
  for (std::thread& thread : threads_) thread.join();
}

void Towers::Serve(int tower) {
  const FlushDenormals flush;
  nvtx::NameThread(fmt::format("tower/{}", tower));
  Waiter waiter(spin_);
  std::uint64_t seen = 0;
  for (;;) {
    const auto called = [&] {
      return quit_.load(std::memory_order_acquire) || turn_.load(std::memory_order_acquire) != seen;
    };
    // However long the worker waits for others: ~Towers() calls too.
    waiter.Wait(begin_, called);
    if (quit_.load(std::memory_order_acquire)) return;
    ++seen;  // a turn begins when all have ended the last one
    (*work_)(tower);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) Notify(end_);
  }
}

void Towers::RunAll(const std::function<void(int)>& work) {
  work_ = &work;
  busy_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);  // before the release
  turn_.fetch_add(1, std::memory_order_release);
  Notify(begin_);
  work(0);
  // Not longer than the slowest tower computes: it waits for nobody.
  waiter_->Wait(end_, [&] { return busy_.load(std::memory_order_acquire) == 0; });
}

void Towers::Compute(int tower, const Batch& batch, ParameterParts params) {
  Tower& mine = *towers_[static_cast<std::size_t>(tower)];
  const std::size_t size = batch.indices.size();
  const std::size_t count = towers_.size();
  const auto t = static_cast<std::size_t>(tower);
  const std::size_t share = size / count + (t < size % count ? 1 : 0);
  const std::size_t first = t * (size / count) + std::min(t, size % count);
  mine.weight = config_.loss == LossReduction::kMean
                    ? static_cast<float>(share) / static_cast<float>(size)
                    : 1.F;
  mine.result = mine.model->LossAndGradient({batch.from, batch.indices.subspan(first, share)},
                                            params, mine.parts);
  if (mine.result.ok() && config_.loss == LossReduction::kMean) {
    mine.result->loss *= static_cast<double>(share) / static_cast<double>(size);
  }
}

// This tower's share of the elements of every part, from all towers in their order.
void Towers::AddUp(int tower, GradientParts gradients) const {
  const std::size_t count = towers_.size();
  const auto t = static_cast<std::size_t>(tower);
  const std::vector<VariableSpec>& variables = towers_[0]->model->variables();
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const std::size_t cols = variables[v].cols();
    for (const MutableRowPart& part : gradients[v]) {
      const std::size_t elements = part.rows * cols;
      const std::size_t begin = elements * t / count;
      const std::size_t end = elements * (t + 1) / count;
      for (std::size_t k = 0; k < count; ++k) {
        const float weight = towers_[k]->weight;
        const float* const from = towers_[k]->gradient[v].data() + part.first_row * cols;
        float* const to = part.data;
        if (k == 0) {
          for (std::size_t i = begin; i < end; ++i) to[i] = weight * from[i];
        } else {
          for (std::size_t i = begin; i < end; ++i) to[i] += weight * from[i];
        }
      }
    }
  }
}

Result<BatchResult> Towers::LossAndGradient(const Batch& batch, ParameterParts params,
                                            GradientParts gradients) {
  PASSEL_CHECK(batch.indices.size() >= towers_.size(), "every tower needs an example");
  const auto compute = [&](int tower) { Compute(tower, batch, params); };
  RunAll(std::cref(compute));  // a std::function of the lambda itself would allocate
  BatchResult whole;
  for (const auto& tower : towers_) {
    if (!tower->result.ok()) return tower->result.status();
    whole.loss += tower->result->loss;
    whole.correct += tower->result->correct;
  }
  const auto add_up = [&](int tower) { AddUp(tower, gradients); };
  RunAll(std::cref(add_up));
  return whole;
}

}  // namespace passel
