// attached_job.h - how a worker meets the ps tasks of its host and opens the store they lend.
//
//   Connect        to every ps, however long it takes them to start (bounded)
//   WaitForArenas  until the chief has proposed its plan; the chief itself does not wait
//   GetData, OfferData   one read-only copy of the data set for all tasks
//   MapArenas      the chief proposes, everybody compares
//   Open           the same, and joins: its ParameterStore
//
// A worker without a supervisor also listens itself: nobody else can take its identity, a ps that
// comes back finds its arena here, and a ps that starts later says so.

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "cluster/patience.h"
#include "shm/arena.h"
#include "shm/rendezvous_client.h"
#include "shm/rendezvous_server.h"
#include "store/parameter_store.h"
#include "store/wait_options.h"

namespace passel::shm {

struct AttachOptions {
  Introduction me;  ///< its index is the worker
  int num_shards = 1;
  /// Shards whose ps are on other hosts: these are not met.
  std::set<int> elsewhere = {};
  bool supervised = false;
  /// Listens under no name: nobody finds this worker, not even a ps that comes back.
  bool use_existing_servers = false;
  /// How long to wait for the ps tasks and for the chief.
  std::chrono::nanoseconds start_wait = std::chrono::minutes(5);
  /// Every 10 s, with each of them that is still waited for: "ps/0". May be empty.
  std::function<void(const std::string& task)> on_waiting = {};
  WaitOptions waits;  ///< the chief of its `names` proposes the plan
};

class AttachedJob {
 public:
  /// Errors: kDeadlineExceeded, naming the ps that is missing; kAlreadyExists when this worker is
  /// running already; as RendezvousClient::Connect().
  static Result<std::unique_ptr<AttachedJob>> Connect(const AttachOptions& options,
                                                      const JobToken& token);
  ~AttachedJob();

  /// Maps the arenas. For the chief it returns at once, whether there are any or not.
  Status WaitForArenas();
  bool has_arena(int shard) const { return arenas_[static_cast<std::size_t>(shard)] != nullptr; }
  bool has_arenas() const {
    return std::all_of(ps_.begin(), ps_.end(),
                       [this](const auto& ps) { return has_arena(ps.first); });
  }
  /// From or to ps/0, which is here. `key` names the data set: equal keys, equal contents.
  Result<std::optional<FileDescriptor>> GetData(const std::string& key);
  Status OfferData(const std::string& key, int fd);
  /// Tells ps/0, if it is here, and each later life of it, which data this worker trains on: a JSON
  /// object. REQUIRES: there is no supervisor, who has told it.
  Status TellData(const std::string& json);

  /// Offers data to ps/0 now, and with OfferAgain() to each later life of it: a ps that is started
  /// again has none. For what only tasks hold.
  void KeepOffering(const std::string& key, FileDescriptor fd);
  /// Notices that ps/0 is gone, connects to its next life, and offers what is to be kept offered.
  /// Cheap while it is there; otherwise answers within a second, done or not: call it again.
  void OfferAgain();

  /// Errors: kInvalidArgument when `plan` differs from the arena's, naming the first difference;
  /// kResourceExhausted when the ps has too little memory for it.
  Status MapArenas(const StorePlan& plan);
  /// REQUIRES: all ps are here. Errors: those of MapArenas() and OpenStore().
  Result<std::unique_ptr<ParameterStore>> Open(const StorePlan& plan);
  /// A store is open on the arenas, and nothing more is asked of the ps: from now on it is noticed
  /// when one of them is gone. Open() does this.
  void WatchPs();

  /// How many global steps the ps know that have values. REQUIRES: has_arenas().
  std::int64_t StepsLeft() const;
  /// For the chief, when some ps have lost their values, and others have not.
  /// These make their arenas anew, and ours are unmapped: another AttachedJob is to follow. Errors:
  /// as Open(); kFailedPrecondition while a worker still trains in one of them.
  Status Renew(const StorePlan& plan);

  /// The chief tells the ps, and by them all workers, why the job cannot go on; other workers tell
  /// that they have heard. What a ps does not answer within 2 s is left to it.
  void GiveUp(const std::string& why);

  /// How long the ps that has been gone longest is gone; zero while all are there. Workers with a
  /// supervisor never miss one: it starts the ps again.
  std::chrono::nanoseconds PsMissingFor() const;
  /// REQUIRES: has_arenas().
  const Arena& arena(int shard) const { return *arenas_[static_cast<std::size_t>(shard)]; }

 private:
  class Attendant;
  explicit AttachedJob(const AttachOptions& options, const JobToken& token);
  Status Meet(int shard, Patience& patience);
  /// Takes the arena of that shard: from here on a ps that comes back finds it with us.
  Status Adopt(FileDescriptor fd, std::size_t shard);

  const AttachOptions options_;
  const JobToken token_;
  std::map<int, RendezvousClient> ps_;          // by shard: those that are here
  std::map<std::string, FileDescriptor> kept_;  // by key
  bool offered_ = true;                         // all of these, to this life of ps/0
  std::vector<std::unique_ptr<Arena>> arenas_;  // [num_shards]; null: not yet, or elsewhere
  std::unique_ptr<Attendant> attendant_;
};

}  // namespace passel::shm
