#include "store/mode.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>

namespace passel {
namespace {

constexpr std::string_view kModeNames[] = {"hogwild", "locked", "barrier", "replicas", "ssp"};
static_assert(std::size(kModeNames) == static_cast<std::size_t>(kLastMode) + 1);

}  // namespace

std::string_view ModeName(Mode mode) {
  return mode <= kLastMode ? kModeNames[static_cast<std::size_t>(mode)] : "unknown";
}

Result<Mode> ParseMode(std::string_view name) {
  const auto* const found = std::ranges::find(kModeNames, name);
  if (found != std::end(kModeNames)) return static_cast<Mode>(found - kModeNames);
  return InvalidArgument(fmt::format(
      "there is no mode \"{:.64}\": use hogwild, locked, barrier, replicas or ssp", name));
}

Status ModeSetting::Validate() const {
  if (mode != Mode::kReplicas && replicas_to_aggregate != 0) {
    return InvalidArgument(
        fmt::format("--replicas_to_aggregate {} has no meaning in mode {}: use --mode replicas or "
                    "omit it",
                    replicas_to_aggregate, ModeName(mode)));
  }
  if (replicas_to_aggregate < 0 || replicas_to_aggregate > kMaxReplicasToAggregate) {
    return InvalidArgument(fmt::format(
        "--replicas_to_aggregate is 1 to {}, not {}: use a number in that range, or none for one "
        "gradient of each worker",
        kMaxReplicasToAggregate, replicas_to_aggregate));
  }
  if (mode != Mode::kSsp && staleness_bound != 0) {
    return InvalidArgument(
        fmt::format("--staleness_bound {} has no meaning in mode {}: use --mode ssp or omit it",
                    staleness_bound, ModeName(mode)));
  }
  if (staleness_bound < 0 || staleness_bound > kMaxStalenessBound) {
    return InvalidArgument(fmt::format("--staleness_bound is 0 to {}, not {}: use, for example, {}",
                                       kMaxStalenessBound, staleness_bound,
                                       kDefaultStalenessBound));
  }
  return {};
}

std::string ModeSetting::ToString() const {
  if (mode == Mode::kSsp) return fmt::format("ssp={}", staleness_bound);
  if (mode == Mode::kReplicas && replicas_to_aggregate != 0) {
    return fmt::format("replicas={}", replicas_to_aggregate);
  }
  return std::string(ModeName(mode));
}

Result<ModeSetting> ParseModeSetting(std::string_view text) {
  const std::size_t equals = text.find('=');
  ModeSetting setting;
  PASSEL_ASSIGN_OR_RETURN(setting.mode, ParseMode(text.substr(0, equals)));
  if (setting.mode == Mode::kSsp) setting.staleness_bound = kDefaultStalenessBound;
  if (equals == std::string_view::npos) return setting;
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, number);
  const bool replicas = setting.mode == Mode::kReplicas;
  const int least = replicas ? 1 : 0;
  const int most = replicas ? kMaxReplicasToAggregate : kMaxStalenessBound;
  if (!replicas && setting.mode != Mode::kSsp) {
    return InvalidArgument(
        fmt::format("\"{}\" is not understood: mode {} takes no number, only replicas=R and ssp=S "
                    "do",
                    text, ModeName(setting.mode)));
  }
  if (error != std::errc() || stop != end || number < least || number > most) {
    return InvalidArgument(fmt::format("\"{}\" is not understood: {} takes a number from {} to {}",
                                       text, ModeName(setting.mode), least, most));
  }
  (replicas ? setting.replicas_to_aggregate : setting.staleness_bound) = number;
  return setting;
}

}  // namespace passel
