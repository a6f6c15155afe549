// divergence.h - what a worker says when training gives numbers that are not finite.

#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace passel {

/// Who noticed it, and at which of its own steps, from 1, and of the job's.
struct WhereDiverged {
  std::string task;
  std::int64_t local_step = 0, global_step = 0;
};

/// All of them kDiverged, one sentence.

/// `what` ("the loss") was looked at before it was pushed.
Status NotFiniteSoNotPushed(const WhereDiverged& where, const std::string& what);
/// `count` gradients in a row were skipped.
Status NothingButSkips(const WhereDiverged& where, int count);
/// The step that found it has made the update already, without `elements` of the gradient.
Status LeftOutOfUpdate(const WhereDiverged& where, const std::string& variable,
                       std::uint64_t elements);
/// After the last update of this worker.
Status NotFiniteAtTheEnd(const WhereDiverged& where, const std::string& what);

}  // namespace passel
