#include "train/towers.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/denormals.h"
#include "base/nvtx.h"

namespace passel {

Result<std::unique_ptr<Towers>> Towers::Create(const ModelConfig& config, int towers,
                                               std::size_t max_batch, const MakeBackend& make) {
  if (towers < 1 || towers > kMaxTowers) {
    return InvalidArgument(
        fmt::format("the number of towers is {}: it must be from 1 to {}", towers, kMaxTowers));
  }
  const auto count = static_cast<std::size_t>(towers);
  if (count > max_batch) {
    return InvalidArgument(fmt::format(
        "{} towers need a batch of at least as many examples, not {}", towers, max_batch));
  }
  std::unique_ptr<Towers> all(new Towers(config));
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
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Towers::Serve(int tower) {
  const FlushDenormals flush;
  nvtx::NameThread(fmt::format("tower/{}", tower));
  std::uint64_t seen = 0;
  for (;;) {
    const std::function<void(int)>* work;
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return quit_ || turn_ != seen; });
      if (quit_) return;
      seen = turn_;
      work = work_;
    }
    (*work)(tower);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) end_.notify_one();
  }
}

void Towers::RunAll(const std::function<void(int)>& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    busy_ = static_cast<int>(threads_.size());
    ++turn_;
  }
  begin_.notify_all();
  work(0);
  // Not longer than the slowest tower computes: it waits for nobody.
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return busy_ == 0; });
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
  RunAll([&](int tower) { Compute(tower, batch, params); });
  BatchResult whole;
  for (const auto& tower : towers_) {
    if (!tower->result.ok()) return tower->result.status();
    whole.loss += tower->result->loss;
    whole.correct += tower->result->correct;
  }
  RunAll([&](int tower) { AddUp(tower, gradients); });
  return whole;
}

}  // namespace passel
