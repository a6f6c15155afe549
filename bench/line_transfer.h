// line_transfer.h - what it costs a core to update what another core has just updated.

#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"

namespace passel::bench {

/// Between two processors, for one read of all values (the forward pass) and one Adam update of
/// values and both slot variables (the push), median of many.
struct LineTransfer {
  int from = 0, to = 0;      ///< processors
  double own_us = 0;         ///< everything in the reader's own cache
  double foreign_us = 0;     ///< everything just updated by the other processor
  double line_ns = 0;        ///< (foreign - own) per 64-byte line of values and slots
  double round_trip_ns = 0;  ///< of one line that both write in turn
  double ExtraUs() const { return foreign_us - own_us; }
};

/// Errors: those of the processes.
Result<LineTransfer> MeasureLineTransfer(int from, int to, std::size_t elements, int turns);

/// All ordered pairs of `cpus`.
Result<std::vector<LineTransfer>> MeasureAllPairs(const std::vector<int>& cpus,
                                                  std::size_t elements, int turns);

}  // namespace passel::bench
