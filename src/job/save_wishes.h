// save_wishes.h - checkpoints that ps/0 is asked for, by who has not the memory of all ps: a chief
// that calls passel_save(), and a ps of another host that is about to go.
//
//   {"ask":"save","number":n,"how":"quiet"|"live"|"met","limit_ms":n,"turn_ms":n[,"going":k]}
//                                       -->      {"ok":true[,"step":n|"failed":error]}
//
// without either: not yet, in turn_ms; ask again. `number` is of one wish: asked again, also over
// another connection, it is the same one. `going`: of ps/k. A ps/0 that was started again begins
// with it anew.
//
// Who saves (job/job_keeper.h) looks for wishes and answers them.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

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

/// Of ps/0: from its door to whoever saves.
///
/// Threads    Any.
class SaveWishes {
 public:
  SaveWishes() = default;
  SaveWishes(const SaveWishes&) = delete;
  SaveWishes& operator=(const SaveWishes&) = delete;

  /// Waits for an answer, for the time that the question says. Errors: kDataLoss for what is no
  /// such question; kResourceExhausted for too many that wait.
  Result<Json> Ask(const Json& question);

  /// From now on that is called, by any thread, with each new wish of a worker who cannot meet
  /// others meanwhile, until Forget() of the same.
  void Tell(const void* whom, std::function<void()> of_wish);
  void Forget(const void* whom);

  /// The first wish that nobody has answered and that has time left: of a worker who cannot meet
  /// others meanwhile, if there is one, since a save that has all meet would wait for it.
  std::optional<WishedSave> Pending() const;
  /// The global step of a checkpoint that was begun after Pending() has shown the wish, or that is
  /// of now; or why there is none.
  void Answer(std::uint64_t number, const Result<std::int64_t>& step);
  /// Of all that wait, and of whoever comes later. The first call counts.
  void Close(const Result<std::int64_t>& step);

 private:
  struct Entry {
    WishedSave wish;
    std::optional<Result<std::int64_t>> answer;
  };
  const Entry* Find(std::uint64_t number) const;

  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::vector<Entry> entries_;  // as they came; those that are over go when another comes
  std::optional<Result<std::int64_t>> closed_;
  const void* told_ = nullptr;
  std::function<void()> tell_;
};

/// Of one wish, for AskFar(). `turn`: how long ps/0 may wait with its answer. `going`: see above.
Json SaveQuestion(std::uint64_t number, std::optional<AtEnd> at_end, std::chrono::nanoseconds limit,
                  std::chrono::nanoseconds turn, std::optional<int> going = {});
/// The step of the checkpoint; nothing: not yet. Errors: those of the save.
Result<std::optional<std::int64_t>> SavedStep(const Json& answer);
std::uint64_t NewWishNumber();

/// Of the chief: the step of the newest checkpoint, once ps/0 has answered. `turn` is called often
/// meanwhile, and ends the wait by an error. Errors: those of `turn`, of the save and of AskFar(),
/// where a ps/0 that is gone is waited for, `ps_wait` at most; kDeadlineExceeded, naming it.
Result<std::int64_t> AskForSave(const FarJob& job, std::optional<AtEnd> at_end,
                                std::chrono::nanoseconds ps_wait, Deadline deadline,
                                const std::function<Status()>& turn);

}  // namespace passel::job
