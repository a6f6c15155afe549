#include "base/local_time.h"

#include <array>
#include <ctime>

namespace passel {

std::string LocalTimeText(double wall_seconds) {
  if (!(wall_seconds >= 0 && wall_seconds < 1e15)) return "-";
  const auto seconds = static_cast<std::time_t>(wall_seconds);
  std::tm local{};
  std::array<char, 64> text{};
  if (::localtime_r(&seconds, &local) == nullptr ||
      std::strftime(text.data(), text.size(), "%F %T %z", &local) == 0) {
    return "-";
  }
  return text.data();
}

}  // namespace passel
