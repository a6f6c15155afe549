// remote_worker.h - what RemoteLead and RemoteShard of one worker share: its sessions, what ps/0
// said last, its own counters, and the step that is under way on each ps.
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
#include "fabric/session.h"
#include "fabric/wire.h"
#include "store/shard_memory.h"
#include "store/shard_rules.h"

namespace passel::fabric {

class RemoteShard;

class RemoteWorker {
 public:
  RemoteWorker(const StorePlan& worker_plan, int index, std::vector<Connector> connectors,
               const ClientOptions& client_options);

  /// Joins on ps/0, and is represented on the others. Errors: kDataLoss when some of them have lost
  /// their values.
  Status Join();

  Session& session(int shard) { return *sessions_[static_cast<std::size_t>(shard)]; }
  /// For requests at any time.
  Result<Answer> Quick(int shard, Call call) const;
  /// None, if there is no answer.
  std::vector<Member> QuickMembers(int shard, Call call) const;

  // Steps, one after the other on each ps. One that waits for others is given up at its deadline.

  /// Ends what is under way on that ps.
  void Begin(int shard, std::unique_ptr<Call> call);
  /// What Begin() began there; null: nothing.
  Call* under_way(int shard) const { return under_way_[static_cast<std::size_t>(shard)].get(); }
  /// Awaits it.
  Result<Answer> End(int shard);
  /// Its answer is not awaited any more.
  void GiveUp(int shard);
  Result<Answer> Step(int shard, std::unique_ptr<Call> call);
  Result<Answer> Step(int shard, Kind kind, std::uint64_t number = 0,
                      Deadline deadline = Deadline::After({}));

  /// For both sides of one ps.
  Status EnterMode(int shard, const ModeWord& mode);

  /// What ps/0 said last.
  State state() const;
  /// state() says so from now on, and with it every request.
  void Stop();
  MessageCount count() const;

  bool one_shard() const { return sessions_.size() == 1; }

  const StorePlan plan;
  const int worker;
  const ClientOptions options;
  WorkerCounters counters{};
  ShardRules rules;                  ///< of the mode that this worker goes by
  std::vector<RemoteShard*> shards;  ///< [shards]
  /// The last round that this worker has asked to be counted in, whatever came of it; 0: none in
  /// this mode.
  std::uint64_t arriving = 0;

  // What came of the update of one_shard(), beside the values.
  std::optional<std::int64_t> counted;  ///< for CountUpdate()
  bool near_enough = false;             ///< for AwaitSlowest()

 private:
  void Heard(const Answer& answer);

  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Call>> under_way_;  // [shards]
  mutable std::mutex mutex_;
  State state_;
};

}  // namespace passel::fabric
