// remote_batches.h - the shared batches of a job (store/shared_batches.h) for a worker on another
// host than ps/0: each is asked for by a message.
//
//   {"ask":"batch","examples","batch_size","order","end","sharing","number","want":bool,"done":bool}
//                                       -->      {"ok":true[,"batch":n|"held_by":k]}
//
// What it holds stands in its slot on ps/0, as that of a worker there. `number` counts the
// questions of one sharing: one that is repeated, because a connection was cut, gets the same
// answer, so that no batch is given twice for it. That a step was counted is told with the next
// question.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/json.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "job/remote_job.h"
#include "store/batch_source.h"
#include "store/shared_batches.h"

namespace passel::job {

/// Of the worker.
class RemoteBatches final : public BatchSource {
 public:
  /// `job` outlives it. `come_in` has ps/0 know this life of the worker again, where that was
  /// started anew. Errors: kInvalidArgument, as SharedBatches::Create(); those of the connection.
  static Result<std::unique_ptr<RemoteBatches>> Create(RemoteJob& job, const BatchRules& rules,
                                                       std::uint64_t end,
                                                       std::function<void()> come_in);
  Result<std::optional<std::uint64_t>> Next() override;
  std::optional<int> StillHeldBy() override { return held_by_; }
  void Done() override { done_ = true; }
  void End() override;

 private:
  RemoteBatches(RemoteJob& job, const BatchRules& rules, std::uint64_t end,
                std::function<void()> come_in);
  Json Question(bool want) const;
  Result<std::optional<std::uint64_t>> Ask(bool want);

  RemoteJob& job_;
  const BatchRules rules_;
  const std::uint64_t end_, sharing_;
  const std::function<void()> come_in_;
  std::uint64_t number_ = 0;
  std::optional<int> held_by_;
  bool done_ = false;  // ps/0 is still to be told
};

/// Of ps/0. Used by one thread at a time.
class RemoteSharing {
 public:
  RemoteSharing(const ShardMemory& lead, WorkerNames names)
      : lead_(lead), names_(std::move(names)) {}
  /// To a question of that worker. Errors: those of SharedBatches; kDataLoss.
  Result<Json> Answer(int worker, const Json& question);

 private:
  struct Worker {
    std::uint64_t sharing = 0, number = 0;
    std::uint32_t epoch = 0;
    std::unique_ptr<SharedBatches> batches;
    Json answer;  // to the question of that number
  };
  const ShardMemory lead_;
  const WorkerNames names_;
  std::map<int, Worker> workers_;
};

}  // namespace passel::job
