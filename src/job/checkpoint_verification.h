// checkpoint_verification.h - whether checkpoints are whole: every byte is read. Nothing in their
// folder changes, and a job may save there meanwhile.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace passel::job {

struct VerifiedCheckpoint {
  std::string name;  ///< "train/model.ckpt-500"
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  bool gone = false;                ///< a job has deleted it meanwhile
  std::vector<std::string> broken;  ///< what is, each of another file; empty: it is whole
  Status not_read = {};             ///< why it is not, as of a newer format: then nothing is known

  std::string Text() const;  ///< a line
  Json AsJson() const;
};

/// Of a folder all that it lists (job/checkpoint_listing.h), those that cannot be read, too; or a
/// checkpoint, or a file that has checksums. Errors: kNotFound if there is nothing;
/// kInvalidArgument for a file without checksums and for a newer format; those of the system.
Result<std::vector<VerifiedCheckpoint>> VerifyCheckpoints(const std::string& path);

}  // namespace passel::job
