// save_wish.h - a checkpoint that the chief asks ps/0 for, because it has not the memory of all ps:
//
//   {"ask":"save","number":n,"how":"quiet"|"live"|"met","limit_ms":n}
//                                       -->      {"ok":true[,"step":n|"failed":error]}
//
// without either: not yet, ask again. `number` is of one wish: asked again, also over another
// connection, it is the same one. A ps/0 that was started again begins with it anew.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"
#include "job/checkpoint_save.h"
#include "job/far_job.h"

namespace passel::job {

struct WishedSave {
  std::uint64_t number = 0;
  std::optional<AtEnd> at_end;  ///< as for CheckpointSaver::SaveNow()
  Deadline deadline = Deadline::After({});
};

/// Of ps/0: from its door to whoever saves. The newest wish counts.
///
/// Threads    Any.
class SaveWish {
 public:
  /// Waits for a moment. Errors: those of that save; kDataLoss for what is no such question.
  Result<Json> Ask(const Json& question);

  /// From now on that is called with each new wish, by any thread, until Forget() of the same.
  void Tell(const void* whom, std::function<void()> of_wish);
  void Forget(const void* whom);

  /// The wish that nobody has answered yet.
  std::optional<WishedSave> Pending() const;
  /// The step of the newest checkpoint, or why there is none.
  void Answer(std::uint64_t number, Result<std::int64_t> step);

 private:
  mutable std::mutex mutex_;
  std::condition_variable answered_;
  WishedSave wish_;                             // number 0: none yet
  std::optional<Result<std::int64_t>> answer_;  // to it
  const void* told_ = nullptr;
  std::function<void()> tell_;
};

/// Of the chief: the step of the newest checkpoint, once ps/0 has answered. `turn` is called often
/// meanwhile, and ends the wait by an error. Errors: those of `turn`, of the save and of AskFar(),
/// where a ps/0 that is gone is waited for, `ps_wait` at most; kDeadlineExceeded, naming it.
Result<std::int64_t> AskForSave(const FarJob& job, std::optional<AtEnd> at_end,
                                std::chrono::nanoseconds ps_wait, Deadline deadline,
                                const std::function<Status()>& turn);

}  // namespace passel::job
