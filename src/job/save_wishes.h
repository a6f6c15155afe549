// save_wishes.h - checkpoints that others wish for: of a job whose ps are on several hosts, a ps
// that is about to go asks ps/0 for one (job/remote_errand.h).
//
// Who wishes waits; who saves (job/job_keeper.h) looks for wishes and answers them.
//
// Threads    Any.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/deadline.h"
#include "base/status.h"

namespace passel::job {

class SaveWishes {
 public:
  struct Wish {
    std::uint64_t number = 0;  ///< of the newest; those before it are meant, too; 0: there is none
    Deadline deadline = Deadline::At(0);  ///< until which somebody waits
  };

  SaveWishes() = default;
  SaveWishes(const SaveWishes&) = delete;
  SaveWishes& operator=(const SaveWishes&) = delete;

  /// Waits for a save that has begun after this call. Returns the global step of the checkpoint.
  /// Errors: those that Answer() and Close() are given; kDeadlineExceeded.
  Result<std::int64_t> Await(Deadline deadline);

  /// Those for which somebody waits.
  Wish Pending() const;
  /// Of all wishes up to that one.
  void Answer(std::uint64_t number, const Result<std::int64_t>& saved);
  /// Of all that wait, and of whoever comes later. The first call counts.
  void Close(const Result<std::int64_t>& saved);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t newest_ = 0, answered_ = 0;
  int waiting_ = 0;
  Deadline until_ = Deadline::At(0);  // of the newest that waits longest
  Result<std::int64_t> answer_ = Unavailable("nobody has saved yet");
  bool closed_ = false;
};

}  // namespace passel::job
