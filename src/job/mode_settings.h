// mode_settings.h - the settings of the mode: the first one, its numbers, when it changes.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "job/job_config.h"
#include "job/job_settings.h"
#include "store/mode.h"

namespace passel::job {

/// What was given for the flag (without dashes) of a mode's number, as ModeTraits names it.
struct ModeNumber {
  std::string_view flag;
  std::optional<std::int64_t> value;
};
/// Puts the number that was given into the setting. Errors: kInvalidArgument, also for the number
/// of another mode.
Status TakeNumbers(std::span<const ModeNumber> given, ModeSetting* setting);

/// Fills in the mode, its numbers, its schedule and the workers that are to be slow.
/// Errors: kInvalidArgument, also for two flags that name the first mode differently.
Status CheckModeSettings(const JobSettings& flags, JobConfig* config);

}  // namespace passel::job
