#include "bench/timed_backend.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace passel::bench {
namespace {

// Adds its lifetime to a sum.
class Timer {
 public:
  explicit Timer(std::int64_t* sum) : sum_(*sum), begin_(MonotonicNs()) {}
  ~Timer() { sum_ += MonotonicNs() - begin_; }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::int64_t& sum_;
  const std::int64_t begin_;
};

class TimedBackend final : public Backend {
 public:
  TimedBackend(std::unique_ptr<Backend> inner, PartTimes* times)
      : inner_(std::move(inner)), times_(*times) {}

  std::string_view name() const override { return inner_->name(); }
  Result<Memory> Allocate(std::size_t bytes) override { return inner_->Allocate(bytes); }
  void CopyOut(void* to, const void* from, std::size_t bytes) override {
    inner_->CopyOut(to, from, bytes);
  }
  void Gather(const Examples& from, std::span<const std::uint32_t> indices, Matrix out,
              std::uint8_t* labels) override {
    const Timer timer(&times_.gather);
    inner_->Gather(from, indices, out, labels);
  }
  // Only x W, of the products, transposes nothing.
  void Gemm(Transpose transpose_a, Transpose transpose_b, ConstMatrix a, ConstMatrix b, float beta,
            Matrix c) override {
    const bool forward = transpose_a == Transpose::kNo && transpose_b == Transpose::kNo;
    const Timer timer(forward ? &times_.forward : &times_.backward);
    inner_->Gemm(transpose_a, transpose_b, a, b, beta, c);
  }
  void AddBias(const float* bias, Activation activation, Matrix y) override {
    const Timer timer(&times_.forward);
    inner_->AddBias(bias, activation, y);
  }
  void ReluBackward(ConstMatrix h, Matrix dh, float* bias_gradient) override {
    const Timer timer(&times_.backward);
    inner_->ReluBackward(h, dh, bias_gradient);
  }
  void ColumnSums(ConstMatrix d, float* out) override {
    const Timer timer(&times_.backward);
    inner_->ColumnSums(d, out);
  }
  void CrossEntropy(const CrossEntropyOptions& options, const std::uint8_t* labels, Matrix logits,
                    BatchLoss* result) override {
    const Timer timer(&times_.backward);
    inner_->CrossEntropy(options, labels, logits, result);
  }
  void Softmax(Matrix logits) override { inner_->Softmax(logits); }
  Status Finish() override { return inner_->Finish(); }

 protected:
  void Free(void*, std::size_t) override {
    PASSEL_CHECK(false, "memory is lent, and taken back, by the inner backend");
  }

 private:
  const std::unique_ptr<Backend> inner_;
  PartTimes& times_;
};

}  // namespace

std::unique_ptr<Backend> TimeParts(std::unique_ptr<Backend> inner, PartTimes* times) {
  return std::make_unique<TimedBackend>(std::move(inner), times);
}

}  // namespace passel::bench
