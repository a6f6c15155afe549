// preset.h - the reference programs as sets of flag values.
//
//   dist-mnist      MLP, Adam, until 20,000 global steps
//   monitored       MLP, Adam, a monitored session that stops at step 100,000
//   async-softmax   softmax regression, SGD, three workers of 50 epochs each
//   k8s-adagrad     MLP, Adagrad, until 10,000 global steps, evaluated every 100
//   mnist-replica   MLP, Adam, until 200 global steps, evaluated on validation images
//
// A preset is a default of flags and nothing else: whatever is set in any other way wins, and a run
// with the flags of a preset typed out is the same run. The user's description is docs/presets.md.
//
// Thread safety: constant data.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

/// A flag by its name without dashes, and its value as it would be typed.
struct PresetSetting {
  std::string_view flag;
  std::string_view value;
};

struct Preset {
  std::string_view name;
  std::string_view summary;  ///< one line
  /// Flags of `passel train`, `launch` and `task`. Those that a command does not have (`workers` of
  /// task, `ps_hosts` of train) are for the others.
  std::span<const PresetSetting> settings;
  /// Checkpoints and summaries go to one folder, whichever of the two is named.
  bool one_folder = false;
  /// Fewer GPUs than workers are an error.
  bool gpu_per_worker = false;

  /// The value of a flag; "" if the preset does not set it.
  std::string_view Find(std::string_view flag) const;
};

std::span<const Preset> Presets();

/// "dist-mnist, monitored, ...": for help and errors.
std::string PresetNames();

/// Errors: kInvalidArgument, listing the names.
Result<const Preset*> FindPreset(std::string_view name);

/// The summary, then one line for each flag, as it would be typed; only those that `has` says the
/// command has. Each line ends with '\n'.
std::string DescribePreset(const Preset& preset,
                           const std::function<bool(std::string_view)>& has = nullptr);

}  // namespace passel
