#include "capi/summaries.h"

#include <fmt/core.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "job/job_status.h"

namespace passel::capi {
namespace {

// Until it is asked again whether the program shows anything.
constexpr std::int64_t kLookAgainNs = 10'000'000;

}  // namespace

std::function<void(Summary*)> MetricsOfAll(const ShardMemory& lead) {
  return [lead](Summary* summary) {
    const job::JobStatus status = job::ReadJobStatus(lead);
    for (const Metric& mean : job::MeanMetrics(status)) {
      summary->push_back({mean.name, mean.value});
    }
    for (const job::WorkerStatus& worker : status.workers) {
      if (status.workers.size() == 1) break;
      for (const Metric& m : worker.metrics) {
        summary->push_back({fmt::format("worker_{}/{}", worker.member.worker, m.name), m.value});
      }
    }
  };
}

std::unique_ptr<Summaries> Summaries::Create(const SummaryOptions& options,
                                             std::int64_t global_step, Metrics metrics) {
  if (options.folder.empty()) return nullptr;
  EventFileOptions file;
  file.on_problem = [](const std::string& sentence) {
    LogWarning("summaries: {}; what cannot be shown is left out, and training goes on", sentence);
  };
  Result<std::unique_ptr<EventFile>> made = EventFile::Create(options.folder, WallSeconds(), file);
  if (!made.ok()) {
    LogWarning("no summaries are written: {}; training goes on", made.status().message());
    return nullptr;
  }
  std::unique_ptr<Summaries> summaries(new Summaries(options, std::move(metrics)));
  summaries->file_ = std::move(*made);
  summaries->file_->Add({WallSeconds(), global_step, SessionLog{SessionLog::Status::kStart}});
  return summaries;
}

Summaries::~Summaries() {
  if (seen_step_ > written_step_) Write(seen_step_);
  file_->Close(Event{WallSeconds(), seen_step_, SessionLog{SessionLog::Status::kStop}});
}

void Summaries::Look(std::int64_t global_step) {
  seen_step_ = global_step;
  const bool by_steps =
      options_.every_steps > 0 && global_step >= written_step_ + options_.every_steps;
  if (not_before_ns_ != 0 && MonotonicNs() < not_before_ns_) return;
  if (written_ns_ == 0 || by_steps) return Write(global_step);
  if (options_.interval.count() == 0) return;
  if (MonotonicNs() - written_ns_ >= options_.interval.count()) Write(global_step);
}

void Summaries::Write(std::int64_t global_step) {
  Summary summary;
  metrics_(&summary);
  const std::int64_t now_ns = MonotonicNs();
  if (summary.empty()) {
    not_before_ns_ = now_ns + kLookAgainNs;
    return;
  }
  if (written_ns_ != 0 && now_ns > written_ns_) {
    summary.push_back({"global_step/sec", 1e9 * static_cast<double>(global_step - written_step_) /
                                              static_cast<double>(now_ns - written_ns_)});
  }
  file_->Add({WallSeconds(), global_step, std::move(summary)});
  written_step_ = global_step;
  written_ns_ = now_ns;
}

}  // namespace passel::capi
