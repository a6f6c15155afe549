#include "store/mode.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace passel {

std::string ModeNames(bool rounds) {
  std::string names;
  for (const ModeTraits& mode : kModes) {
    if (rounds || !mode.rounds) names += fmt::format(", {}", mode.name);
  }
  return names.replace(names.rfind(','), 1, " or").substr(2);
}

Result<Mode> ParseMode(std::string_view name) {
  const auto* const found = std::ranges::find(kModes, name, &ModeTraits::name);
  if (found != std::end(kModes)) return static_cast<Mode>(found - kModes);
  return InvalidArgument(
      fmt::format("there is no mode \"{:.64}\": use {}", name, ModeNames(/*rounds=*/true)));
}

ModeSetting ModeSetting::For(int num_workers) const {
  return {mode, number == 0 && traits().least > 0 ? num_workers : number};
}

Status ModeSetting::Validate() const {
  const ModeTraits& t = traits();
  if (t.flag.empty() && number == 0) return {};
  if (t.flag.empty()) {
    return InvalidArgument(fmt::format("mode {} takes no number, not {}: omit it", t.name, number));
  }
  if ((number >= t.least && number <= t.most) || number == t.omitted) return {};
  return InvalidArgument(fmt::format(
      "--{} is {} to {}, not {}: use {}", t.flag, t.least, t.most, number,
      t.omitted < t.least ? "a number in that range, or none for one gradient of each worker"
                          : fmt::format("for example, {}", t.omitted)));
}

std::string ModeSetting::ToString() const {
  const ModeTraits& t = traits();
  // A number that would not be valid is shown as it is.
  if (t.flag.empty() || (number == 0 && t.least > 0)) return std::string(t.name);
  return fmt::format("{}={}", t.name, number);
}

Result<ModeSetting> ParseModeSetting(std::string_view text) {
  const std::size_t equals = text.find('=');
  ModeSetting setting;
  PASSEL_ASSIGN_OR_RETURN(setting.mode, ParseMode(text.substr(0, equals)));
  const ModeTraits& t = setting.traits();
  setting.number = t.omitted;
  if (equals == std::string_view::npos) return setting;
  if (t.flag.empty()) {
    return InvalidArgument(
        fmt::format("\"{}\" is not understood: mode {} takes no number: omit it", text, t.name));
  }
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, setting.number);
  if (error != std::errc() || stop != end || setting.number < t.least || setting.number > t.most) {
    return InvalidArgument(fmt::format("\"{}\" is not understood: {} takes a number from {} to {}",
                                       text, t.name, t.least, t.most));
  }
  return setting;
}

}  // namespace passel
