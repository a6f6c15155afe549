// parameters.h - a model to evaluate or to predict with: out of a file, a checkpoint or a running
// job.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "job/evaluation_data.h"
#include "job/flag_checks.h"
#include "nn/model.h"
#include "nn/model_config.h"

namespace passel::job {

/// --params, --job and --wait, of which one of the first two must be there.
struct ParameterSettings {
  std::string params;       ///< what LoadModel() takes
  std::string job;          ///< a job id
  double wait = 10;         ///< seconds, for a job
  bool consistent = false;  ///< of a job: its workers wait between two steps meanwhile
  TypedNumbers typed;
};

class Parameters {
 public:
  /// Warns about values that are not finite. Errors: kInvalidArgument for both or none of the
  /// flags, and for `consistent` without a job; those of LoadModel(), of shm::TakeSnapshot() and of
  /// shm::TakeConsistentSnapshot().
  static Result<Parameters> Load(const ParameterSettings& flags);

  Parameters(Parameters&&) noexcept;
  Parameters& operator=(Parameters&&) noexcept;
  ~Parameters();

  const ModelConfig& config() const { return config_; }
  /// Valid as long as this object.
  ParameterParts parts() const { return parts_; }
  /// "model.safetensors" or "job x at global step 123", for sentences.
  const std::string& name() const { return name_; }
  /// What is known of the data that they were trained on.
  const TrainedOn& trained_on() const { return trained_on_; }
  /// What is known about them, as an object: "file" and "metadata", or "job" with its steps.
  const Json& About() const;

 private:
  Parameters();
  static Result<Parameters> FromFile(const std::string& path);
  static Result<Parameters> FromJob(const ParameterSettings& flags);
  bool AllFinite() const;

  struct Source;  // keeps the snapshot or the file's values alive
  std::unique_ptr<Source> source_;
  ModelConfig config_;
  std::vector<std::vector<RowPart>> parts_;
  std::string name_;
  TrainedOn trained_on_;
};

}  // namespace passel::job
