// update_kernels.h - one optimizer update over spans of floats, in place, at memory speed.
//
//   const StepScalars scalars = Prepare(config, t);            // once per update
//   Apply(scalars, values, slots, gradient, n);                // once per block
//
// The vector code is chosen at the first call, by the processor or by PASSEL_ISA (base/cpu_isa.h).
// Whatever is chosen, the results are the same to the last bit.
//
// Threads    Any number may call at once. On the same elements that is Hogwild's declared race:
//            a float is never torn, an update may be lost. Where PASSEL_ATOMIC_VALUES is defined
//            (ThreadSanitizer builds) every access to values and slots is a relaxed atomic one.
// Numbers    float32. Subnormal operands and results count as 0. Nothing here stops on NaN: ask
//            AllFinite() before a gradient is applied.
// Spans      Any length, 0 included, and any alignment of 4 bytes; 64 is fastest. Spans of one
//            call must not overlap unless said.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu_isa.h"
#include "optim/optimizer.h"
#include "optim/update_formulas.h"
#include "optim/update_table.h"

namespace passel {

/// The scalars of update number `t`, 1 for the first: computed in double, rounded to float once.
/// Only optimizers that count steps depend on t, which may be any size. REQUIRES: Validate(config)
/// is OK, t >= 1.
StepScalars Prepare(const OptimizerConfig& config, std::int64_t t);

/// Updates values[0, n) and slots[k][0, n), for k < NumSlots(config), with gradient[0, n).
/// `slots` may be null where there are none.
void Apply(const StepScalars& scalars, float* values, float* const* slots, const float* gradient,
           std::size_t n);

/// out = (gradients[0] + gradients[1] + ... ) / divisor, added in that order. `out` may be exactly
/// one of the gradients. Plain accesses also under ThreadSanitizer: a gradient is handed over by a
/// release and an acquire, nobody writes it meanwhile. REQUIRES: count >= 1, divisor > 0.
void SumGradients(float* out, const float* const* gradients, int count, float divisor,
                  std::size_t n);

/// Apply() with what SumGradients() makes of the gradients, to the same bits, in one pass. What the
/// caller updates next, the `next` floats behind each span, is prefetched meanwhile as its own;
/// n may be 0 for that alone. REQUIRES: as SumGradients().
void ApplyMean(const StepScalars& scalars, float* values, float* const* slots,
               const float* const* gradients, int count, float divisor, std::size_t n,
               std::size_t next);

/// A copy of values that others may be updating: each float is one that was stored, different
/// floats may be of different updates.
void CopyValues(float* out, const float* values, std::size_t n);

/// True if no element is infinite or NaN. For memory that nobody writes meanwhile (a gradient).
bool AllFinite(const float* values, std::size_t n);

/// "baseline", "avx2" or "avx512": the code that the functions above run in this process.
std::string_view ActiveIsa();

/// One table that this build has and this processor runs.
struct RunnableTable {
  CpuIsa isa;
  const UpdateTable* table;
};
/// All of them, ascending; the baseline is always the first.
std::span<const RunnableTable> RunnableUpdateTables();

}  // namespace passel
