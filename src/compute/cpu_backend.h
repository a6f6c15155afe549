// cpu_backend.h - the Backend on this process's own cores and memory.
//
// Matrix products run on OpenBLAS, but for those of a small batch with AVX2 (small_batch.h). They
// and everything else run on kernels that are compiled for several instruction sets
// (base/cpu_isa.h). Apart from the products all results are the same, bit for bit, under every
// instruction set. With one thread a run is bitwise repeatable.

#pragma once

#include <memory>
#include <optional>

#include "base/cpu_isa.h"
#include "base/status.h"
#include "compute/backend.h"

namespace passel {

struct CpuBackendOptions {
  /// Threads of OpenBLAS. It has one pool for the whole process, so the backend that was made last
  /// decides. Workers on one host should have one each (--threads_per_worker).
  int threads = 1;
  /// Kernels to use; unset: ChosenCpuIsa(). A set that this build left out gives the best below.
  std::optional<CpuIsa> isa;
  /// Whether large products run as several small ones; unset: where OpenBLAS is known to be faster
  /// so. The sums are then added up in another order.
  std::optional<bool> split_products;
  /// Whether products of a small batch run on the kernels of passel, where its instruction set has
  /// them (small_batch.h); unset: with one thread, where OpenBLAS runs its kernels for Haswell.
  std::optional<bool> own_products;
};

/// Any memory of the process is backend memory; operations are complete when they return.
/// Errors: kInvalidArgument if OpenBLAS cannot run that many threads or the processor not that
/// instruction set.
Result<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options = {});

/// Sets the number of threads of OpenBLAS, for this whole process. Errors: kInvalidArgument, naming
/// the range, when OpenBLAS does not take the number.
Status SetThreads(int threads);
/// The number of threads of OpenBLAS now.
int GetThreads();

}  // namespace passel
