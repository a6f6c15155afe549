// cublaslt.h - large products through cuBLASLt, which is opened when the first one is needed.
//
// Threads    One thread at a time.
// Life       A CublasLt before its stream, a Matmul before its CublasLt.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "cuda/plan.h"

namespace passel::cuda {

class CublasLt {
 public:
  /// Bytes of device memory that every product may use while it runs; what cuBLAS recommends for
  /// compute capability 9.0.
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// Opens the library and a handle. `workspace`: kWorkspaceBytes of device memory, 256-byte
  /// aligned, of the caller; products that share it must run one after the other.
  /// Errors: kNotFound where there is none, kInvalidArgument or kFailedPrecondition for one that
  /// cannot be used, each with the remedy; kUnavailable, kResourceExhausted, kInternal from the
  /// library.
  static Result<std::unique_ptr<CublasLt>> Open(void* workspace);
  virtual ~CublasLt() = default;

  /// Seconds that what `queue` queues on the stream takes there. Errors: those of `queue`, after
  /// which nothing of it is left behind; the device's.
  using Stopwatch = std::function<Result<double>(const std::function<Status()>& queue)>;

  /// A product with the algorithms that the library has for it, of which it runs the first until
  /// one is chosen. Holds the addresses of its operands.
  class Matmul {
   public:
    virtual ~Matmul() = default;
    /// Queues the product. Errors: kUnavailable, kResourceExhausted, kInternal from the library.
    virtual Status Run(cudaStream_t stream) = 0;
    /// Bytes of the scratch that Choose() writes to; 0 if there is nothing to choose, since a
    /// product like this one was prepared before.
    virtual std::size_t scratch_bytes() const = 0;
    /// Runs the product by some of the algorithms, with all that it writes in `scratch`, device
    /// memory, 256-byte aligned; the fastest is that of this product from now on, and of all that
    /// are prepared later and are like it. REQUIRES: not under a capture.
    /// Errors: as Run(); those of `stopwatch`; kFailedPrecondition if the library refuses to run
    /// every one that its heuristic named.
    virtual Status Choose(cudaStream_t stream, void* scratch, const Stopwatch& stopwatch) = 0;
    /// "1024 x 4096 x 784, RELU_BIAS: algorithm 21 of cuBLASLt 130100, 2048 KiB of workspace",
    /// then, if several were to choose from, ", choice 2 of 8 (1: 12.1 us, 2: 9.0 us, 4: 13.0 us)".
    virtual std::string Describe() const = 0;
  };
  /// Errors: kInvalidArgument as LayoutOf(); kFailedPrecondition when the library has no algorithm
  /// for this product with its epilogue.
  virtual Result<std::unique_ptr<Matmul>> Prepare(const LargeGemm& gemm) = 0;
};

}  // namespace passel::cuda
