// checkpoint_listing.h - what checkpoints a folder has, and why each is kept. Nothing in the folder
// changes, and a job may save there meanwhile.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "io/checkpoint_index.h"

namespace passel::job {

struct ListedCheckpoint {
  std::string name;  ///< "model.ckpt-500"
  std::int64_t step = 0;
  double saved_at = 0;  ///< seconds since 1970
  int parts = 0;        ///< 0: its files are not there
  std::uint64_t bytes = 0;
  std::vector<std::string> kept;         ///< why: "newest", "recent", "best", "for good"
  std::optional<ValidationScore> score;  ///< of the best
};

/// A file by whose name a checkpoint might be expected, and that is of none.
struct StrayFile {
  std::string name;
  std::string why;  ///< "unfinished", "found broken"
};

struct CheckpointListing {
  std::string folder;
  std::vector<ListedCheckpoint> checkpoints;  ///< by step
  std::vector<StrayFile> strays;              ///< by name
};

/// By names, sizes and the index: no checkpoint is opened. Errors: kDataLoss for a broken index;
/// those of the system.
Result<CheckpointListing> ListCheckpoints(const std::string& folder);
std::string ToText(const CheckpointListing& listing);
Json ToJson(const CheckpointListing& listing);

}  // namespace passel::job
