// saved_values.h - what a job saves, with what is known of it: the values at its end, and what its
// checkpoints say of it (job/checkpoint_part.h).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "compute/row_parts.h"
#include "job/job_config.h"
#include "store/mode.h"
#include "train/checkpoint_words.h"

namespace passel::job {

/// SaveModel() of the values of a job after its update `global_step`. The metadata say how they
/// were trained: that step, the first mode, the optimizer, what was held back of the data, and the
/// accuracy on the test images if that is known. REQUIRES: FitToData(&config) was called.
/// Errors: those of SaveModel().
Status SaveValues(const std::string& path, const JobConfig& config, ParameterParts values,
                  std::int64_t global_step, std::optional<double> test_accuracy = std::nullopt);

/// Word "kernels": MatrixKernels() of the chief, where it is known and has no GPU.
inline constexpr const char* kKernelsKey = "kernels";

/// What a checkpoint says that no config knows.
struct CheckpointMoment {
  ModeSetting mode;  ///< in force
  int ps = 1, workers = 1;
  int places = 0;                      ///< as CheckpointWords::places
  bool exact = false;                  ///< all parts are copied at one step
  Json settings = Json::MakeObject();  ///< of names to texts
  Json data = Json::MakeObject();
};
/// PartOrder::metadata, the same for all parts. REQUIRES: as SaveValues().
Words WordsOfCheckpoint(const JobConfig& config, const CheckpointMoment& moment);

}  // namespace passel::job
