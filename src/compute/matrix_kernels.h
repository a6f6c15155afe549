// matrix_kernels.h - which kernels multiply matrices in this process. They go by the processor (and
// by OPENBLAS_CORETYPE), and the last bits of a product depend on them.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <string>

namespace passel {

/// "Haswell, small batches by passel", "SkylakeX, in pieces": of a process whose products have that
/// many threads. Two with the same name and number of threads give the same bits for a product.
std::string MatrixKernels(int threads);

/// The same as a number below 2^56, for a word that processes share; never 0.
std::uint64_t MatrixKernelsCode(int threads);
/// Of MatrixKernelsCode(); "" for 0, "another" for cores that are not in its list.
std::string MatrixKernelsOf(std::uint64_t code);

/// What OpenBLAS calls the processor whose kernels it has taken: "Haswell".
std::string MatrixLibraryCore();

/// Whether large products run as several small ones (SmallPieces()).
bool MultipliesInPieces(int threads);
/// Whether products of a small batch run on passel's kernels (small_batch.h), where the instruction
/// set that its other kernels use has any.
bool MultipliesSmallBatches(int threads);

}  // namespace passel
