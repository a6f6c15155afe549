// What a worker does when it leaves its job.

#include "base/clock.h"
#include "base/log.h"
#include "capi/worker.h"
#include "store/membership.h"
#include "store/metrics.h"
#include "store/scale.h"

namespace passel::capi {
namespace {

// Metrics travel to another host so often at most.
constexpr std::int64_t kMetricsPauseNs = 250'000'000;

}  // namespace

// Nobody fails for want of them.
void Worker::SendMetrics() {
  if (!metrics_new_ || remote_->PsMissingFor().count() > 0) return;
  metrics_at_ns_ = MonotonicNs() + kMetricsPauseNs;
  const Status told = remote_->TellMetrics(ReadMetrics(*metrics_));
  if (!told.ok()) LogDebug("metrics: {}", told.message());
  metrics_new_ = !told.ok();
}

// Whom `passel ctl scale` ends may be wanted again: it is not done.
bool Worker::MayReturn() const {
  return job_ && settings_.task.flags.supervised && WantedWorkers(Lead()) <= index();
}

Status Worker::Leave() {
  if (remote_) SendMetrics();  // to ps/0, whose memory summaries may read
  summaries_.reset();
  if (sampler_) sampler_->End();
  Status saved;
  if (checkpoints_ && initialized_) saved = checkpoints_->End(OthersNow(), *store_);
  bool hangs = checkpoints_ && checkpoints_->hangs();
  checkpoints_.reset();
  const Status left = MayReturn() ? store_->LeaveForNow() : store_->Leave();
  if (left.ok() && saved.ok() && IsLastOfAll()) {
    saved = SaveTheRest(settings_, job_->arena(0).plan(), Shards(), Names(), &hangs);
  }
  if (hangs) {  // what saves there reads the arenas until the process ends
    (void)arena_.release();
    (void)job_.release();
  }
  return left.ok() ? saved : left;
}

// The chief may have saved, and left, while others trained. Of a job by hand ps/0 saves the rest.
bool Worker::IsLastOfAll() const {
  return job_ && !remote_ && initialized_ && settings_.task.flags.supervised &&
         !settings_.config.checkpoints.folder.empty() && AllWorkersEnded(Lead());
}

}  // namespace passel::capi
