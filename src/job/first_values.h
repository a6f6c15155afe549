// first_values.h - what the variables of a job begin with: a checkpoint that it goes on from, the
// values of a file, or what the model's seed says.

#pragma once

#include <string>

#include "base/status.h"
#include "job/job_config.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"
#include "train/checkpoint_set.h"
#include "train/model_plan.h"

namespace passel::job {

/// OK if a job of that plan can go on from there. Errors: kInvalidArgument, naming what is
/// different and what to do.
Status CheckCanGoOn(const CheckpointSet& from, const StorePlan& plan, bool of_program);

/// Writes all of the checkpoint at `path` into a store that has no values yet, for the chief.
/// Errors: those of WriteFirstValues() for a checkpoint.
Status RestoreFrom(const std::string& path, const OptimizerConfig& optimizer, int shards,
                   ParameterStore& store);

/// Writes the first values of a job, for its chief: all of the checkpoint at `resume_from`; else,
/// with config.checkpoints.init, the values that file has for variables of the model, and a line
/// for each variable in the log; else those of the model.
/// Errors: kInvalidArgument for a checkpoint of another job, and for a file that has none of the
/// variables; those of reading it and of the store.
Status WriteFirstValues(const JobConfig& config, const std::string& resume_from,
                        const ModelLayout& layout, const OptimizerConfig& optimizer, int shards,
                        ParameterStore& store);

}  // namespace passel::job
