// proxy.h - a worker on the host of the ps: joins as it, and does what its messages say.
//
// Steps are done in the order of their ids, each once: one that is repeated is answered from what
// was said. A later step ends the one under way. What can be answered at any time is answered
// during a step too: its waits are made in slices.
//
// Updates, which cannot be done twice, are noted in the arena before and after (RequestRecord), so
// that another proxy of the same session, in a ps that came back, knows them too.

#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "fabric/pipe.h"
#include "fabric/server.h"
#include "fabric/wire.h"
#include "store/local_lead.h"
#include "store/local_shard.h"
#include "store/local_worker.h"

namespace passel::fabric {

/// Whether who says hello had been let in by this ps, or one before it.
inline bool ComesBack(const Hello& hello, int shard) {
  return shard == 0 ? hello.epoch != 0 : hello.mode != Hello::kNoMode;
}

class Proxy {
 public:
  /// Joins, for the worker that says hello. `served` outlives it. Nobody looks after its life
  /// `former` any more (0: there is none): it is over. Errors: those of LocalWorker::Join() and
  /// Represent(); kFailedPrecondition when its plan is another; kInvalidArgument for another shard;
  /// kAborted for one that comes back and was evicted.
  static Result<std::shared_ptr<Proxy>> Make(const ServedShard& served, const Request& hello,
                                             std::uint32_t former);

  /// Whether the life of the worker that says hello has come to its own end.
  static bool HasLeft(const ShardMemory& memory, const Request& hello);

  std::uint64_t session() const { return session_; }
  int worker() const { return worker_; }

  // From any thread.

  /// The worker is at the other end of this pipe from now on, and has said hello. False, and the
  /// pipe stays the caller's, if it is over.
  bool Attach(std::unique_ptr<Pipe>& pipe);
  /// The worker is taken for dead, unless it has left, and Run() ends soon. Nothing is answered any
  /// more: who asks over another connection learns what became of it.
  void End();
  /// As End(), once the step that it is doing is done: an update is not cut in half, and the next
  /// ps knows what came of it. A step that waits for others ends at once.
  void Finish();
  /// As Finish(), for a worker whose task has ended by itself: it counts as one that left.
  void Left();
  /// Its connection is gone, or it is over.
  bool Waits() const;
  /// Whether the shorter grace counts from now on.
  void Hurry(bool on);
  /// What it is sent is being written into the memory of its worker: not for long once it is over.
  bool Writes() const { return writes_.load(std::memory_order_seq_cst); }

  /// Until the worker is gone.
  void Run();

 private:
  Proxy(const ServedShard& served, const Request& hello, std::shared_ptr<LocalWorker> life);

  std::shared_ptr<Pipe> CurrentPipe();
  void LosePipe(const std::shared_ptr<Pipe>& pipe);
  void Heard();
  bool Gone();
  std::chrono::nanoseconds LookPause() const;
  bool Listen(std::chrono::nanoseconds patience);
  bool GoOn();
  void Handle(const std::shared_ptr<Pipe>& pipe, Arrival arrival);
  void Reply(const Request& request, Answer answer);
  void ReplyToStep(const Request& request, Answer answer);
  State StateNow();

  Answer Quick(const Request& request);
  Answer Step(const Request& request);
  Status CheckPlace(const KindInfo& info) const;
  Status CheckStep(const Request& request) const;
  Answer Update(const Request& request);
  void LookAtSlowest(Answer* answer);
  Answer Round(const Request& request);
  Status OpenShard(const Request& request);
  Status EnterMode(std::uint64_t mode);
  Status CheckMode() const;
  /// The bulk of the step that is being done. A lost connection leaves the step undone, to be
  /// repeated.
  Status ReadBulk(std::span<float> into);
  /// The same, of one that nobody wants.
  Status DropBulk();
  /// Calls call(deadline) with short deadlines until the request's, looking after messages between.
  template <typename Wait>
  Status InSlices(const Request& request, Wait&& wait);
  /// Runs update() unless the request is known, and notes it. Sets number and step.
  template <typename Apply>
  Status Once(const Request& request, Answer* answer, Apply&& apply);

  const ServedShard& served_;
  const ShardMemory memory_;
  const std::uint64_t session_;
  const int worker_;
  const std::shared_ptr<LocalWorker> life_;
  std::unique_ptr<LocalLead> lead_;  // of shard 0
  LocalShard shard_;
  Mode mode_;  // that the worker goes by
  std::uint32_t mode_number_ = 0;
  std::uint64_t serial_ = 0;

  // The last step, and what came of it.
  std::uint64_t step_;
  std::uint64_t rates_id_ = 0;  // of the last kSetRates
  enum class Done { kNot, kDone, kGivenUp, kUnread } done_ = Done::kDone;
  Answer answer_;
  const Pipe* answered_by_ = nullptr;  // where it went last
  std::int64_t answered_ns_ = 0;
  // The message that is being handled, and a step that came meanwhile.
  std::shared_ptr<Pipe> from_;
  std::size_t bulk_ = 0;
  struct Waiting {
    std::shared_ptr<Pipe> pipe;
    Arrival arrival;
  };
  std::optional<Waiting> next_;

#if defined(PASSEL_ATOMIC_VALUES)
  std::vector<float> copy_;
#endif

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Pipe> pipe_;
  bool greet_ = false;  // the pipe is new
  bool ending_ = false, left_ = false;
  std::atomic<bool> writes_{false};
  std::int64_t lost_ns_ = 0;   // when the pipe was
  std::int64_t hurry_ns_ = 0;  // since when; 0: no hurry
  std::int64_t heard_ns_ = 0;  // when something came by it
};

}  // namespace passel::fabric
