// rendezvous_client.h - one connection to a task that listens, and what can be said on it.
//
// Every message is one JSON object in one packet of a SOCK_SEQPACKET socket in the abstract name
// space (cluster/endpoint.h), with descriptors beside it. The server checks the peer's uid before
// it reads anything; then comes the handshake (cluster/handshake.h).
//
// Then requests {"ask":NAME, ...} with no other members than these, each answered in turn by
// {"ok":true, ...} or an error:
//
//   arena       "wait"      fd of the arena, of an evaluator read-only; or {"need_plan":true}; or
//                           nothing: there is none
//   plan        fd          fd of the arena that is made from it; of the chief
//   renew       fd          the same, in place of an arena that there is; of the chief
//   give_up     "why"       of the chief of a job by hand: it cannot go on. Who asks this ps hears
//                           it; the ps ends when all have. Of other workers: they have
//   offer_data  "key", fd
//   get_data    "key"       fd, or nothing: nobody has offered it
//   tell_data   "about":{}  which data this worker trains on
//   tell_score  "score"     {"accuracy", "global_step"}: how good an evaluator finds the values, by
//                           validation images; of ps/0
//   here                    a ps: it listens now; {"data"}: what this worker trains on, or null
//   kept                    the supervisor holds the arena now
//   status                  fd of a JSON object; its "data" is what was told first (the chief's, if
//                           that told), with what else was told in its list "also"; null: nothing
//   snapshot    "values"    {"chief"}, and if there are values "snapshot":true, "global_step", ...,
//                           "data" as in a status, and, if asked for, fds of values and plan
//                           With an fd of sealed memory the values are copied to that, and the
//                           answer has none: for who has the workers meet meanwhile
//   get_plan                fd of the plan, or nothing: there is none yet
//   meet                    {"global_step"}, once all workers wait between two steps; they do until
//                           go_on, or 2 s after the last meet. Of ps/0 alone (shm/held_meeting.h)
//   go_on                   {"gathering_ns", "held_ns"}: what it has cost; or an error: what was
//   read
//                           in between is not of one step
//   set_mode    "mode"      {"number"}, see store/mode_change.h; of ps/0 alone
//   scale       "workers"   {"number"}, see store/scale.h; of ps/0 alone
//   stop
//
// Who may ask what is said in rendezvous_server.cc. A connection of role "control" proves its uid
// alone, and may ask for all from status on.
//
// The connection then stays open: its end is the sign that the client died or left.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/json.h"
#include "base/status.h"
#include "cluster/endpoint.h"
#include "cluster/handshake.h"
#include "cluster/job_token.h"
#include "store/consistent_copy.h"
#include "store/mode.h"
#include "store/shard_snapshot.h"

namespace passel::shm {

/// The most bytes of what tell_data tells.
inline constexpr std::size_t kMaxDataText = 10'000;

/// A ps's answer to snapshot: a copy of the values of its shard.
struct ShardSnapshot : ShardCopy {
  bool there = false;         ///< else the first values are not written
  std::string chief;          ///< who writes them
  FileDescriptor plan;        ///< ToJson(StorePlan), constant
  std::string data = "null";  ///< JSON, as in a status; of ps/0
  /// Age of the values, where they are a shadow (StorePlan::on_device); of ps/0. The steps are
  /// then those of the shadow.
  std::optional<std::int64_t> shadow_age_ns;
};

/// Move-only; one thread at a time. Its destructor closes the connection, which tells the server
/// that this task is gone.
class RendezvousClient {
 public:
  /// Connects to the endpoint `role`/`index` of the job and proves both sides. For Role::kControl
  /// no token is needed (nullptr).
  /// Errors: kNotFound when nobody listens; kPermissionDenied: another user's process holds the
  /// name (with its pid and uid), or the token is another one; kFailedPrecondition: other hosts or
  /// another build; kAlreadyExists: that identity is taken; kDeadlineExceeded; kUnavailable.
  static Result<RendezvousClient> Connect(const Introduction& me, Role role, int index,
                                          const JobToken* token, Deadline deadline);
  /// As Role::kControl to a ps of that job.
  static Result<RendezvousClient> Control(const std::string& job_id, int ps, Deadline deadline);
  /// Connect() in two halves, for a server that may be stopped: the first waits for no answer of
  /// it. Once fd() is readable the second need not wait long.
  static Result<RendezvousClient> Begin(const Introduction& me, Role role, int index,
                                        Deadline deadline);
  Status Finish(const JobToken* token, Deadline deadline);

  RendezvousClient(RendezvousClient&&) noexcept = default;
  RendezvousClient& operator=(RendezvousClient&&) noexcept = default;

  /// The arena's descriptor; nullopt when there is none yet and either `wait` is false, or a plan
  /// is needed from us (`*need_plan` is then true; only the chief is ever asked). While it waits,
  /// `still_waiting` is called every ten seconds.
  Result<std::optional<FileDescriptor>> GetArena(bool wait, Deadline deadline,
                                                 bool* need_plan = nullptr,
                                                 std::function<void()> still_waiting = {});
  /// Proposes the plan; returns the arena made from it.
  Result<FileDescriptor> ProposePlan(const std::string& plan_json, Deadline deadline);
  /// The same in place of an arena whose values are of no use any more. Errors: also
  /// kFailedPrecondition, naming a worker that still trains in it.
  Result<FileDescriptor> Renew(const std::string& plan_json, Deadline deadline);
  /// The chief of a job by hand says in one sentence why that cannot go on: workers that ask this
  /// ps from now on get it as kInternal. Another worker says that it has heard.
  Status GiveUp(const std::string& why, Deadline deadline);
  Status OfferData(const std::string& key, int fd, Deadline deadline);
  /// nullopt: nobody has offered it.
  Result<std::optional<FileDescriptor>> GetData(const std::string& key, Deadline deadline);
  /// A worker says which data it trains on. Errors: kDataLoss unless `about` is an object,
  /// kInvalidArgument if that has more than kMaxDataText bytes.
  Status TellData(const Json& about, Deadline deadline);
  /// An evaluator says how good the values of that step are.
  Status TellScore(double accuracy, std::int64_t global_step, Deadline deadline);
  /// A ps tells a worker that it listens now. Returns the data that this trains on: an object, or
  /// null: not known yet.
  Result<Json> SayHere(Deadline deadline);
  /// The supervisor tells a ps that it holds the arena, which may now be handed to others.
  Status SayKept(Deadline deadline);
  /// A copy of the values of this ps, or, without `values`, only how far training has come. See
  /// shm/snapshot.h.
  Result<ShardSnapshot> GetSnapshot(bool values, Deadline deadline);
  /// The plan as JSON in constant memory; invalid: there is none yet.
  Result<FileDescriptor> GetPlan(Deadline deadline);
  /// Returns when all workers wait between two steps: the global step. Again: they wait on. Of
  /// ps/0. Errors: those of shm::HeldMeeting; kDeadlineExceeded.
  Result<std::int64_t> Meet(Deadline deadline);
  /// They go on. Errors: kAborted: they did so before.
  Result<MeetingCost> GoOn(Deadline deadline);
  /// Asks this ps to copy its values to `memory`, of CreateMemoryFile(). CopyIsMade() waits for it.
  Status BeginCopy(int memory, Deadline deadline);
  Status CopyIsMade(Deadline deadline);
  /// The job's state as JSON text.
  Result<std::string> GetStatus(Deadline deadline);
  /// Asks ps/0 for another mode. Returns its number. Errors: as WishForMode() in
  /// store/mode_change.h; kFailedPrecondition before the chief has proposed its plan.
  Result<std::uint32_t> SetMode(const ModeSetting& setting, Deadline deadline);
  /// Asks ps/0 for another number of workers. Returns the number of the wish. Errors: as
  /// WishForWorkers() in store/scale.h; kFailedPrecondition where no supervisor could start them,
  /// or the variables have no values yet.
  Result<std::uint32_t> Scale(std::int64_t workers, Deadline deadline);
  /// `failure`: a sentence about the task that failed and so ends the job; "": somebody wishes it.
  Status Stop(Deadline deadline, const std::string& failure = {});

  /// For poll(2): readable when there is an answer, or the other end is gone.
  int fd() const { return server_.socket.get(); }
  bool Readable() const;
  pid_t server_pid() const { return server_.pid; }

 private:
  RendezvousClient(EndpointConnection server, const Introduction& me);
  Result<FileDescriptor> SendPlan(std::string_view request, const std::string& plan_json,
                                  Deadline deadline);
  EndpointConnection server_;
  Role my_role_;
  ClientHandshake handshake_;
  std::string server_name_;  // for messages
};

}  // namespace passel::shm
