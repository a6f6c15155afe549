#include "job/failure_watch.h"

#include <chrono>

#include "base/deadline.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kAskForFailureEvery{1};
constexpr std::chrono::seconds kFailureAnswerLimit{2};

}  // namespace

FailureWatch::FailureWatch(const ClusterPart& part) : part_(part), thread_([this] { Watch(); }) {}

void FailureWatch::Watch() {
  std::unique_lock lock(mutex_);
  bool last = false;
  while (heard_.empty() && !last) {
    changed_.wait_for(lock, kAskForFailureEvery, [this] { return ends_; });
    if (ends_ && !once_more_) return;
    last = ends_;
    lock.unlock();
    const Result<ClusterPart::Stop> stop = part_.HowItStopped(Deadline::After(kFailureAnswerLimit));
    lock.lock();
    if (stop.ok()) heard_ = stop->failure;
    last = last || (ends_ && stop.status().code() == Code::kDeadlineExceeded);
  }
}

std::string FailureWatch::Heard() {
  const std::lock_guard lock(mutex_);
  return heard_;
}

std::string FailureWatch::Finish(bool once_more) {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    once_more_ = once_more;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return heard_;
}

}  // namespace passel::job
