// structs.h - the structs of passel.h, read and written with a care for callers of other versions:
// each says its size, which may be larger than what this version knows.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "capi/optimizer_state.h"
#include "capi/passel.h"
#include "capi/worker.h"

namespace passel::capi {

// The sizes of the first version; later ones are larger.
inline constexpr std::size_t kVariableBytes = 32, kOptionsBytes = 24, kDescriptionBytes = 32,
                             kOutcomeBytes = 32, kReadingBytes = 32, kSamplingBytes = 48,
                             kBatchBytes = 32, kRatesBytes = 24, kStateBytes = 40,
                             kFirstValuesBytes = 32;
static_assert(sizeof(void*) != 8 ||
              (offsetof(passel_variable, group) == kVariableBytes &&
               sizeof(passel_rates) == kRatesBytes &&
               sizeof(passel_optimizer_state) == kStateBytes &&
               sizeof(passel_first_values) == kFirstValuesBytes &&
               sizeof(passel_options) == kOptionsBytes &&
               sizeof(passel_description) == kDescriptionBytes &&
               sizeof(passel_outcome) == kOutcomeBytes && sizeof(passel_reading) == kReadingBytes &&
               sizeof(passel_sampling) == kSamplingBytes && sizeof(passel_batch) == kBatchBytes));

/// kInvalidArgument: `what` is a null pointer.
Status Null(const char* what);

/// Whether a struct of the caller is one that this version knows. `least`: of the first version.
/// Errors: kInvalidArgument.
Status CheckSize(const char* what, std::size_t size, std::size_t least);

/// The settings; none for null. Errors: kInvalidArgument.
Result<std::vector<std::string>> ReadOptions(const passel_options* options);
/// Errors: kInvalidArgument for what cannot be read; what it says is for others to check.
Result<std::vector<Variable>> ReadVariables(const passel_variable* variables, std::size_t count);
/// The same.
Result<std::vector<GroupRates>> ReadRates(const passel_rates* rates, std::size_t groups);
/// The same.
Result<Sampling> ReadSampling(const passel_sampling* sampling);

/// The same.
Result<GivenState> ReadState(const passel_optimizer_state* state);

/// Writes as much of `from` as the caller's struct has room for.
template <typename Struct>
void WriteOut(Struct from, Struct* to) {
  from.struct_size = to->struct_size;
  std::memcpy(to, &from, std::min(sizeof from, to->struct_size));
}

}  // namespace passel::capi
