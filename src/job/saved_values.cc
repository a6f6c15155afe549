#include "job/saved_values.h"

#include <fmt/core.h>

#include <map>

#include "io/checkpoint_folder.h"
#include "job/evaluation_data.h"
#include "optim/optimizer.h"
#include "store/mode.h"
#include "train/saved_model.h"

namespace passel::job {

Status SaveValues(const std::string& path, const JobConfig& config, ParameterParts values,
                  std::int64_t global_step, std::optional<double> test_accuracy) {
  std::map<std::string, std::string> metadata = {
      {kStepKey, std::to_string(global_step)},
      {kModeKey, std::string(config.mode.traits().name)},
      {kOptimizerKey, std::string(OptimizerName(config.optimizer.kind))}};
  AddSplit({config.validation_size, config.train_examples}, &metadata);
  if (test_accuracy) metadata["test_accuracy"] = fmt::format("{:.4f}", *test_accuracy);
  return SaveModel(path, config.model, values, metadata);
}

Words WordsOfCheckpoint(const JobConfig& config, const CheckpointMoment& moment) {
  CheckpointWords checkpoint;
  checkpoint.model = config.model;
  checkpoint.mode = moment.mode.ToString();
  checkpoint.settings = moment.settings;
  checkpoint.data = moment.data;
  checkpoint.ps = moment.ps;
  checkpoint.workers = moment.workers;
  checkpoint.places = moment.places;
  checkpoint.exact = moment.exact;
  Words words;
  AddWords(checkpoint, &words);
  AddSplit({config.validation_size, config.train_examples}, &words);
  return words;
}

}  // namespace passel::job
