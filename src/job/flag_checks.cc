#include "job/flag_checks.h"

#include "cluster/text.h"

namespace passel::job {
namespace {

template <typename T>
Status OutOfRange(std::string_view flag, const std::string& shown, T value, T low, T high,
                  std::string_view unit) {
  const std::string fix = value < low    ? fmt::format("use {}={} or more", flag, low)
                          : value > high ? fmt::format("use {}={} or less", flag, high)
                                         : fmt::format("use, for example, {}={}", flag, high);
  return InvalidArgument(
      fmt::format("{} is {} to {}{}, not {}: {}", flag, low, high, unit, shown, fix));
}

}  // namespace

std::string TypedNumbers::Show(std::string_view flag, double value) const {
  const auto text = texts_.find(flag);
  return text != texts_.end() ? Printable(text->second, 64) : fmt::format("{}", value);
}

Status CheckRange(std::string_view flag, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return {};
  return OutOfRange(flag, std::to_string(value), value, low, high, "");
}

Status CheckRange(std::string_view flag, double value, double low, double high,
                  const TypedNumbers& typed, std::string_view unit) {
  if (value >= low && value <= high) return {};
  return OutOfRange(flag, typed.Show(flag, value), value, low, high, unit);
}

Status CheckShare(std::string_view flag, double value, const TypedNumbers& typed) {
  if (value > 0 && value <= 1) return {};
  return InvalidArgument(
      fmt::format("{0} is above 0 and up to 1, not {1}: use, for example, {0}=0.5", flag,
                  typed.Show(flag, value)));
}

}  // namespace passel::job
