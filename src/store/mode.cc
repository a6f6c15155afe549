#include "store/mode.h"

#include <fmt/core.h>

namespace passel {

std::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kHogwild:
      return "hogwild";
    case Mode::kLocked:
      return "locked";
    case Mode::kBarrier:
      return "barrier";
    case Mode::kReplicas:
      return "replicas";
    case Mode::kSsp:
      return "ssp";
  }
  return "unknown";
}

Result<Mode> ParseMode(std::string_view name) {
  for (const Mode mode :
       {Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Mode::kReplicas, Mode::kSsp}) {
    if (name == ModeName(mode)) return mode;
  }
  return InvalidArgument(
      fmt::format("there is no mode \"{}\": use hogwild, locked, barrier, replicas or ssp", name));
}

}  // namespace passel
