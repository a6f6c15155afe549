// checkpoint_beginning.h - the checkpoint that a job begins with, by --resume and what its folder
// has:
//
//   auto    the newest of the folder; nothing if there is none
//   never   nothing; refused where the folder has one that is whole
//   PATH    that one, where the folder has none of its step or later. If those were begun with
//           PATH, the newest of them: the same command goes on. Any others refuse it.
//
// So what a job saves never meets a checkpoint of another training under the same name.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_settings.h"
#include "train/checkpoint_set.h"

namespace passel::job {

struct Beginning {
  std::optional<CheckpointSet> from;  ///< nothing: first values
  std::string path;                   ///< of it: "train/model.ckpt-300"
  /// The set is one of the folder, whether its index names it or not.
  bool in_folder = false;
  /// For the word kBegunWithKey of the job's checkpoints; "": none.
  std::string begun_with;
};

/// `folder`: null if the job makes no checkpoints. What is broken there is said in the log, and put
/// aside if something else is begun with. Errors: kInvalidArgument, naming what is in the way and
/// what to do; kDataLoss if no checkpoint of the folder is whole; those of OpenCheckpointAt() and
/// of the system.
Result<Beginning> ChooseBeginning(const CheckpointConfig& config, CheckpointFolder* folder);

/// The word kBegunWithKey of a set of the folder; "" if it has none, or cannot be read.
std::string BegunWith(const CheckpointFolder& folder, const std::string& name);
/// How many workers a set of the folder has the places of; 0 if it cannot be read.
std::int64_t WorkersIn(const CheckpointFolder& folder, const std::string& name);

}  // namespace passel::job
