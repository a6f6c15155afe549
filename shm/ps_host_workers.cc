// What a ps knows of its workers: it meets those that run already, and finds out who is gone.

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "cluster/endpoint.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "shm/ps_host.h"
#include "store/membership.h"

namespace passel::shm {
namespace {

// A worker that listens answers at once, unless it is stopped.
constexpr std::chrono::seconds kMeetLimit{2};
// Of a job that was given up, for workers that are about to start.
constexpr std::chrono::seconds kLingerLimit{10};
constexpr std::chrono::milliseconds kLookForLead{100};

}  // namespace

Status PsHost::MeetWorkers(Deadline deadline) {
  const Deadline limit = deadline.Sooner(kMeetLimit);
  for (int worker = 0; worker < options_.num_workers; ++worker) {
    Result<RendezvousClient> client =
        RendezvousClient::Begin(options_.me, Role::kWorker, worker, limit);
    if (client.status().code() == Code::kNotFound) continue;     // not started yet
    if (client.status().code() == Code::kUnavailable) continue;  // it ended just now
    if (!client.ok()) return client.status();
    links_.push_back({worker, std::move(*client)});
  }
  Patience patience(limit);
  bool silent = false;
  do {
    silent = false;
    for (auto link = links_.begin(); link != links_.end();) {
      const auto asked = link++;
      if (asked->met) continue;
      const bool answered = asked->client.Readable();
      silent = silent || !answered;
      const std::string who = options_.names(asked->worker);
      const Status status = answered ? ServeLink(asked) : Status();
      if (status.code() == Code::kDeadlineExceeded) return status.WithContext(who);
      if (!status.ok() && status.code() != Code::kUnavailable) return status;
    }
  } while (silent && patience.Again(std::chrono::milliseconds(2)));
  if (!arena_ && options_.me.index != 0) {
    const Status asked = AskLead(Deadline::After(kMeetLimit));
    if (!asked.ok())
      LogDebug("ps/0 has no arena for ps/{}: {}", options_.me.index, asked.message());
  }
  for (const Link& link : links_) {
    if (link.met) continue;
    const std::string who = fmt::format("{} (process {}) does not answer",
                                        options_.names(link.worker), link.client.server_pid());
    if (!arena_) {
      return DeadlineExceeded(fmt::format(
          "{}, and nobody else has the arena of a former ps/{}: it may hold the only one. If it is "
          "stopped, continue or end it, then start this ps again",
          who, options_.me.index));
    }
    LogWarning("{}: ps/{} goes on with the others until it does", who, options_.me.index);
  }
  return {};
}

// ps/0 of a job by hand holds the arenas of all.
Status PsHost::AskLead(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(RendezvousClient client,
                          RendezvousClient::Connect(options_.me, Role::kPs, 0, &token_, deadline));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, client.GetArena(false, deadline));
  if (!fd) return NotFound("it holds none");
  return TakeOver("ps/0", std::move(*fd));
}

Status PsHost::TakeOver(const std::string& giver, FileDescriptor fd) {
  PASSEL_ASSIGN_OR_RETURN(
      Arena arena, Arena::AdoptFrom(giver, std::move(fd), options_.me.job_id, options_.me.index));
  LogInfo("took the arena of a former ps/{} over from {}: {} updates are in it", options_.me.index,
          giver, arena.memory().state->version.load(std::memory_order_relaxed));
  arena_ = std::move(arena);
  caretaker_.TellDepartures(arena_->memory());
  return {};
}

// With a worker that has answered our hello: its arena, its data, and that we are here.
Status PsHost::Meet(Link& link) {
  const Deadline limit = Deadline::After(kMeetLimit);
  PASSEL_RETURN_IF_ERROR(link.client.Finish(&token_, limit));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, link.client.GetArena(false, limit));
  if (fd && !arena_) PASSEL_RETURN_IF_ERROR(TakeOver(options_.names(link.worker), std::move(*fd)));
  PASSEL_ASSIGN_OR_RETURN(const Json data, link.client.SayHere(limit));
  // What workers told a former life of ours they tell no more.
  if (data.object() != nullptr) PASSEL_RETURN_IF_ERROR(KeepTold(link.worker, data));
  if (arena_) {
    const ShardMemory& memory = arena_->memory();
    link.identity = LoadIdentity(memory.tasks[link.worker], StateOf(memory, link.worker).epoch);
  }
  link.met = true;
  return {};
}

// A worker that had not answered does so, or the connection is over: we have asked nothing else.
Status PsHost::ServeLink(std::list<Link>::iterator link) {
  const bool was_met = link->met;
  const Status status = was_met ? Unavailable("it is gone") : Meet(*link);
  if (status.ok()) return {};
  const Link over = std::move(*link);
  links_.erase(link);
  if (was_met) MarkGone(over.worker, over.identity);
  return status;
}

Status PsHost::GiveUp(const Peer& peer, Exchange& exchange) {
  if (options_.supervised) return PermissionDenied("nobody gives a job with a supervisor up");
  heard_.insert(peer.index);
  if (peer.index != options_.names.chief) return {};
  PASSEL_ASSIGN_OR_RETURN(const std::string why, exchange.Argument(std::string()));
  given_up_ = Internal(why);
  linger_ = Deadline::After(kLingerLimit);
  return {};
}

// All that somebody expects.
bool PsHost::AllHaveHeard() const {
  if (!arena_) return false;
  return std::ranges::all_of(Membership(arena_->memory()), [this](const Member& member) {
    return member.phase == Phase::kSpare || heard_.contains(member.worker);
  });
}

void PsHost::AwaitLead(int stop_fd, Deadline deadline) {
  const auto has_values = [this] {
    return arena_ && arena_->memory().state->initialized.load(std::memory_order_acquire) != 0;
  };
  while (!lead_holds_ && has_values() && !deadline.Expired() &&
         MayListen(options_.me.job_id, Role::kPs, 0)) {
    if (!server_.Poll({stop_fd}, deadline.Sooner(kLookForLead)).empty()) return;
  }
}

bool PsHost::IsConnected(int worker) const {
  const auto is_it = [worker](int other) { return other == worker; };
  return std::ranges::any_of(workers_, is_it, &Peer::index) ||
         std::ranges::any_of(links_, is_it, &Link::worker);
}

std::string PsHost::DescribeWorkers() const {
  std::string text;
  if (!arena_) return text;
  for (const Member& m : Membership(arena_->memory())) {
    if (m.phase == Phase::kSpare) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", options_.names(m.worker), PhaseInWords(m));
  }
  return text;
}

void PsHost::Gone(const Peer& peer) {
  if (peer.role != Role::kWorker) return;
  std::erase_if(workers_, [&](const Peer& other) {
    return other.index == peer.index && other.identity == peer.identity;
  });
  MarkGone(peer.index, peer.identity);
}

void PsHost::MarkGone(int worker, const ProcessIdentity& identity) {
  if (!arena_) return;
  const bool another = std::ranges::find(workers_, worker, &Peer::index) != workers_.end();
  passel::MarkGone(arena_->memory(), worker, identity, another);
}

}  // namespace passel::shm
