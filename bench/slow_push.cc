#include "bench/slow_push.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace passel::bench {

Result<SlowPush> SlowPush::FromEnvironment() {
  const char* text = std::getenv("PASSEL_BENCH_SLOW_PUSH");
  if (text == nullptr) return SlowPush();
  const std::string_view view(text);
  int percent = -1;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), percent);
  if (error != std::errc() || end != view.data() + view.size() || percent < 0 || percent > 100) {
    return InvalidArgument(fmt::format(
        "PASSEL_BENCH_SLOW_PUSH is '{}', but it must be a whole number of percent from 0 to 100",
        view));
  }
  return SlowPush(percent);
}

}  // namespace passel::bench
