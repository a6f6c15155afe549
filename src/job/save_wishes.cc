#include "job/save_wishes.h"

#include <algorithm>

namespace passel::job {

Result<std::int64_t> SaveWishes::Await(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (closed_) return answer_;
  const std::uint64_t mine = ++newest_;
  until_ =
      Deadline::At(waiting_ == 0 ? deadline.at_ns() : std::max(until_.at_ns(), deadline.at_ns()));
  ++waiting_;
  const bool answered =
      changed_.wait_for(lock, deadline.Remaining(), [&] { return closed_ || answered_ >= mine; });
  --waiting_;
  if (!answered) return DeadlineExceeded("it was not saved in time");
  return answer_;
}

SaveWishes::Wish SaveWishes::Pending() const {
  const std::lock_guard lock(mutex_);
  if (closed_ || waiting_ == 0 || answered_ == newest_) return {};
  return {newest_, until_};
}

void SaveWishes::Answer(std::uint64_t number, const Result<std::int64_t>& saved) {
  const std::lock_guard lock(mutex_);
  if (closed_ || number <= answered_) return;
  answered_ = number;
  answer_ = saved;
  changed_.notify_all();
}

void SaveWishes::Close(const Result<std::int64_t>& saved) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  answer_ = saved;
  changed_.notify_all();
}

}  // namespace passel::job
