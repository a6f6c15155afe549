#include "job/train_settings.h"

#include <fmt/core.h>

#include <algorithm>

#include "cluster/cluster_spec.h"
#include "job/devices.h"
#include "job/output_path.h"
#include "job/result_output.h"
#include "job/run_page.h"
#include "job/settings_table.h"
#include "store/shard_memory.h"

namespace passel::job {
namespace {

Status CheckTasksAndResults(const TrainSettings& f) {
  // As `launch` and `train` spell them.
  const bool roles = !f.roles.empty();
  const char* const ps = roles ? "ps=" : "--ps ";
  const char* const workers = roles ? "worker=" : "--workers ";
  if (f.workers < 1 || f.workers > kMaxWorkers) {
    return InvalidArgument(fmt::format("a job has 1 to {} workers, not {}: use, for example, {}2",
                                       kMaxWorkers, f.workers, workers));
  }
  if (f.ps < 0 || f.ps > kMaxShards) {
    return InvalidArgument(
        fmt::format("a job has 0 to {} ps, not {}: use, for example, {}1", kMaxShards, f.ps, ps));
  }
  if (f.ps == 0 && f.workers != 1) {
    return InvalidArgument(fmt::format("without a ps there is one worker, not {}: use {}1 or {}1",
                                       f.workers, ps, workers));
  }
  if (f.ps == 0 && f.MaxWorkers() != 1) {
    return InvalidArgument(
        fmt::format("without a ps there is one worker, and nobody joins: omit --max_workers {}, or "
                    "use {}1",
                    f.MaxWorkers(), ps));
  }
  if (f.ps == 0 && f.evaluator) {
    return InvalidArgument("--evaluator follows the values on a ps, and there is none: use --ps 1");
  }
  // Now, not after hours of training.
  if (!f.save.empty()) PASSEL_RETURN_IF_ERROR(CheckOutputPath("--save", f.save));
  if (!f.report.empty()) PASSEL_RETURN_IF_ERROR(PrepareResult("--report", f.report));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--report", f.report, "--save", f.save));
  const char* const page = "--report_html";
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles(page, f.report_html, "--report", f.report));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles(page, f.report_html, "--save", f.save));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles(page, f.report_html, "--config", f.config));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--report", f.report, "--config", f.config));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--save", f.save, "--config", f.config));
  if (!f.job_id.empty()) PASSEL_RETURN_IF_ERROR(ValidateJobId(f.job_id));
  // The last, since it takes half a second.
  return f.report_html.empty() ? Status() : CheckRunPage(page, f.report_html);
}

// Checks the places of computations and of variables.
Status CheckPlaces(const TrainSettings& f, const JobConfig& config) {
  PASSEL_RETURN_IF_ERROR(CheckJobDevices(f.devices, f.job.typed, f.MaxWorkers(), f.gpu_per_worker));
  return CheckPins(config.model, std::max(1, f.ps), config.placement);
}

}  // namespace

Status CheckMaxWorkers(const TrainSettings& f, const JobConfig& config) {
  if (!f.max_workers) return {};
  if (f.MaxWorkers() < f.workers || f.MaxWorkers() > kMaxWorkers) {
    return InvalidArgument(
        fmt::format("--max_workers is {} to {} here, not {}: a job begins with {} and has at most "
                    "{}; raise it, or omit it",
                    f.workers, kMaxWorkers, f.MaxWorkers(), f.workers, kMaxWorkers));
  }
  return f.MaxWorkers() > f.workers ? CheckMayJoin(config) : Status();
}

Result<JobConfig> CheckTrainSettings(TrainSettings* flags) {
  TrainSettings& f = *flags;
  // Before the log file is made.
  const std::string& log = f.job.log_file;
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--log_file", log, "--save", f.save));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--log_file", log, "--report", f.report));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--log_file", log, "--report_html", f.report_html));
  PASSEL_RETURN_IF_ERROR(StartLog(f.job));
  PASSEL_ASSIGN_OR_RETURN(JobConfig config, CheckJobSettings(f.job));
  PASSEL_RETURN_IF_ERROR(CheckRanges(ViewOf(f), f.job.typed));
  // Their number follows from the GPUs, or it is one process alone.
  if ((!f.launch.gpus.empty() || f.ps == 0) && !f.workers_given) f.workers = 1;
  PASSEL_RETURN_IF_ERROR(CheckTasksAndResults(f));
  // With --gpus their number is not known yet.
  if (f.launch.gpus.empty()) PASSEL_RETURN_IF_ERROR(CheckMaxWorkers(f, config));
  PASSEL_RETURN_IF_ERROR(CheckPlaces(f, config));
  return config;
}

}  // namespace passel::job
