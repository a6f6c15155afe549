// session.h - requests of one worker to one ps, each repeated until it is answered.
//
// A request is sent, sent again after a pause that doubles, and over a new pipe when the pipe is
// gone; its id stays the same, so that the other side knows it again. "Working" tells that it is in
// hand. An answer to anything that nobody asks any more is ignored.
//
// Threads    Any number. Whoever waits receives, for the others too.
// Waits      All end at their deadline.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "fabric/pipe.h"
#include "fabric/wire.h"

namespace passel::fabric {

struct SessionOptions {
  std::chrono::nanoseconds first_pause = std::chrono::milliseconds(100);
  std::chrono::nanoseconds longest_pause = std::chrono::seconds(1);
  /// A ps that was there and cannot be reached for so long is given up: what is asked of it fails.
  std::chrono::nanoseconds gone_limit = std::chrono::hours(24 * 365);
};

/// One request on its way. The caller's; stays where it is from Start() until Drop().
struct Call {
  explicit Call(Kind kind, std::uint64_t number = 0) {
    request.kind = kind;
    request.number = number;
  }

  Request request;                          ///< `session`, `id` and `remaining_ns` are filled in
  Deadline deadline = Deadline::After({});  ///< what the request says
  std::span<const float> bulk;              ///< goes with it
  std::span<float> into;  ///< where the values of the answer belong; empty: they are skipped

  bool finished = false;  ///< under the session's lock, as all below
  bool working = false;   ///< the other side has it in hand
  bool sent = false;      ///< `bulk` is there, or on its way
  int repeated = 0;       ///< times without `bulk` since it was sent, over this pipe
  int outdated = 0;       ///< of those before, that the other side may still answer: with "unread"
  Answer answer;
  std::int64_t next_send_ns = 0;
  std::chrono::nanoseconds pause{0};
  int uses = 0;  ///< threads that send `bulk` or read `into`
};

class Session {
 public:
  /// `hello` says who asks, `peer` is its name for messages. `heard` gets the state of every
  /// answer, in the order of arrival, under the session's lock.
  Session(std::string peer, Connector connector, const Hello& hello, const SessionOptions& options,
          std::function<void(const Answer&)> heard);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The first Hello. Errors: what the ps answers; kUnavailable, kDeadlineExceeded, naming it.
  Result<Answer> Open(Deadline deadline);

  /// Sends it. What goes wrong with that Await() mends.
  void Start(Call* call);
  /// Until it is answered or, with `working_is_enough`, in hand. The status of the answer, or why
  /// there is none: kDeadlineExceeded and kUnavailable, after which it may be awaited again; what
  /// the ps says to who comes back.
  Status Await(Call* call, Deadline deadline, bool working_is_enough = false);
  /// It is awaited no more.
  void Drop(Call* call);
  /// All three.
  Status Ask(Call* call, Deadline deadline);

  /// What a Hello says from now on, should the pipe have to be made anew.
  void SetMode(std::uint64_t mode);
  void SetEpoch(std::uint32_t epoch);
  /// All requests from now on say that the job is to be stopped: so the first that is answered
  /// does.
  void StopToo();
  /// How long a ps that was there cannot be reached; zero: it can.
  std::chrono::nanoseconds gone_for() const;
  /// Messages sent, and messages received, since it was opened.
  std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t received() const { return received_.load(std::memory_order_relaxed); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  void Turn(Lock& lock, Deadline deadline);
  void Connect(Lock& lock, Deadline deadline);
  void SendDue(Lock& lock);
  void Send(Lock& lock, Call* call);
  void Take(Lock& lock, const std::shared_ptr<Pipe>& pipe, const Arrival& arrival);
  void LosePipe(const std::shared_ptr<Pipe>& pipe, const Status& why);
  void Welcome(const Answer& answer);

  const std::string peer_;
  const Connector connector_;
  const SessionOptions options_;
  const std::function<void(const Answer&)> heard_;
  const std::uint64_t session_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Pipe> pipe_;  // null: to be made
  bool greeted_ = false;        // over this pipe
  bool receiving_ = false;      // somebody is in Turn()
  std::int64_t next_connect_ns_ = 0;
  Call hello_{Kind::kHello};  // sent over each pipe first
  bool stop_too_ = false;
  std::uint64_t next_id_ = 1;
  std::vector<Call*> calls_;                    // started and not dropped
  Status gone_;                                 // why there is no pipe
  Status failed_;                               // what the ps says to who comes back: for good
  std::atomic<std::int64_t> gone_since_ns_{0};  // MonotonicNs(); 0: it is there, or never was
  std::atomic<std::uint64_t> sent_{0}, received_{0};
};

}  // namespace passel::fabric
