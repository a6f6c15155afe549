#include "job/task_report.h"

#include <fmt/core.h>

#include <chrono>

#include "base/clock.h"
#include "job/exit_code.h"
#include "job/job_data.h"
#include "job/job_status.h"
#include "job/result_output.h"
#include "job/train_settings.h"
#include "optim/optimizer.h"
#include "store/membership.h"

namespace passel::job {
namespace {

constexpr std::chrono::nanoseconds kBetweenPoints = std::chrono::milliseconds(100);

}  // namespace

Status CheckReportOf(const TaskSettings& flags, const TaskId& id) {
  if (flags.report.empty()) return {};
  if (id != TaskId{"ps", 0}) {
    return InvalidArgument(fmt::format(
        "--report is for ps/0, which alone knows the whole job, and this is {}: give it "
        "to ps/0, and omit it here",
        id.ToString()));
  }
  return PrepareResult("--report", flags.report);
}

TaskReport::TaskReport(const Task& task, const JobConfig& config) : path_(task.flags.report) {
  TrainSettings settings;
  settings.job = task.job;
  settings.devices = task.flags.devices;
  settings.ps = task.spec.num_tasks("ps");
  settings.workers = task.NumTrainers();
  settings.report = path_;
  report_.program_start_ns = MonotonicNs();
  report_.run = DescribeRun(settings);
  report_.job_id = task.job_id;
  report_.mode = config.mode.traits().name;
  report_.push_every = config.worker.push_every;
  report_.model = task.job.model;
  report_.data = task.job.source.data_dir;
  report_.ps = settings.ps;
}

void TaskReport::Look(const ShardMemory& lead) {
  const std::int64_t now = MonotonicNs();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + kBetweenPoints.count();
  curve_.Add(ReadJobStatus(lead), now);
}

Status TaskReport::Write(const shm::Arena& lead, const std::string& data_told,
                         const std::string& note, int exit_code) {
  report_.TakeStatus(ReadJobStatus(lead.memory()));
  const JobStatus& status = report_.status;
  // What the chief said beats the flags of the ps.
  if (!status.modes.empty()) report_.mode = status.modes.front().setting.ToString();
  if (const auto told = JobDataFromJson(data_told); !told.empty()) {
    report_.data = told.front().directory;
  }
  report_.optimizer = OptimizerName(lead.plan().optimizer.kind);
  report_.resumed_step = status.restored_step;
  report_.exit_code = exit_code;
  if (!note.empty()) report_.notes.push_back(note);
  report_.interrupted = exit_code == kExitInterrupted;
  report_.worker_exits.clear();
  for (const WorkerStatus& worker : status.workers) {
    const auto index = static_cast<std::size_t>(worker.member.worker);
    if (report_.worker_exits.size() <= index) report_.worker_exits.resize(index + 1);
    report_.worker_exits[index] = PhaseInWords(worker.member);
  }
  curve_.Add(status, LastStepNs(status));
  report_.curve = curve_.points();
  report_.seconds = 1e-9 * static_cast<double>(MonotonicNs() - report_.program_start_ns);
  return WriteReport(path_, report_);
}

}  // namespace passel::job
