// One worker's compute, model and optimizer, against plain loops that do the same.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/cpu_isa.h"
#include "base/denormals.h"
#include "bench/model_training.h"
#include "bench/plain_process.h"
#include "bench/plain_training.h"
#include "bench/suite.h"
#include "data/dataset.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

constexpr std::size_t kBatch = 100;
constexpr std::size_t kHidden = 100;
constexpr int kStepsOfTurn = 10;

// Both must hold the same values after the same steps, but for the order of sums.
Status Verify(const Dataset& data, ModelTraining& product, PlainTraining& plain, Batches& batches) {
  for (int step = 0; step < 5; ++step) {
    const std::span<const std::uint32_t> batch = batches.Next();
    PASSEL_RETURN_IF_ERROR(product.Step(batch));
    plain.Step(batch.data());
  }
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < data.train().image_pixels * kHidden; ++i) {
    const auto expected = static_cast<double>(plain.w1()[i]);
    const double error = static_cast<double>(product.values(0)[i]) - expected;
    difference += error * error;
    size += expected * expected;
  }
  if (difference <= 1e-6 * size) return {};
  return Internal(fmt::format("after 5 steps the model and the plain loops differ by {:.1e}",
                              std::sqrt(difference / size)));
}

struct ComputeLog {
  double product_us, plain_us;  // medians of a step
  std::size_t count;
  double us[20000];  // every step of the product
};

// Both in one process, in turns of a few steps, on the same batches.
Status RunBoth(const Dataset& data, bool flush, int turns, int warm_up, ComputeLog* log) {
  std::optional<FlushDenormals> flushing;
  if (flush) flushing.emplace();
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ModelTraining> product,
                          ModelTraining::Create(data));
  PlainTraining plain(data.train().images.data(), data.train().labels.data(),
                      data.train().image_pixels, kHidden, data.num_classes(), kBatch);
  plain.SetValues(product->values(0), product->values(1), product->values(2), product->values(3));
  Batches batches(data.train().size(), kBatch);
  PASSEL_RETURN_IF_ERROR(Verify(data, *product, plain, batches));
  std::vector<double> product_us, plain_us;
  std::vector<std::vector<std::uint32_t>> of_turn(kStepsOfTurn);
  for (int turn = -warm_up; turn < turns; ++turn) {
    for (auto& batch : of_turn) {
      const std::span<const std::uint32_t> next = batches.Next();
      batch.assign(next.begin(), next.end());
    }
    // Who comes first finds the images farther away: they take turns.
    for (const bool first : {true, false}) {
      const bool is_product = first == (turn % 2 == 0);
      for (const auto& batch : of_turn) {
        const std::int64_t begin = MonotonicNs();
        if (is_product) {
          PASSEL_RETURN_IF_ERROR(product->Step(batch));
        } else {
          plain.Step(batch.data());
        }
        const double us = 1e-3 * static_cast<double>(MonotonicNs() - begin);
        if (turn >= 0) (is_product ? product_us : plain_us).push_back(us);
      }
    }
  }
  log->product_us = lab::Median(product_us);
  log->plain_us = lab::Median(plain_us);
  log->count = std::min(product_us.size(), std::size(log->us));
  std::copy_n(product_us.begin(), log->count, log->us);
  return {};
}

// As RunBoth(), but the plain loops are in a process of their own, where OpenBLAS chooses.
Status RunBesideOwnChoice(const Dataset& data, const std::string& dir, int turns, int warm_up,
                          ComputeLog* log) {
  const FlushDenormals flushing;
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ModelTraining> product,
                          ModelTraining::Create(data));
  PASSEL_ASSIGN_OR_RETURN(PlainProcess plain, PlainProcess::Start(dir));
  Batches batches(data.train().size(), kBatch);
  std::vector<double> product_us, plain_us;
  for (int turn = -warm_up; turn < turns; ++turn) {
    for (const bool first : {true, false}) {
      if (first == (turn % 2 == 0)) {
        for (int step = 0; step < kStepsOfTurn; ++step) {
          const std::span<const std::uint32_t> batch = batches.Next();
          const std::int64_t begin = MonotonicNs();
          PASSEL_RETURN_IF_ERROR(product->Step(batch));
          if (turn < 0) continue;
          product_us.push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
        }
      } else {
        PASSEL_ASSIGN_OR_RETURN(const std::vector<double> us, plain.Steps(kStepsOfTurn));
        if (turn >= 0) plain_us.insert(plain_us.end(), us.begin(), us.end());
      }
    }
  }
  log->product_us = lab::Median(product_us);
  log->plain_us = lab::Median(plain_us);
  log->count = std::min(product_us.size(), std::size(log->us));
  std::copy_n(product_us.begin(), log->count, log->us);
  return {};
}

enum class Beside { kSameKernels, kSameKernelsNoFlush, kOwnChoice };

Status BenchCompute(benchmark::State& state, Suite& suite, Beside beside, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  const bool smoke = suite.settings().smoke;
  // Without the flag, moments sink into the subnormal range after some hundred steps.
  const int warm_up = smoke ? 0 : 60;
  const int turns = smoke ? 2 : 60;
  std::vector<double> measured, limit, all;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    lab::SharedArray<ComputeLog> logs(1);
    PASSEL_RETURN_IF_ERROR(lab::RunProcesses(
        lab::OneCoreEach(1), Deadline::After(std::chrono::seconds(60)), [&](int, lab::Gate&) {
          if (beside == Beside::kOwnChoice) {
            return RunBesideOwnChoice(*data, dir, turns, warm_up, &logs[0]);
          }
          return RunBoth(*data, beside == Beside::kSameKernels, turns, warm_up, &logs[0]);
        }));
    const ComputeLog& log = logs[0];
    measured.push_back(1e6 / log.product_us);
    limit.push_back(1e6 / log.plain_us);
    all.insert(all.end(), log.us, log.us + log.count);
    state.SetIterationTime(1e-6 * log.product_us * static_cast<double>(log.count));
  }
  Compare(measured, limit, &row);
  const lab::Latency step = lab::Summarize(all);
  row.note = fmt::format("a step: p50 {:.0f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f} us of {}",
                         step.p50, step.p99, step.p999, step.maximum, step.samples);
  return {};
}

}  // namespace

void RegisterComputeBenchmarks(Suite& suite) {
  struct Case {
    Beside beside;
    const char *what, *name;
    Target target;
  };
  // Where there is AVX-512, OpenBLAS's own choice loses more.
  const double least = ChosenCpuIsa() == CpuIsa::kAvx512 ? 1.35 : 1.25;
  for (const Case& one :
       {Case{Beside::kSameKernels, "one worker's compute, Adam, FTZ/DAZ on", "flush:1",
             RatioAtLeast(0.96)},
        Case{Beside::kSameKernelsNoFlush, "one worker's compute, Adam, FTZ/DAZ off", "flush:0",
             NoTarget()},
        Case{Beside::kOwnChoice, "one worker's compute, Adam; plain loops, OpenBLAS's own choice",
             "flush:1/core:own", RatioAtLeast(least)}}) {
    Row row;
    row.what = one.what;
    row.unit = "steps/s";
    row.is_reference = true;
    row.target = one.target;
    suite.Register(fmt::format("BM_Compute/opt:adam/hidden:100/batch:100/{}", one.name), row,
                   suite.settings().Pairs(7),
                   [&suite, beside = one.beside](benchmark::State& state, Row& found) {
                     return BenchCompute(state, suite, beside, found);
                   });
  }
}

}  // namespace passel::bench
