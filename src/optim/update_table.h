// update_table.h - the loops over spans, as a table of functions per instruction set.
//
// For optim/update_kernels.cc, tests and benchmarks; everybody else includes
// optim/update_kernels.h. Light on purpose: see "Inlining" in optim/update_formulas.h.

#pragma once

#include <cstddef>

#include "optim/update_formulas.h"

namespace passel {

/// The contracts are those of the functions of the same name in optim/update_kernels.h. All tables
/// give the same bits. Each function flushes subnormal floats to zero while it runs, and restores
/// the caller's setting.
struct UpdateTable {
  /// In place, one pass, vectorised, plain loads and stores.
  void (*apply)(const StepScalars& scalars, float* values, float* const* slots,
                const float* gradient, std::size_t n);
  /// The same function body; every access to values and slots is a relaxed atomic one.
  void (*apply_atomic)(const StepScalars& scalars, float* values, float* const* slots,
                       const float* gradient, std::size_t n);
  /// Both in one: `sum` of the gradients to apply, and the start of what is updated next.
  void (*apply_mean)(const StepScalars& scalars, float* values, float* const* slots,
                     const float* const* gradients, int count, float divisor, std::size_t n,
                     std::size_t next);
  void (*apply_mean_atomic)(const StepScalars& scalars, float* values, float* const* slots,
                            const float* const* gradients, int count, float divisor, std::size_t n,
                            std::size_t next);
  void (*sum)(float* out, const float* const* gradients, int count, float divisor, std::size_t n);
  bool (*all_finite)(const float* values, std::size_t n);
};

// Built from optim/update_loops.cc; the last two only where PASSEL_HAVE_ISA_TABLES is defined.
extern const UpdateTable update_table_baseline;
extern const UpdateTable update_table_avx2;
extern const UpdateTable update_table_avx512;

}  // namespace passel
