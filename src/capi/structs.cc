#include "capi/structs.h"

#include <fmt/core.h>

#include "optim/optimizer.h"
#include "store/variable_table.h"

namespace passel::capi {
namespace {

constexpr std::size_t kMostStructBytes = 4096;

// The fields that this version does not know must be 0.
Status CheckTail(const char* what, const void* given, std::size_t known) {
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return InvalidArgument(fmt::format(
        "{} has a field that this library does not know (its version has {} bytes, and byte {} is "
        "not 0): load a newer libpassel, or set what is new to 0",
        what, known, i));
  }
  return {};
}

}  // namespace

Status Null(const char* what) {
  return InvalidArgument(fmt::format("{} is NULL: pass a pointer to one", what));
}

Status CheckSize(const char* what, std::size_t size, std::size_t least) {
  if (size >= least && size <= kMostStructBytes) return {};
  return InvalidArgument(
      fmt::format("struct_size of {} is {} to {} bytes, not {}: set it to "
                  "sizeof({}) and the rest to 0",
                  what, least, kMostStructBytes, size, what));
}

Result<std::vector<std::string>> ReadOptions(const passel_options* options) {
  std::vector<std::string> settings;
  if (options == nullptr) return settings;
  PASSEL_RETURN_IF_ERROR(CheckSize("passel_options", options->struct_size, kOptionsBytes));
  PASSEL_RETURN_IF_ERROR(CheckTail("passel_options", options, sizeof *options));
  if (options->num_settings > 0 && options->settings == nullptr) return Null("settings");
  for (std::size_t i = 0; i < options->num_settings; ++i) {
    if (options->settings[i] == nullptr) return Null("a setting");
    settings.emplace_back(options->settings[i]);
  }
  return settings;
}

Result<Sampling> ReadSampling(const passel_sampling* sampling) {
  if (sampling == nullptr) return Null("the description of the data");
  PASSEL_RETURN_IF_ERROR(CheckSize("passel_sampling", sampling->struct_size, kSamplingBytes));
  PASSEL_RETURN_IF_ERROR(CheckTail("passel_sampling", sampling, sizeof *sampling));
  return Sampling{sampling->examples, sampling->batch_size, sampling->epochs, sampling->seed,
                  sampling->in_order != 0};
}

Result<std::vector<Variable>> ReadVariables(const passel_variable* variables, std::size_t count) {
  std::vector<Variable> read;
  if (count == 0) return read;
  if (variables == nullptr) return Null("the array of variables");
  const std::size_t stride = variables->struct_size;
  PASSEL_RETURN_IF_ERROR(CheckSize("passel_variable", stride, kVariableBytes));
  if (count > kMaxVariables) {
    return InvalidArgument(fmt::format("a job has 1 to {} variables, not {}: join some of them",
                                       kMaxVariables, count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const char* const at = reinterpret_cast<const char*>(variables) + i * stride;
    passel_variable variable = {};
    std::memcpy(&variable, at, std::min(stride, sizeof variable));
    if (variable.struct_size != stride) {
      return InvalidArgument(
          fmt::format("struct_size of variable {} is {}, and of variable 0 it is {}: set it to "
                      "sizeof(passel_variable) in all of the array",
                      i, variable.struct_size, stride));
    }
    PASSEL_RETURN_IF_ERROR(CheckTail("passel_variable", at, sizeof variable));
    if (variable.name == nullptr) return Null("the name of a variable");
    if (variable.rank > kMaxRank) {
      return InvalidArgument(fmt::format(
          "a variable has at most {} dimensions, and \"{}\" has {}: join some of them", kMaxRank,
          std::string(variable.name, ::strnlen(variable.name, kMaxNameBytes)), variable.rank));
    }
    if (variable.rank > 0 && variable.shape == nullptr) return Null("the shape of a variable");
    read.push_back({std::string(variable.name, ::strnlen(variable.name, kMaxNameBytes + 1)),
                    {variable.shape, variable.shape + variable.rank},
                    variable.group});
  }
  return read;
}

Result<GivenState> ReadState(const passel_optimizer_state* state) {
  if (state == nullptr) return Null("the state of the optimizer");
  PASSEL_RETURN_IF_ERROR(CheckSize("passel_optimizer_state", state->struct_size, kStateBytes));
  PASSEL_RETURN_IF_ERROR(CheckTail("passel_optimizer_state", state, sizeof *state));
  return GivenState{state->step, state->num_slots, state->names, state->slots};
}

Result<std::vector<GroupRates>> ReadRates(const passel_rates* rates, std::size_t groups) {
  std::vector<GroupRates> read;
  if (groups == 0) return read;
  if (rates == nullptr) return Null("the array of rates");
  const std::size_t stride = rates->struct_size;
  PASSEL_RETURN_IF_ERROR(CheckSize("passel_rates", stride, kRatesBytes));
  if (groups > kMaxGroups) {
    return InvalidArgument(fmt::format(
        "a job has 1 to {} groups of variables, not {}: join some of them", kMaxGroups, groups));
  }
  for (std::size_t g = 0; g < groups; ++g) {
    const char* const at = reinterpret_cast<const char*>(rates) + g * stride;
    passel_rates given;
    std::memcpy(&given, at, sizeof given);
    if (given.struct_size != stride) {
      return InvalidArgument(
          fmt::format("struct_size of the rates of group {} is {}, and of group 0 it is {}: set it "
                      "to sizeof(passel_rates) in all of the array",
                      g, given.struct_size, stride));
    }
    PASSEL_RETURN_IF_ERROR(CheckTail("passel_rates", at, sizeof given));
    read.push_back({given.learning_rate, given.weight_decay});
  }
  return read;
}

}  // namespace passel::capi
