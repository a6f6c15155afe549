// update_line.h - one line at the start of a job on GPUs: where its parameters are, what an update
// of its mode is made of, and what the other place for the parameters would be.
//
//   parameters in host memory (--arena host); hogwild: 8 workers each make updates of 100 examples,
//   without waiting for each other; --arena device would keep them in the memory of GPU 0
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/mode.h"

namespace passel {

struct UpdateFacts {
  int workers = 1;
  /// The batch of a worker's step, whatever number of towers computes it.
  std::uint32_t batch_size = 100;
  int push_every = 1;                   ///< steps whose gradients a worker adds up before it pushes
  ModeSetting mode;                     ///< that the job begins in
  std::vector<ScheduledMode> schedule;  ///< that come later
  bool on_device = false;               ///< --arena device
  std::string gpu;  ///< in whose memory the parameters are, or would be: "0", "0:3"
  /// Why --arena device would be refused with these GPUs, in a few words; "" if it would not.
  std::string obstacle;
};

/// Without a full stop or an end of line. It recommends nothing that would be refused.
std::string UpdateLine(const UpdateFacts& facts);

}  // namespace passel
