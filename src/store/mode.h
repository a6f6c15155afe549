// mode.h - how pushes of several workers come together. docs/modes.md says when to take which.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace passel {

enum class Mode : std::uint32_t {
  kHogwild = 0,   ///< applied at once, lock-free; colliding element updates may be lost
  kLocked = 1,    ///< applied at once under binding block claims; nothing lost
  kBarrier = 2,   ///< one gradient per worker per round, their mean, one update
  kReplicas = 3,  ///< the first R gradients of a round, their mean, one update; the rest is dropped
  kSsp = 4,       ///< like kHogwild, but nobody is more than s steps ahead of the slowest
};
inline constexpr Mode kLastMode = Mode::kSsp;

/// Modes that apply once per round rather than once per push.
constexpr bool IsRoundMode(Mode mode) { return mode == Mode::kBarrier || mode == Mode::kReplicas; }

std::string_view ModeName(Mode mode);
/// Errors: kInvalidArgument, listing the names there are.
Result<Mode> ParseMode(std::string_view name);

}  // namespace passel
