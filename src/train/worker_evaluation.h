// worker_evaluation.h - when a worker looks how good the values are, and how.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset.h"
#include "nn/model.h"
#include "store/parameter_store.h"
#include "train/hook.h"
#include "train/model_plan.h"
#include "train/worker_loop.h"

namespace passel {

/// Everything outlives the evaluation.
struct WorkerEvaluationParts {
  const WorkerOptions& options;
  const WorkerCallbacks& callbacks;
  Model& model;
  const ModelLayout& layout;
  const DataSplit& data;
  ParameterStore& store;
  bool copy_pays = false;                     ///< see PullModeFor()
  std::vector<std::vector<RowPart>>* params;  ///< of the last pull
};

class WorkerEvaluation {
 public:
  explicit WorkerEvaluation(const WorkerEvaluationParts& parts);

  /// After a push: evaluates if WorkerOptions::evaluation_steps says so, and has the hooks told.
  Status AfterPush(HookContext& context);
  /// After the last push: whether that left numbers. Errors: kDiverged.
  Status CheckValues();
  /// The result on the images, of the values that CheckValues() looked at, in `*result`. Errors:
  /// kDiverged.
  Status AtEnd(HookContext& context, WorkerResult* result);

 private:
  Status LookAtValuesNow();
  bool Leads() const;
  Result<TestResult> Evaluate(bool at_end);
  Status Tell(HookContext& context, std::int64_t step, const TestResult& result, bool at_end) const;
  Status NotFinite(const std::string& what) const;

  const WorkerEvaluationParts parts_;
  std::int64_t evaluated_;  // round modes: multiples of evaluation_steps seen so far
};

}  // namespace passel
