// report.h - the end of a step: what came of it, and the sign that it is done.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/atomics.h"
#include "cuda/kernels/cross_entropy.h"

namespace passel::cuda {

/// In pinned host memory, a cache line of its own. Everything else is valid once `number` is that
/// of the step, read with an acquire.
struct alignas(64) StepReportLine {
  double loss = 0;  ///< sum over the batch
  std::uint64_t correct = 0;
  std::uint64_t nonfinite = 0;  ///< sum of the counters: elements that are not finite
  std::uint64_t where = 0;      ///< the first counter that is not 0
  std::uint64_t number = 0;
};

/// Adds up the parts of the loss and the counters of what is not finite, in a fixed order, sets the
/// counters back to 0 for the next step, and signals.
struct ReportKernel {
  static constexpr unsigned kThreads = 32;

  const LossPart* parts = nullptr;
  std::uint32_t part_count = 0;
  std::uint32_t* nonfinite = nullptr;  ///< of GemmArguments and NonFiniteKernel
  std::uint32_t nonfinite_count = 0;
  const std::uint64_t* number = nullptr;  ///< device memory
  StepReportLine* line = nullptr;         ///< pinned host memory

  struct Shared {
    LossPart part[kThreads];
    std::uint64_t nonfinite[kThreads];
    std::uint32_t where[kThreads];
  };
  struct Private {};
  Grid grid() const { return {1, 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 2; }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private&) const {
    if (phase == 0) {
      LossPart sum{};
      for (std::uint32_t i = at.thread; i < part_count; i += kThreads) {
        sum.loss += parts[i].loss;
        sum.correct += parts[i].correct;
      }
      std::uint64_t seen = 0;
      std::uint32_t where = nonfinite_count;
      for (std::uint32_t i = at.thread; i < nonfinite_count; i += kThreads) {
        seen += nonfinite[i];
        if (nonfinite[i] != 0 && where == nonfinite_count) where = i;
        nonfinite[i] = 0;
      }
      shared.part[at.thread] = sum;
      shared.nonfinite[at.thread] = seen;
      shared.where[at.thread] = where;
    } else if (at.thread == 0) {
      LossPart sum{};
      std::uint64_t seen = 0;
      std::uint32_t where = nonfinite_count;
      for (unsigned i = 0; i < kThreads; ++i) {
        sum.loss += shared.part[i].loss;
        sum.correct += shared.part[i].correct;
        seen += shared.nonfinite[i];
        where = shared.where[i] < where ? shared.where[i] : where;
      }
      line->loss = sum.loss;
      line->correct = sum.correct;
      line->nonfinite = seen;
      line->where = where;
      StoreReleaseSystem(&line->number, *number);
    }
  }
};

}  // namespace passel::cuda
