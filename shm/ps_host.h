// ps_host.h - what a ps task does on one host: it makes the arena of its shard, hands it to the
// workers, and looks after who is alive. It is not on the path of any update.
//
// A ps that comes back takes the arena of its former life over: from its supervisor, from the
// workers, or from ps/0, who hold it too.

#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "cluster/worker_names.h"
#include "shm/arena.h"
#include "shm/held_meeting.h"
#include "shm/rendezvous_client.h"
#include "shm/rendezvous_server.h"
#include "store/caretaker.h"
#include "store/shard_buffer.h"

namespace passel::shm {

struct PsHostOptions {
  Introduction me;  ///< its index is the shard
  int num_workers = 1;
  WorkerNames names = {};  ///< its chief proposes the plan
  HugePages huge_pages = HugePages::kOff;
  double memory_fraction = 1;  ///< of the free memory, at most so much for the arena
  /// Whether what else the job will need is there beside the arena that is about to be made.
  std::function<Status(const StorePlan&, const MemoryBudget&)> fits = {};
  /// A supervisor decides when the job is over, restarts workers and stops the ps. Otherwise the
  /// ps ends by itself when its workers are done.
  bool supervised = false;
  /// Why the number of workers stays what it is, for who asks for another; "": it may change.
  std::string fixed_workers = {};
  /// The data of the job as a JSON object, where the ps is told it at once; else workers tell it.
  std::string data = {};
  /// A worker that trains on other examples is refused: where they are says nothing about it, on
  /// several hosts.
  bool same_data = false;
  /// Workers of several hosts: where one has stopped the job, the end waits a moment for the news
  /// that one has failed since.
  bool hears_of_failures = false;
  /// "arena" of a status: what the arena tells of the job, a JSON object. Without it a status tells
  /// nothing of the arena.
  std::function<Json(const Arena&, const WorkerNames&)> describe = {};
  /// Called every now and then while there is an arena; false ends Serve().
  std::function<bool(const ShardMemory&)> look_on = {};
  /// Of ps/0: the arena of another ps that it holds, for that to go on with; -1: none.
  std::function<int(int shard)> held = {};
  /// The arena is about to be made anew: lets go of its memory, as far as this process holds it.
  std::function<void()> let_go = {};
  /// There is no ps: the job is one process, which has a thread of its own for this.
  bool alone = false;
  /// How long a ps without a supervisor waits for a worker that died, or was told to go, to be
  /// started again when nobody else is running.
  std::chrono::nanoseconds rejoin_limit = std::chrono::seconds(10);
  /// How long a ps without a supervisor waits for the chief's plan.
  std::chrono::nanoseconds start_wait = std::chrono::minutes(5);
};

class PsHost final : private RendezvousHandler {
 public:
  /// `listening` is the endpoint of this ps; `arena`, if given, that of a former life.
  PsHost(const PsHostOptions& options, const JobToken& token, FileDescriptor listening,
         std::optional<Arena> arena);

  /// Asks every worker that listens, and then ps/0, for the arena of a former life of this ps, and
  /// tells workers that the ps is here. For tasks without a supervisor. A worker that does not
  /// answer within 2 s is met when it does, in Serve(). Errors: kPermissionDenied,
  /// kFailedPrecondition as in RendezvousClient::Connect(); kDeadlineExceeded when nobody had an
  /// arena and somebody did not answer, who may have it.
  Status MeetWorkers(Deadline deadline);

  enum class End {
    kWorkersDone,   ///< all of them have finished
    kFewerDone,     ///< nobody came back, and only some have finished
    kNobodyDone,    ///< nobody came back, and none has finished
    kStopped,       ///< `stop_fd` became readable, or look_on was false
    kStoppedEarly,  ///< StopJob(), or a request for it, before there was an arena
    kNobodyCame,    ///< no chief proposed a plan within start_wait
    kGivenUp,       ///< the chief said that the job cannot go on, and the workers have heard
  };
  /// Serves until the job is over. `stop_fd` becomes readable when this ps shall end.
  End Serve(int stop_fd);

  /// Asks the workers to leave after their current step.
  void StopJob();
  bool Stopped() const;
  /// Of End::kGivenUp: what the chief said. kInternal.
  const Status& given_up() const { return given_up_; }
  /// Of another ps than ps/0, by hand, that is to end: serves on until ps/0 holds the arena, if
  /// that has values. Ends at the deadline, when `stop_fd` becomes readable, and when ps/0 is not
  /// there.
  void AwaitLead(int stop_fd, Deadline deadline);
  /// Null: there is none yet.
  const Arena* arena() const { return arena_ ? &*arena_ : nullptr; }
  /// A process that is that worker, or is about to be, has a connection with us.
  bool IsConnected(int worker) const;
  /// What the chief, or else the first worker, has told of its data, a JSON object; "": nothing.
  std::string DataTold() const { return data_told_.empty() ? "" : data_told_[0].Write(); }
  /// "worker/0 done, worker/1 dead"
  std::string DescribeWorkers() const;

 private:
  Status Admit(const Peer& peer) override;
  int ArenaFd(const Peer& peer) override;
  Status Answer(std::string_view request, const Peer& peer, Exchange& exchange) override;
  void Gone(const Peer& peer) override;
  void Closed(std::uint64_t connection) override { readers_.Closed(connection); }
  bool WantsPlanFrom(const Peer& peer) const;
  Status GetArena(const Peer& peer, Exchange& exchange);
  Status AcceptPlan(const Peer& peer, Exchange& exchange);
  Status Renew(const Peer& peer, Exchange& exchange);
  Status GiveUp(const Peer& peer, Exchange& exchange);
  bool AllHaveHeard() const;
  Status KeepData(const Peer& peer, Exchange& exchange);
  Status GetData(const Peer& peer, Exchange& exchange);
  Status DataTold(const Peer& peer, Exchange& exchange);
  Status ScoreTold(const Peer& peer, Exchange& exchange);
  Status ArenaIsKept(const Peer& peer, Exchange& exchange);
  Status GetStatus(const Peer& peer, Exchange& exchange);
  Status TakeSnapshot(const Peer& peer, Exchange& exchange);
  Json WhatIsTold() const;
  Status CopyTo(int memory);
  Status GetPlan(const Peer& peer, Exchange& exchange);
  Status Meet(const Peer& peer, Exchange& exchange);
  Status GoOn(const Peer& peer, Exchange& exchange);
  Status SetMode(const Peer& peer, Exchange& exchange);
  Status Scale(const Peer& peer, Exchange& exchange);
  Status Stop(const Peer& peer, Exchange& exchange);
  bool StillTellsFailure() const;
  bool StillHearsOfFailure();
  Status MakeArena(const Peer& peer, const std::string& plan_json);
  Status CheckNobodyTrains();
  Status KeepTold(int worker, const Json& about);
  void MarkGone(int worker, const ProcessIdentity& identity);
  struct Link {
    int worker;
    RendezvousClient client;
    ProcessIdentity identity = {};  // of the life that we met
    bool met = false;               // it has answered
  };
  Status Meet(Link& link);
  /// Errors: those of Meet(); kUnavailable: it is gone. The link is then no more.
  Status ServeLink(std::list<Link>::iterator link);
  Status AskLead(Deadline deadline);
  Status TakeOver(const std::string& giver, FileDescriptor fd);

  const PsHostOptions options_;
  const JobToken token_;
  std::optional<Arena> arena_;
  FileDescriptor arena_for_reading_;  // opened when the first evaluator asks
  // A supervisor holds it, or there is none. Before that nobody else gets it: were this ps to die,
  // they would train in an arena that no other life of it could find.
  bool arena_kept_;
  HeldMeeting readers_;  // who has the workers meet
  RendezvousServer server_;
  std::vector<Peer> workers_;  // connected to us
  std::list<Link> links_;      // our connections to workers' endpoints
  std::map<std::string, FileDescriptor> data_;
  std::vector<Json> data_told_;  // distinct objects, the chief's first
  bool stop_asked_ = false;
  bool lead_holds_ = false;  // ps/0 of a job by hand has this arena
  Status given_up_;          // what the chief said
  std::set<int> heard_;      // workers that know it
  Deadline linger_ = Deadline::After({});
  std::string failure_;  // of the task that made somebody ask for the end; "": of none
  std::optional<Deadline> tell_failure_until_, hear_failure_until_;
  const int copy_threads_ = CopyThreads();
  Caretaker caretaker_;
};

}  // namespace passel::shm
