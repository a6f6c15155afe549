// evaluation_data.h - on which images a model is evaluated: the data of its job unless the user
// names other data, and of the training examples only those that are what they are called.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset.h"
#include "job/data_settings.h"
#include "job/job_data.h"
#include "job/shared_data.h"

namespace passel::job {

/// What is known of the data that a model was trained on.
struct TrainedOn {
  std::string name;                   ///< "job x", "model.safetensors", for sentences
  bool job = false;                   ///< it is a running job
  std::vector<JobData> told;          ///< by its tasks, the chief's first; empty: nothing
  std::optional<TrainedSplit> split;  ///< of a file, if it says so

  /// What the job `id` trained on, whose status has this "data".
  static TrainedOn OfJob(const std::string& id, const std::string& data_json);
};

/// For the metadata of a saved model, and back; nothing where there is no split to read.
void AddSplit(const TrainedSplit& split, std::map<std::string, std::string>* metadata);
std::optional<TrainedSplit> SplitOf(const std::map<std::string, std::string>& metadata);

/// What the user says of the data; a limit that is not given is that of the job.
struct NamedData {
  SourceSettings source;
  std::optional<std::int64_t> csv_train_limit, csv_test_limit;
};

/// The data that `named` names, else that of the job, else what passel train would find. A log line
/// says which; a warning, when it is not what the job trains on.
/// Errors: kFailedPrecondition when the job's data is not known, its workers have not all the same,
/// or its files have changed since; those of LocateData(), MakeDataOptions() and DataKey().
Result<ChosenData> ChooseEvaluationData(const NamedData& named, const TrainedOn& trained);

/// "test", "validation" or "train" of `data`, which is made up if `fake`. The last two need to know
/// what was held back from training: the job or the file says it, and `validation_size` may only
/// repeat that; where neither says it, `validation_size` must, and a warning says that nobody has
/// checked it. Errors: kInvalidArgument, also for a set without images.
Result<ImageSet> ChooseEvaluationSet(const std::string& set, const Dataset& data, bool fake,
                                     std::optional<std::int64_t> validation_size,
                                     const TrainedOn& trained);

}  // namespace passel::job
