// conclusion.h - what a job leaves when its last worker has ended: accuracy, file, report, summary.

#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/status.h"
#include "compute/row_parts.h"
#include "data/dataset.h"
#include "job/job_config.h"
#include "job/progress.h"
#include "job/report.h"
#include "job/signals.h"

namespace passel::job {

struct Conclusion {
  const JobConfig& config;
  const Dataset& data;
  ParameterParts parts;       ///< the trained values; empty if the job never had any
  const std::string& save;    ///< the path of --save or ""
  const std::string& report;  ///< that of --report or ""
  const std::string& page;    ///< that of --report_html or ""
  bool evaluator = false;     ///< the result is a line in the words of an evaluator, too
  bool evaluate = true;       ///< false: the user has given the evaluation up already
  /// Takes the accuracy of the values on the validation images, and their global step. Null: nobody
  /// asks for that.
  std::function<void(double accuracy, std::int64_t step)> score = {};
  /// The evaluation and the making of the page end then, finished or not, and nobody is waited for
  /// who reads no results.
  std::optional<Deadline> end_by = {};
};

/// Evaluates on the test images, unless `report` has a result of them, and for `score`; saves;
/// prints the summary; makes the page, writes the report. What goes wrong is said, and noted in the
/// report. A signal ends the evaluation within one batch of it, and nothing else: the job is then
/// interrupted and not evaluated. Returns the exit code, which is the report's.
int Conclude(const Conclusion& conclusion, SignalEvents& signals, Progress& progress,
             JobReport* report);

}  // namespace passel::job
