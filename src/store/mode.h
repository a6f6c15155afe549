// mode.h - how pushes of several workers come together. docs/modes.md says when to take which.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

enum class Mode : std::uint32_t {  // in the order of kModes
  kHogwild = 0,   ///< applied at once, lock-free; colliding element updates may be lost
  kLocked = 1,    ///< applied at once under binding block claims; nothing lost
  kBarrier = 2,   ///< one gradient per worker per round, their mean, one update
  kReplicas = 3,  ///< the first R gradients of a round, their mean, one update; the rest is dropped
  kSsp = 4,       ///< like kHogwild, but nobody is more than s steps ahead of the slowest
};

/// What a mode is, and which number it takes.
struct ModeTraits {
  std::string_view name;
  bool rounds = false;              ///< applies once per round rather than once per push
  bool bounded = false;             ///< nobody is further ahead of the slowest than its number says
  bool binding = false;             ///< a block is entered under a claim of its own only
  std::string_view flag = {};       ///< of its number, without dashes; "": it takes none
  int least = 0, most = 0;          ///< of the number
  int omitted = 0;                  ///< the number where none is given; below `least`: the workers
  std::string_view guarantee = {};  ///< half a sentence: what a job may rely on
};

inline constexpr int kMaxReplicasToAggregate = 65'536;
inline constexpr int kMaxStalenessBound = 1'000'000;

inline constexpr ModeTraits kModes[] = {
    {.name = "hogwild",
     .guarantee = "applies each gradient at once, and two that meet may lose a few of its updates"},
    {.name = "locked",
     .binding = true,
     .guarantee = "applies each gradient at once and loses nothing"},
    {.name = "barrier",
     .rounds = true,
     .guarantee = "applies one mean gradient a round, the same bits whoever arrives first"},
    {.name = "replicas",
     .rounds = true,
     .flag = "replicas_to_aggregate",
     .least = 1,
     .most = kMaxReplicasToAggregate,
     .guarantee = "applies the mean of the first gradients of a round and drops late ones"},
    {.name = "ssp",
     .bounded = true,
     .flag = "staleness_bound",
     .most = kMaxStalenessBound,
     .omitted = 3,
     .guarantee = "is as `hogwild`, but lets nobody run far ahead"},
};
inline constexpr auto kLastMode = static_cast<Mode>(std::size(kModes) - 1);
inline constexpr ModeTraits kUnknownMode{.name = "unknown"};

constexpr const ModeTraits& TraitsOf(Mode mode) {
  return mode <= kLastMode ? kModes[static_cast<std::size_t>(mode)] : kUnknownMode;
}
/// Whether a mode that is known has a trait: one bit of a constant, since each push asks often.
template <bool ModeTraits::*kTrait>
constexpr bool Has(Mode mode) {
  constexpr std::uint32_t kThoseWithIt = [] {
    std::uint32_t bits = 0;
    for (std::size_t m = 0; m < std::size(kModes); ++m) {
      bits |= std::uint32_t{kModes[m].*kTrait} << m;
    }
    return bits;
  }();
  return (kThoseWithIt >> (static_cast<std::uint32_t>(mode) & 31) & 1) != 0;
}
constexpr bool IsRoundMode(Mode mode) { return Has<&ModeTraits::rounds>(mode); }
constexpr std::string_view ModeName(Mode mode) { return TraitsOf(mode).name; }
/// "hogwild, locked or ssp": all of them, or those without rounds.
std::string ModeNames(bool rounds);
/// Errors: kInvalidArgument, listing the names there are.
Result<Mode> ParseMode(std::string_view name);

/// A mode with its number: what a job runs in, or may be changed to.
struct ModeSetting {
  Mode mode;
  int number;  ///< as ModeTraits says; replicas: 0 stands for the number of workers

  // NOLINTNEXTLINE: a mode alone is a setting
  constexpr ModeSetting(Mode m = Mode::kHogwild, int n = 0) : mode(m), number(n) {}
  bool operator==(const ModeSetting&) const = default;
  bool operator==(Mode) const = delete;  // with which number?

  const ModeTraits& traits() const { return TraitsOf(mode); }
  /// The same, with its number where that is the number of workers.
  ModeSetting For(int num_workers) const;
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
