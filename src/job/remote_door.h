// remote_door.h - what a ps of a job on several hosts does for the workers of other hosts: it opens
// a port, tells them about the job, and gives each a proxy in its arena (fabric/server.h). ps/0
// comes in, too, where ps on several hosts write a checkpoint (job/shard_saver.h).
//
// Somebody who is no task, but has the token, may ask for the job's status, change and stop it
// (job/far_job.h); an evaluator is sent copies of the values (job/remote_observer.h).
//
// Of the ps of this process it asks as a worker of this host would: by its abstract socket. So each
// worker of another host has a stand-in there while its control connection lives.
//
// Threads    Look(), LetGo() and those that wait by one thread; it has others of its own.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "fabric/control/control_server.h"
#include "fabric/server.h"
#include "job/remote_batches.h"
#include "job/remote_errand.h"
#include "job/remote_facts.h"
#include "job/save_wishes.h"
#include "job/shard_saver.h"
#include "job/task.h"
#include "shm/arena.h"
#include "shm/rendezvous_client.h"

namespace passel::job {

class RemoteDoor final : private fabric::ControlHandler {
 public:
  /// Listens at the address that the lists have for this ps, where its name is this host.
  /// `checkpoints`: the folder of --checkpoint_dir, "": none. `wishes`: of ps/0, for whoever saves
  /// there, else null; they are closed when this ends. `task` outlives it. REQUIRES:
  /// task.several_hosts. Errors: kInvalidArgument for an address that this host has not, or that no
  /// other host reaches; kAlreadyExists for a port that is taken; those of LookUp().
  static Result<std::unique_ptr<RemoteDoor>> Open(const Task& task, const std::string& checkpoints,
                                                  std::shared_ptr<SaveWishes> wishes,
                                                  Deadline deadline);
  ~RemoteDoor() override;

  /// To be called every now and then: serves this arena, of which it keeps a mapping of its own.
  void Look(const shm::Arena& arena);
  /// Nobody had the values of a former life of this ps: whoever trained on them is told so, until
  /// Look() is called.
  void BeganAnew();
  /// Tells all guests that the job was stopped: who has not joined yet ends, and says so.
  void SayStopped();
  /// Serves nothing any more, until the next Look().
  void LetGo();
  /// Whether that worker has come in by it, and is there.
  bool IsGuest(int worker);
  /// The job is over: until no worker of another host is connected, so that they have heard how it
  /// ended.
  void AwaitGuests(Deadline deadline);
  /// After that, and after the last save, which waits for none of them: until no evaluator is
  /// connected, so that they have read the last values.
  void AwaitEvaluators(Deadline deadline);
  /// Of another ps than ps/0: until that has saved the last checkpoint, or has been gone for 15 s.
  /// `asked`: this task was told to go, and waits only for a save that is under way, or begins
  /// within 3 s. Ends when `hurry`, which is called often, says so. False: a part is still being
  /// written, and this must not be destroyed.
  bool AwaitSaver(bool asked, Deadline deadline, const std::function<bool()>& hurry);

 private:
  struct Guest {
    int worker = 0;
    bool told = false;                              // that it has come in
    std::mutex mutex;                               // one errand at a time
    std::optional<shm::RendezvousClient> stand_in;  // under mutex
  };
  struct Served {
    Served(shm::Arena given, const WorkerNames& names)
        : arena(std::make_shared<const shm::Arena>(std::move(given))),
          sharing(arena->memory(), names) {}
    const std::shared_ptr<const shm::Arena> arena;
    RemoteSharing sharing;                 // of an epoch, on ps/0; under mutex_
    std::optional<fabric::Server> server;  // ends before its memory is unmapped
  };
  using Places = std::vector<FileDescriptor>;  // that it holds: ReservePlace()
  struct Talk {
    std::thread thread;
    bool over = false;
  };

  RemoteDoor(const Task& task, const std::string& checkpoints, std::shared_ptr<SaveWishes> wishes);
  Status Admit(std::uint64_t life, const fabric::TaskFacts& peer, fabric::TaskFacts* mine) override;
  void Serve(std::uint64_t life, const fabric::TaskFacts& peer,
             std::unique_ptr<fabric::Pipe> pipe) override;
  void Gone(std::uint64_t life, const fabric::TaskFacts& peer, const Status& why) override;
  /// Runs it on a thread of its own, which is joined at the latest when this ends.
  void Talking(std::function<void()> talk_with);
  void RunErrands(const std::function<Result<Errand>(const Errand&)>& answer, fabric::Pipe& pipe);
  Result<Errand> Answer(Guest& guest, const Errand& errand);
  Result<Errand> AnswerSaver(const Errand& errand);
  Result<Errand> AnswerAsker(std::uint64_t life, const Errand& errand);
  Result<Errand> Reserve(std::uint64_t life, const Errand& errand);
  Result<Errand> Save(std::uint64_t life, const Errand& errand);
  Result<Errand> AnswerWatcher(const Errand& errand);
  void TellOfLeftOpen();
  bool IsThere(int worker) const;
  bool IsServed(int worker) const;
  Result<Errand> TellPlan(shm::RendezvousClient& ps);
  Result<Errand> TellBeginning();
  Status Begin(std::int64_t steps);
  Status TakeMetrics(int worker, const Json& values);

  const Task& task_;
  const int shard_;
  const std::string checkpoints_;
  const std::shared_ptr<SaveWishes> wishes_;  // null: of another ps than ps/0
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  bool anew_ = false;                                       // no values, and nobody has them
  std::map<std::uint64_t, std::shared_ptr<Guest>> guests_;  // by life
  std::set<std::uint64_t> savers_;                          // lives of ps/0
  std::map<std::uint64_t, Places> askers_;                  // of Role::kControl
  std::set<std::uint64_t> wishers_;                         // of these: for a checkpoint
  std::set<std::uint64_t> watchers_;                        // of evaluators
  bool over_ = false;                                       // the job
  bool dismissed_ = false;                                  // by ps/0: the job is over
  std::size_t tell_left_open_ = 8;                          // once there are so many
  ShardSaver saver_;
  std::list<Talk> talks_;
  std::unique_ptr<Served> served_;
  std::unique_ptr<fabric::ControlServer> door_;  // last: it calls us
};

}  // namespace passel::job
