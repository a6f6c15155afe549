// checkpoint_facts.h - what became of the checkpoints of a job, for its report.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/checkpoint_folder.h"

namespace passel::job {

struct CheckpointFacts {
  std::string folder;  ///< "": none are made
  std::uint64_t saved = 0, failed = 0;
  std::uint64_t bytes = 0;                          ///< of all that were saved
  double copying_seconds = 0, writing_seconds = 0;  ///< of their threads, while others train
  double held_seconds = 0;                          ///< all workers waited, between two steps
  std::string newest;                               ///< "model.ckpt-500"; "": there is none
  std::optional<BestEntry> best;
  bool was_finished = false;  ///< nothing was left to train after `resumed_from`
  std::string resumed_from;   ///< "train/model.ckpt-300"; "": the job began anew
};

}  // namespace passel::job
