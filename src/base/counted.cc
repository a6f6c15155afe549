#include "base/counted.h"

#include <fmt/core.h>

namespace passel {

std::string Counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace passel
