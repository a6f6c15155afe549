// job_data.h - which data a job trains on, as the job tells it to whoever asks (the object "data"
// of its status and of its snapshots), so that whoever evaluates it takes the same.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel::job {

/// What a job does with its training examples: it takes the first `train_examples` (0: all), and
/// trains on all of these but the first `validation_size`.
struct TrainedSplit {
  std::int64_t validation_size = 0;
  std::uint64_t train_examples = 0;
  friend bool operator==(const TrainedSplit&, const TrainedSplit&) = default;
};

struct JobData {
  std::string directory;  ///< absolute path of a directory or a file; "fake_data" if `fake`
  std::string key;        ///< DataKey(): of the files as they were when the job read them
  bool fake = false;      ///< made up, by --fake_data
  std::uint64_t csv_train_limit = 0, csv_test_limit = 0;
  TrainedSplit split;
  std::string crc32 = {};  ///< of the training examples themselves (data/dataset.h); "": not known
};

/// A JSON object.
std::string ToJson(const JobData& data);

/// What the tasks of a job say: the chief first, then another that says something else.
/// Empty when nobody has said anything, or nothing that ToJson() would write.
std::vector<JobData> JobDataFromJson(const std::string& json);

}  // namespace passel::job
