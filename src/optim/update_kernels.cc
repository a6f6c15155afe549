#include "optim/update_kernels.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "optim/optimizer_table.h"

namespace passel {
namespace {

const RunnableTable& Active() {
  static const RunnableTable active = [] {
    const std::span<const RunnableTable> tables = RunnableUpdateTables();
    const CpuIsa wanted = ChosenCpuIsa();
    for (const RunnableTable& entry : tables) {
      if (entry.isa == wanted) return entry;
    }
    // A build for one -march has one table. Taken in silence unless somebody asked for another.
    const char* asked = std::getenv("PASSEL_ISA");
    if (asked != nullptr && *asked != '\0') {
      LogWarning(
          "PASSEL_ISA={} is not in this build, which was configured with PASSEL_MARCH or "
          "for another processor family; continuing with {}",
          asked, CpuIsaName(tables.back().isa));
    }
    return tables.back();
  }();
  return active;
}

void CheckMean(int count, float divisor) {
  PASSEL_CHECK(count >= 1, "a mean needs at least one gradient");
  PASSEL_CHECK(divisor > 0, "a mean needs a divisor above 0");
}

}  // namespace

StepScalars Prepare(const OptimizerConfig& config, std::int64_t t) {
  PASSEL_CHECK(t >= 1, "updates are counted from 1");
  StepScalars s = {};
  s.rate = static_cast<float>(config.learning_rate);
  RowOf(config.kind).prepare(config, t, &s);
  return s;
}

void Apply(const StepScalars& scalars, float* values, float* const* slots, const float* gradient,
           std::size_t n) {
#if defined(PASSEL_ATOMIC_VALUES)
  Active().table->apply_atomic(scalars, values, slots, gradient, n);
#else
  Active().table->apply(scalars, values, slots, gradient, n);
#endif
}

void ApplyMean(const StepScalars& scalars, float* values, float* const* slots,
               const float* const* gradients, int count, float divisor, std::size_t n,
               std::size_t next) {
  CheckMean(count, divisor);
#if defined(PASSEL_ATOMIC_VALUES)
  Active().table->apply_mean_atomic(scalars, values, slots, gradients, count, divisor, n, next);
#else
  Active().table->apply_mean(scalars, values, slots, gradients, count, divisor, n, next);
#endif
}

void SumGradients(float* out, const float* const* gradients, int count, float divisor,
                  std::size_t n) {
  CheckMean(count, divisor);
  Active().table->sum(out, gradients, count, divisor, n);
}

void CopyValues(float* out, const float* values, std::size_t n) {
#if defined(PASSEL_ATOMIC_VALUES)
  // Relaxed, as the stores of Apply(): an element publishes nothing but itself.
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = std::atomic_ref<float>(const_cast<float&>(values[i])).load(std::memory_order_relaxed);
  }
#else
  if (n != 0) std::memcpy(out, values, n * sizeof(float));
#endif
}

bool AllFinite(const float* values, std::size_t n) { return Active().table->all_finite(values, n); }

std::string_view ActiveIsa() { return CpuIsaName(Active().isa); }

std::span<const RunnableTable> RunnableUpdateTables() {
  static const std::vector<RunnableTable> tables = [] {
    std::vector<RunnableTable> result = {{CpuIsa::kBaseline, &update_table_baseline}};
#if defined(PASSEL_HAVE_ISA_TABLES)
    const CpuIsa best = BestCpuIsa();
    if (best >= CpuIsa::kAvx2) result.push_back({CpuIsa::kAvx2, &update_table_avx2});
    if (best >= CpuIsa::kAvx512) result.push_back({CpuIsa::kAvx512, &update_table_avx512});
#endif
    return result;
  }();
  return tables;
}

}  // namespace passel
