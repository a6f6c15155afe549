// remote_worker.h - what RemoteLead (or LeadHere) and RemoteShard of one worker share: its
// sessions, what ps/0 said last, its own counters, and the step that is under way on each ps.
//
// Threads    As Lead and Shard have it: one thread, but for what takes the state's lock.

#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fabric/client.h"
#include "fabric/counter_report.h"
#include "fabric/pump.h"
#include "fabric/session.h"
#include "fabric/wire.h"
#include "store/local_worker.h"
#include "store/shard_memory.h"

namespace passel::fabric {

class RemoteShard;

class RemoteWorker {
 public:
  RemoteWorker(const StorePlan& worker_plan, int index, std::vector<Connector> connectors,
               const ClientOptions& client_options);

  /// Joins on ps/0, and is represented on the others that are not here. Errors: kDataLoss when some
  /// of all have lost their values.
  Status Join();

  Session& session(int shard) { return *sessions_[static_cast<std::size_t>(shard)]; }
  /// For requests at any time.
  Result<Answer> Quick(int shard, Call call) const {
    return Ask(shard, call, options.answer_limit);
  }
  /// For what may as well go unanswered: it is not asked for as long.
  Result<Answer> QuickOrNot(int shard, Call call) const {
    return Ask(shard, call, std::min(options.answer_limit, kPatience));
  }
  /// The same. None, if there is no answer.
  std::vector<Member> QuickMembers(int shard, Call call) const;

  // Steps, one after the other on each ps. One that waits for others is given up at its deadline.

  /// Ends what is under way on that ps.
  void Begin(int shard, std::unique_ptr<Call> call);
  /// What Begin() began there; null: nothing.
  Call* under_way(int shard) const { return under_way_[static_cast<std::size_t>(shard)].get(); }
  /// Awaits it.
  Result<Answer> End(int shard);
  /// What is under way is received meanwhile, by a thread of its own: a ps must not wait until this
  /// worker listens.
  void BeginPump();
  /// On each, if it was not begun before.
  void BeginApplyRound(const RoundGrant& grant, Deadline deadline);
  /// Values that came with the updates are too old.
  void DropValues();
  /// Awaits all gradients that Stage() has sent.
  Status EndStages();
  /// Its answer is not awaited any more.
  void GiveUp(int shard);
  Result<Answer> Step(int shard, std::unique_ptr<Call> call);
  Result<Answer> Step(int shard, Kind kind, std::uint64_t number = 0,
                      Deadline deadline = Deadline::After({}));

  /// For both sides of one ps.
  Status EnterMode(int shard, const ModeWord& mode);

  /// What ps/0 said last. REQUIRES: it is not here.
  State state() const;
  std::uint64_t completed_round() const;
  /// Of this life; 0: it has not joined.
  std::uint32_t epoch() const;
  /// state() says so from now on, and with it every request.
  void Stop();
  MessageCount count() const;

  bool one_shard() const { return sessions_.size() == 1; }
  /// By messages.
  bool reaches(int shard) const { return sessions_[static_cast<std::size_t>(shard)] != nullptr; }
  bool lead_is_here() const { return !reaches(0); }
  /// It reaches ps/0 by messages, and no other.
  bool reaches_the_lead_alone() const { return !lead_is_here() && others_ == 0; }

  const StorePlan plan;
  const int worker;
  const ClientOptions options;
  WorkerCounters counters{};
  std::vector<RemoteShard*> shards;   ///< those that it reaches by messages
  std::shared_ptr<LocalWorker> life;  ///< on ps/0, where that is here
  /// The last round that this worker has asked to be counted in, whatever came of it; 0: none in
  /// this mode.
  std::uint64_t arriving = 0;
  std::uint64_t applying = 0;  ///< the last round whose update was begun

  /// What came of the update of reaches_the_lead_alone(), beside the values: for CountUpdate().
  std::optional<std::int64_t> counted;
  bool near_enough = false;  ///< what came of the last count: for AwaitSlowest()
  /// ssp: when ps/0 was asked last, all others had made the steps that the values after the next
  /// update must have. So they may be read with it, before it is counted.
  bool near_enough_next = false;

 private:
  static constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);
  void Heard(const Answer& answer);
  Result<Answer> Ask(int shard, Call& call, std::chrono::nanoseconds limit) const;

  int others_ = 0;                                  // sessions with other ps than ps/0
  std::vector<std::unique_ptr<Session>> sessions_;  // [shards]; null: here
  std::vector<std::unique_ptr<Call>> under_way_;    // [shards]
  Pump pump_;                                       // ends before these
  mutable std::mutex mutex_;
  State state_;
};

}  // namespace passel::fabric
