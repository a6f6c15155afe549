// remote_worker.h - what RemoteLead and RemoteShard of one worker share: its sessions, what ps/0
// said last, its own counters, and a step that is under way.
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
  /// For requests at any time. Its answer, in `call`.
  Status Quick(int shard, Call* call) const;
  /// For steps, which end what is under way on that ps.
  Status Step(int shard, Call* call, Deadline deadline);
  Status Step(int shard, Call* call) { return Step(shard, call, Deadline::After({})); }
  void StartStep(int shard, Call* call);
  void EndStep(int shard, Call* call);
  /// Of ps/0.
  State state() const;
  MessageCount count() const;

  bool one_shard() const { return sessions_.size() == 1; }

  const StorePlan plan;
  const int worker;
  const ClientOptions options;
  WorkerCounters counters{};
  ShardRules rules;  ///< of the mode that this worker goes by

  // Of one_shard(): that shard, what came of its update beside the values, and the round that is
  // under way.
  RemoteShard* only_shard = nullptr;
  std::optional<std::int64_t> counted;  ///< for CountUpdate()
  bool near_enough = false;             ///< for AwaitSlowest()
  std::unique_ptr<Call> round;

 private:
  void Heard(const Answer& answer);

  std::vector<std::unique_ptr<Session>> sessions_;
  mutable std::mutex mutex_;
  State state_;
  KnownBuckets known_;
};

}  // namespace passel::fabric
