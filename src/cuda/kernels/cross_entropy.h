// cross_entropy.h - softmax cross-entropy of a batch, forward and backward.

#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/exp_nonpositive.h"
#include "cuda/kernel.h"

namespace passel::cuda {

/// What one block of CrossEntropyKernel adds up.
struct LossPart {
  double loss;
  std::uint32_t correct;
  std::uint32_t reserved;
};

/// As Backend::CrossEntropy() (compute/backend.h), in the CPU's order and precision: exponentials
/// and their sum in float32, the loss in double. A block takes kRows rows and leaves their sum, in
/// the order of the rows, in parts[block].
struct CrossEntropyKernel {
  static constexpr unsigned kRows = 16;
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kMostClasses = 256;

  float* logits = nullptr;               ///< (batch, classes); becomes d loss / d logits
  std::size_t ld = 0;                    ///< floats from row to row
  const std::uint8_t* labels = nullptr;  ///< (batch), each < classes
  LossPart* parts = nullptr;             ///< (grid().blocks_x)
  std::uint32_t batch = 0;
  std::uint32_t classes = 0;  ///< 1 to kMostClasses
  float clip = 0;             ///< a probability below counts as this and has gradient 0; 0: no clip
  float scale = 1;            ///< of the gradient

  struct Shared {
    float row[kRows][kMostClasses + 1];  // odd, so that rows start in different banks
    float largest[kRows];
    float shifted[kRows];  // logit of the label minus the largest
    float inverse[kRows];  // 1 / sum of the exponentials
    double loss[kRows];
    std::uint32_t correct[kRows];
    bool clipped[kRows];
  };
  static_assert(sizeof(Shared) <= 48 * 1024);
  struct Private {};
  Grid grid() const { return {Blocks(batch, kRows), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 5; }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private&) const {
    const std::size_t first = std::size_t{at.block_x} * kRows;
    const unsigned rows = first >= batch           ? 0
                          : batch - first >= kRows ? kRows
                                                   : static_cast<unsigned>(batch - first);
    const unsigned items = rows * classes;
    const unsigned r = at.thread;  // in the phases with one thread per row
    switch (phase) {
      case 0:
        for (unsigned i = at.thread; i < items; i += kThreads) {
          shared.row[i / classes][i % classes] = logits[(first + i / classes) * ld + i % classes];
        }
        break;
      case 1:
        if (r < rows) FindLargest(labels[first + r], r, shared);
        break;
      case 2:
        for (unsigned i = at.thread; i < items; i += kThreads) {
          float& y = shared.row[i / classes][i % classes];
          y = ExpNonPositive(y - shared.largest[i / classes]);
        }
        break;
      case 3:
        if (r < rows) AddUp(labels[first + r], r, shared);
        break;
      default:
        for (unsigned i = at.thread; i < items; i += kThreads) {
          const unsigned b = i / classes, j = i % classes;
          const float p = shared.row[b][j] * shared.inverse[b];
          const float target = j == labels[first + b] ? 1.f : 0.f;
          logits[(first + b) * ld + j] = shared.clipped[b] ? 0.f : (p - target) * scale;
        }
        if (at.thread == 0) {
          LossPart total{};
          for (unsigned b = 0; b < rows; ++b) {
            total.loss += shared.loss[b];
            total.correct += shared.correct[b];
          }
          parts[at.block_x] = total;
        }
    }
  }

 private:
  // The largest logit; a NaN among those that were compared shows in the sums. A hit: the label's
  // is the first of the largest.
  PASSEL_KERNEL void FindLargest(unsigned label, unsigned r, Shared& shared) const {
    const float* y = shared.row[r];
    float largest = y[0];
    for (unsigned j = 1; j < classes; ++j) largest = y[j] > largest ? y[j] : largest;
    const float shifted = y[label] - largest;
    bool hit = shifted == 0;
    for (unsigned j = 0; j < label; ++j) hit = hit && y[j] != largest;
    shared.largest[r] = largest;
    shared.shifted[r] = shifted;
    shared.correct[r] = hit ? 1 : 0;
  }

  PASSEL_KERNEL void AddUp(unsigned label, unsigned r, Shared& shared) const {
    float sum = 0;
    for (unsigned j = 0; j < classes; ++j) sum += shared.row[r][j];
    const float inverse = 1.f / sum;
    const bool clipped = shared.row[r][label] * inverse < clip;
    shared.inverse[r] = inverse;
    shared.clipped[r] = clipped;
    shared.loss[r] = clipped
                         ? -Log(static_cast<double>(clip))
                         : Log(static_cast<double>(sum)) - static_cast<double>(shared.shifted[r]);
  }

  static PASSEL_KERNEL double Log(double x) {
#if defined(__CUDA_ARCH__)
    return log(x);
#else
    return __builtin_log(x);
#endif
  }
};

}  // namespace passel::cuda
