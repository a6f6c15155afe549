// The settings of checkpoints: where they are, when one is made, how many are kept, and what a job
// begins with.

#include "io/checkpoint_index.h"
#include "job/settings_table.h"

namespace passel::job {

// Children have none of it, as a rule: the process that a person started saves, and says what to go
// on from.
SettingGroup CheckpointGroup() {
  using J = JobSettings;
  const auto ours = [](SettingTraits traits = {}) {
    traits.to_child = false;
    return traits;
  };
  return {
      kCheckpointGroup,
      {{"checkpoint_dir", At<&J::checkpoint_dir>(),
        "Folder of checkpoints: the next job there goes on from the newest. It is made if there is "
        "none. Default: no checkpoints",
        ours(InShortHelp({.alias = "train_dir"}))},
       {"save_secs", At<&J::save_secs>(),
        "Seconds from one checkpoint to the next; the first is made at the start, the last at the "
        "end. 0: by steps only",
        ours(Within(0, 1e9, " s"))},
       {"save_steps", At<&J::save_steps>(),
        "A checkpoint is made already at the first step that is N or more after the one before, so "
        "not at multiples of N. 0: by time only",
        ours(Within(0, 1e12))},
       {"keep_checkpoints", At<&J::keep_checkpoints>(),
        "Number of checkpoints that are kept, the newest. 0: all",
        ours(Within(0, static_cast<double>(kMaxKeptCheckpoints)))},
       {"keep_every_hours", At<&J::keep_every_hours>(), "And one in so many hours for good",
        ours(Within(1e-3, 1e6))},
       {"resume", At<&J::resume>(),
        "auto: go on from the newest checkpoint of --checkpoint_dir if there is one; never: begin "
        "anew, which is refused if there is one; or the path of a checkpoint to go on from, which "
        "is refused if that folder has later ones, unless they were begun with it: then the newest "
        "of these",
        ours()},
       {"init", At<&J::init>(),
        "Begin with the values of this checkpoint or .safetensors file, with new slot variables "
        "and at step 0. Not used where the job goes on from a checkpoint, and the log says so"},
       {"checkpoint_consistent", At<&J::checkpoint_consistent>(),
        "Workers wait between two steps while a checkpoint is copied, so that all of it is of one "
        "step. In barrier and replicas it always is",
        ours()}}};
}

}  // namespace passel::job
