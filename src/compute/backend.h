// backend.h - the operations a model is made of, on a processor. A GPU makes whole steps instead:
// step_engine.h.
//
// All matrices are float32, row-major, and live in backend memory. Operations are queued in order
// and may still be running when their call returns: what they write may be read by later
// operations at once, and by the caller after Finish().
//
// Threads    A Backend belongs to one thread.
// Errors     An operation has no result of its own; Finish() reports the first that failed.
//            Shapes that do not fit are a bug of the caller and stop the program.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"

namespace passel {

/// A block of a row-major matrix in backend memory; does not own it. T: float or const float.
template <typename T>
struct BasicMatrix {
  T* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t ld = 0;  ///< floats from one row to the next, >= cols

  BasicMatrix() = default;
  BasicMatrix(T* data_, std::size_t rows_, std::size_t cols_, std::size_t ld_)
      : data(data_), rows(rows_), cols(cols_), ld(ld_) {}
  /// A view through which nothing is written.
  operator BasicMatrix<const T>() const {  // NOLINT(google-explicit-constructor): as T* to const T*
    return {data, rows, cols, ld};
  }
  BasicMatrix Columns(std::size_t first, std::size_t count) const {
    return {data + first, rows, count, ld};
  }
};
using Matrix = BasicMatrix<float>;
using ConstMatrix = BasicMatrix<const float>;

/// Labelled examples in backend memory; does not own them.
struct Examples {
  const std::uint8_t* pixels = nullptr;  ///< (rows, inputs), dense
  const std::uint8_t* labels = nullptr;  ///< (rows), each below the number of classes
  std::size_t rows = 0;
};

/// What CrossEntropy adds up over a batch.
struct BatchLoss {
  double sum = 0;           ///< of -log(p of the true class), over the batch
  std::size_t correct = 0;  ///< examples whose first largest logit is the true class
};

struct CrossEntropyOptions {
  /// true: L = -log(clip(p, 1e-10, 1)), whose gradient is exactly 0 for an example with p < 1e-10.
  /// false: L = -log(p), stable for any finite logits.
  bool clip = true;
  /// Factor on the gradient: 1 for the loss summed over the batch, 1 / batch for its mean.
  float gradient_scale = 1;
};

enum class Transpose : bool { kNo, kYes };
enum class Activation : std::uint8_t { kNone, kRelu };

/// Where a batch's probability counts as vanished (CrossEntropyOptions::clip).
inline constexpr float kProbabilityClip = 1e-10f;

class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "cpu"; for log lines.
  virtual std::string_view name() const = 0;

  /// Gives its memory back to the backend that lent it, which must outlive it.
  struct Deleter {
    Backend* owner = nullptr;
    std::size_t bytes = 0;
    void operator()(void* memory) const { owner->Free(memory, bytes); }
  };
  using Memory = std::unique_ptr<void, Deleter>;

  /// `bytes` of zeroed backend memory, 64-byte aligned. Errors: kResourceExhausted.
  virtual Result<Memory> Allocate(std::size_t bytes) = 0;
  /// Backend memory to host memory, complete after Finish().
  virtual void CopyOut(void* to_host, const void* from, std::size_t bytes) = 0;

  /// out[b, i] = float(pixels[indices[b], i]) * (1.f / 255); labels_out[b] = labels[indices[b]].
  /// `indices` are in host memory and may change after the call. `labels_out` is backend memory
  /// of indices.size() bytes, or null, and then `from.labels` is not read.
  /// REQUIRES: every index < from.rows; out.rows == indices.size().
  virtual void Gather(const Examples& from, std::span<const std::uint32_t> indices, Matrix out,
                      std::uint8_t* labels_out) = 0;

  /// c = op(a) op(b) + beta c. With beta == 0 c is written, never read.
  /// REQUIRES: no dimension above 2^31 - 1; c overlaps neither a nor b.
  virtual void Gemm(Transpose transpose_a, Transpose transpose_b, ConstMatrix a, ConstMatrix b,
                    float beta, Matrix c) = 0;

  /// y[b, j] = activation(y[b, j] + bias[j]), where relu(NaN) is NaN. `bias`: (y.cols).
  virtual void AddBias(const float* bias, Activation activation, Matrix y) = 0;

  /// Backward of AddBias with kRelu, given its result `h`: dh[b, j] is set to 0 where
  /// h[b, j] <= 0, then bias_gradient[j] = sum over b of dh[b, j], in the order of b.
  virtual void ReluBackward(ConstMatrix h, Matrix dh, float* bias_gradient) = 0;

  /// out[j] = sum over b of d[b, j], in the order of b: the bias gradient of a linear layer.
  virtual void ColumnSums(ConstMatrix d, float* out) = 0;

  /// Softmax cross-entropy, forward and backward in place: takes logits (batch, classes), leaves
  /// d loss / d logits. `labels`: (batch), in backend memory, each < logits.cols. `*result` is
  /// host memory; it is overwritten no later than Finish().
  virtual void CrossEntropy(const CrossEntropyOptions& options, const std::uint8_t* labels,
                            Matrix logits, BatchLoss* result) = 0;

  /// Logits to probabilities, row by row, in place.
  virtual void Softmax(Matrix logits) = 0;

  /// Waits for all operations. Errors: kUnavailable or kInternal from the device, with the
  /// operation named; the CPU has none.
  virtual Status Finish() = 0;

 protected:
  virtual void Free(void* memory, std::size_t bytes) = 0;
};

}  // namespace passel
