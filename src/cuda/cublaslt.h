// cublaslt.h - large products through cuBLASLt, which is opened when the first one is needed.
//
// The library weighs 0.5 GB and takes a second to open, so nothing links it. It is the file that
// $PASSEL_CUBLASLT_PATH names, absolute, or else the first of CublasLtPlaces() that can be opened.
//
// Threads    One thread at a time.
// Life       A CublasLt before its stream, a Matmul before its CublasLt.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/plan.h"

namespace passel::cuda {

/// Where the library is looked for, in this order: by its name (libcublasLt.so.13 for a build with
/// CUDA 13) as the dynamic loader does, then in the toolkit `local`/cuda, then in those of
/// `local`/cuda-*, the newest first.
std::vector<std::string> CublasLtPlaces(const std::string& local);

class CublasLt {
 public:
  /// Bytes of device memory that every product may use while it runs; what cuBLAS recommends for
  /// compute capability 9.0.
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// Opens the library and a handle. `workspace`: kWorkspaceBytes of device memory, 256-byte
  /// aligned, of the caller; products that share it must run one after the other.
  /// Errors: kNotFound where there is none, kInvalidArgument or kFailedPrecondition for one that
  /// cannot be used, each with the remedy; kInternal from the library.
  static Result<std::unique_ptr<CublasLt>> Open(void* workspace);
  virtual ~CublasLt() = default;

  /// A product whose algorithm is chosen. Holds the addresses of its operands.
  class Matmul {
   public:
    virtual ~Matmul() = default;
    /// Queues the product. Errors: kUnavailable, kInternal from the library.
    virtual Status Run(cudaStream_t stream) = 0;
    /// Bytes of the scratch that Try() writes to.
    virtual std::size_t scratch_bytes() const = 0;
    /// Queues the product with all that it writes in `scratch`, device memory, 256-byte aligned.
    /// Errors: as Run(); kFailedPrecondition if the library refuses what its heuristic chose.
    virtual Status Try(cudaStream_t stream, void* scratch) = 0;
    /// "1024 x 4096 x 784, RELU_BIAS: algorithm 21 of cuBLASLt 130100, 2048 KiB of workspace".
    virtual std::string Describe() const = 0;
  };
  /// Errors: kInvalidArgument as LayoutOf(); kFailedPrecondition when the library has no algorithm
  /// for this product with its epilogue.
  virtual Result<std::unique_ptr<Matmul>> Prepare(const LargeGemm& gemm) = 0;
};

}  // namespace passel::cuda
