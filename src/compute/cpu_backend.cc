#include "compute/cpu_backend.h"

#include <cblas.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <latch>
#include <limits>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/cpu_kernels.h"
#include "compute/matrix_kernels.h"
#include "compute/product.h"
#include "compute/small_batch.h"

namespace passel {

extern const CpuKernels kCpuKernels_baseline;
#if PASSEL_COMPUTE_WIDE_TABLES
extern const CpuKernels kCpuKernels_avx2;
extern const CpuKernels kCpuKernels_avx512;
#endif

const CpuKernels* CpuKernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kBaseline:
      return &kCpuKernels_baseline;
#if PASSEL_COMPUTE_WIDE_TABLES
    case CpuIsa::kAvx2:
      return &kCpuKernels_avx2;
    case CpuIsa::kAvx512:
      return &kCpuKernels_avx512;
#else
    case CpuIsa::kAvx2:
    case CpuIsa::kAvx512:
      return nullptr;
#endif
  }
  return nullptr;
}

namespace {

constexpr std::align_val_t kAlignment{64};  // bytes

const CpuKernels& BestTableUpTo(CpuIsa isa) {
  for (const CpuIsa candidate : {CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    const CpuKernels* table = candidate <= isa ? CpuKernelsFor(candidate) : nullptr;
    if (table != nullptr) return *table;
  }
  return kCpuKernels_baseline;
}

void Multiply(const Product& p) {
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
              p.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(p.m),
              static_cast<int>(p.n), static_cast<int>(p.k), 1.f, p.a, static_cast<int>(p.lda), p.b,
              static_cast<int>(p.ldb), p.beta, p.c, static_cast<int>(p.ldc));
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuKernels& kernels, bool split_products)
      : kernels_(kernels), split_products_(split_products) {}

  /// From now on products of a small batch run on the table's own kernels, if it has any.
  Status UseOwnProducts() {
    if (kernels_.small_batch_forward == nullptr) return {};
    PASSEL_ASSIGN_OR_RETURN(scratch_, Allocate(kSmallBatchScratch * sizeof(float)));
    return {};
  }

  std::string_view name() const override { return "cpu"; }

  Result<Memory> Allocate(std::size_t bytes) override {
    void* memory = ::operator new(bytes, kAlignment, std::nothrow);
    if (memory == nullptr) {
      return ResourceExhausted(fmt::format(
          "no memory for {} bytes of activations: use a smaller batch or fewer hidden units",
          bytes));
    }
    std::memset(memory, 0, bytes);
    return Memory(memory, Deleter{this, bytes});
  }

  void CopyOut(void* to_host, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to_host, from, bytes);
  }

  void Gather(const Examples& from, std::span<const std::uint32_t> indices, Matrix out,
              std::uint8_t* labels_out) override {
    PASSEL_CHECK(out.rows == indices.size() && out.ld >= out.cols, "one row of output per index");
    std::uint32_t largest = 0;
    for (const std::uint32_t index : indices) largest = std::max(largest, index);
    PASSEL_CHECK(indices.empty() || largest < from.rows, "an index lies outside the examples");
    kernels_.gather(from.pixels, out.cols, indices.data(), indices.size(), out.data, out.ld);
    if (labels_out == nullptr) return;
    for (std::size_t b = 0; b < indices.size(); ++b) labels_out[b] = from.labels[indices[b]];
  }

  void Gemm(Transpose transpose_a, Transpose transpose_b, ConstMatrix a, ConstMatrix b, float beta,
            Matrix c) override {
    const std::size_t m = transpose_a == Transpose::kYes ? a.cols : a.rows;
    const std::size_t k = transpose_a == Transpose::kYes ? a.rows : a.cols;
    const std::size_t n = transpose_b == Transpose::kYes ? b.rows : b.cols;
    const std::size_t k_of_b = transpose_b == Transpose::kYes ? b.cols : b.rows;
    PASSEL_CHECK(k == k_of_b && m == c.rows && n == c.cols, "the shapes of a product do not fit");
    PASSEL_CHECK(std::max({m, n, k, a.ld, b.ld, c.ld}) <= std::numeric_limits<int>::max(),
                 "OpenBLAS counts in int");
    if (m == 0 || n == 0) return;
    const Product product{transpose_a == Transpose::kYes,
                          transpose_b == Transpose::kYes,
                          m,
                          n,
                          k,
                          a.data,
                          a.ld,
                          b.data,
                          b.ld,
                          beta,
                          c.data,
                          c.ld};
    const SmallBatch small_batch = scratch_ == nullptr ? SmallBatch::kNo : SmallBatchOf(product);
    if (small_batch == SmallBatch::kForward) {
      kernels_.small_batch_forward(product, static_cast<float*>(scratch_.get()));
    } else if (small_batch == SmallBatch::kGradient) {
      kernels_.small_batch_gradient(product, static_cast<float*>(scratch_.get()));
    } else if (split_products_) {
      MultiplyInPieces(product, SmallPieces(product), Multiply);
    } else {
      Multiply(product);
    }
  }

  void AddBias(const float* bias, Activation activation, Matrix y) override {
    const auto kernel = activation == Activation::kRelu ? kernels_.bias_relu : kernels_.bias;
    kernel(bias, y.data, y.rows, y.cols, y.ld);
  }

  void ReluBackward(ConstMatrix h, Matrix dh, float* bias_gradient) override {
    PASSEL_CHECK(h.rows == dh.rows && h.cols == dh.cols, "a gradient is shaped like its values");
    kernels_.relu_backward(h.data, h.ld, dh.data, dh.ld, dh.rows, dh.cols, bias_gradient);
  }

  void ColumnSums(ConstMatrix d, float* out) override {
    kernels_.column_sums(d.data, d.ld, d.rows, d.cols, out);
  }

  void CrossEntropy(const CrossEntropyOptions& options, const std::uint8_t* labels, Matrix logits,
                    BatchLoss* result) override {
    PASSEL_CHECK(logits.cols >= 1 && logits.cols <= 256, "labels are one byte");
    std::uint8_t largest = 0;
    for (std::size_t b = 0; b < logits.rows; ++b) largest = std::max(largest, labels[b]);
    PASSEL_CHECK(largest < logits.cols, "a label lies outside the classes");
    kernels_.cross_entropy(logits.data, logits.rows, logits.cols, logits.ld, labels,
                           options.clip ? kProbabilityClip : 0.f, options.gradient_scale,
                           &result->sum, &result->correct);
  }

  void Softmax(Matrix logits) override {
    PASSEL_CHECK(logits.cols >= 1, "a softmax needs a class");
    kernels_.softmax(logits.data, logits.rows, logits.cols, logits.ld);
  }

  Status Finish() override { return {}; }

 protected:
  void Free(void* memory, std::size_t) override { ::operator delete(memory, kAlignment); }

 private:
  const CpuKernels& kernels_;
  const bool split_products_;
  Memory scratch_;  // null: every product runs on OpenBLAS
};

}  // namespace

// OpenBLAS 0.3 maps a buffer of this size for each thread that multiplies, and where it cannot
// tries again forever: so asked beforehand, while it can still be said.
constexpr std::size_t kBlasBufferBytes = std::size_t{128} << 20;

Status CheckRoomForBuffers(int threads) {
  static std::atomic<int> threads_with_room{0};  // relaxed: a hint, asking twice does no harm
  if (threads_with_room.load(std::memory_order_relaxed) >= threads) return {};
  const std::size_t bytes = kBlasBufferBytes * static_cast<std::size_t>(threads);
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return ErrnoStatus(
        errno, fmt::format("the matrix library needs {} bytes of address space for {} thread{}",
                           bytes, threads, threads == 1 ? "" : "s"));
  }
  ::munmap(room, bytes);
  threads_with_room.store(threads, std::memory_order_relaxed);
  return {};
}

constexpr int kMostBlasThreads = 256;  // no build is known that runs more

// OpenBLAS does not look whether its threads could be started, and waits forever for one that could
// not: so tried beforehand.
Status CheckRoomForThreads(int threads) {
  std::latch all(1);
  std::vector<std::jthread> tried;  // joined at the end
  Status status;
  try {
    for (int i = 0; i < threads; ++i) tried.emplace_back([&all] { all.wait(); });
  } catch (const std::system_error& error) {
    status = ErrnoStatus(
        error.code().value(),
        fmt::format("the matrix library needs {} more thread{}", threads, threads == 1 ? "" : "s"));
  }
  all.count_down();
  return status;
}

Status SetThreads(int threads) {
  if (threads < 1) {
    return InvalidArgument(
        fmt::format("--threads_per_worker is {}: it must be at least 1", threads));
  }
  const int before = openblas_get_num_threads();
  if (threads > before) {
    PASSEL_RETURN_IF_ERROR(CheckRoomForThreads(std::min(threads, kMostBlasThreads) - before));
  }
  openblas_set_num_threads(threads);
  const int taken = openblas_get_num_threads();
  if (taken == threads) return {};
  openblas_set_num_threads(before);
  return InvalidArgument(fmt::format(
      "--threads_per_worker is {}: this OpenBLAS runs at most {} threads", threads, taken));
}

int GetThreads() { return openblas_get_num_threads(); }

Result<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  const CpuIsa isa = options.isa.value_or(ChosenCpuIsa());
  if (isa > BestCpuIsa()) {
    return InvalidArgument(fmt::format("this processor runs {} at most, not {}",
                                       CpuIsaName(BestCpuIsa()), CpuIsaName(isa)));
  }
  PASSEL_RETURN_IF_ERROR(SetThreads(options.threads));
  PASSEL_RETURN_IF_ERROR(CheckRoomForBuffers(options.threads));
  auto backend = std::make_unique<CpuBackend>(
      BestTableUpTo(isa), options.split_products.value_or(MultipliesInPieces(options.threads)));
  if (options.own_products.value_or(MultipliesSmallBatches(options.threads))) {
    PASSEL_RETURN_IF_ERROR(backend->UseOwnProducts());
  }
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace passel
