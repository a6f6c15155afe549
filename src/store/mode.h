// mode.h - how pushes of several workers come together. docs/modes.md says when to take which.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

enum class Mode : std::uint32_t {  // their names are in mode.cc, in this order
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

inline constexpr int kMaxReplicasToAggregate = 65'536;
inline constexpr int kMaxStalenessBound = 1'000'000;
inline constexpr int kDefaultStalenessBound = 3;

/// A mode with its number: what a job runs in, or may be changed to.
struct ModeSetting {
  Mode mode = Mode::kHogwild;
  int replicas_to_aggregate = 0;  ///< replicas: 1 to kMaxReplicasToAggregate; 0: num_workers
  int staleness_bound = 0;        ///< ssp: 0 to kMaxStalenessBound
  bool operator==(const ModeSetting&) const = default;

  /// Errors: kInvalidArgument with the flag, the limit, the value and the fix.
  Status Validate() const;
  /// "hogwild", "replicas=3", "ssp=0": what ParseModeSetting() reads.
  std::string ToString() const;
};

/// A mode's name, for `replicas` and `ssp` with "=NUMBER" where it is not the default.
/// Errors: kInvalidArgument.
Result<ModeSetting> ParseModeSetting(std::string_view text);

/// One entry of a schedule: the mode from that global step on.
struct ScheduledMode {
  std::int64_t step = 0;  ///< 1 to kMaxScheduledStep
  ModeSetting setting;
  bool operator==(const ScheduledMode&) const = default;
};
inline constexpr int kMaxScheduledModes = 16;
inline constexpr std::int64_t kMaxScheduledStep = 1'000'000'000'000;

}  // namespace passel
