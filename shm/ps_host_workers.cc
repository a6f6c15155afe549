// What a ps knows of its workers: it meets those that run already, and finds out who is gone.

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "shm/ps_host.h"
#include "store/membership.h"

namespace passel::shm {
namespace {

// A worker that listens answers at once, unless it is stopped.
constexpr std::chrono::seconds kMeetLimit{2};

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
  for (bool silent = true; silent && !limit.Expired();) {
    silent = false;
    for (auto link = links_.begin(); link != links_.end();) {
      const auto asked = link++;
      if (asked->met) continue;
      const bool answered = asked->client.Readable();
      silent = silent || !answered;
      const Status status = answered ? Meet(*asked) : Status();
      if (status.ok()) continue;
      const std::string who = options_.names(asked->worker);
      links_.erase(asked);
      if (status.code() == Code::kDeadlineExceeded) return status.WithContext(who);
      if (status.code() != Code::kUnavailable) return status;
    }
    if (silent) std::this_thread::sleep_for(std::chrono::milliseconds(2));
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

// With a worker that has answered our hello: its arena, its data, and that we are here.
Status PsHost::Meet(Link& link) {
  const Deadline limit = Deadline::After(kMeetLimit);
  PASSEL_RETURN_IF_ERROR(link.client.Finish(&token_, limit));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, link.client.GetArena(false, limit));
  if (fd && !arena_) {
    PASSEL_ASSIGN_OR_RETURN(Arena arena,
                            Arena::AdoptFrom(options_.names(link.worker), std::move(*fd),
                                             options_.me.job_id, options_.me.index));
    LogInfo("took the arena of a former ps/{} over from {}: {} updates are in it",
            options_.me.index, options_.names(link.worker),
            arena.memory().state->version.load(std::memory_order_relaxed));
    arena_ = std::move(arena);
    departures_.Look(arena_->memory());
  }
  PASSEL_ASSIGN_OR_RETURN(const std::string data, link.client.SayHere(limit));
  // What workers told a former life of ours they tell no more.
  if (data != "null") PASSEL_RETURN_IF_ERROR(KeepTold(link.worker, data));
  if (arena_) {
    const ShardMemory& memory = arena_->memory();
    link.identity = LoadIdentity(memory.tasks[link.worker], StateOf(memory, link.worker).epoch);
  }
  link.met = true;
  return {};
}

// A worker that had not answered does so, or the connection is over: we have asked nothing else.
void PsHost::ServeLink(std::list<Link>::iterator link) {
  const bool was_met = link->met;
  if (!was_met) {
    const Status status = Meet(*link);
    if (status.ok()) return;
    if (status.code() != Code::kUnavailable) {
      LogWarning("{}: {}", options_.names(link->worker), status.message());
    }
  }
  const int worker = link->worker;
  const ProcessIdentity identity = link->identity;
  links_.erase(link);
  if (was_met) MarkGone(worker, identity);
}

// Nobody waits for ever for a worker that was never started, or was refused: when none is running
// any more, the job is over.
void PsHost::GiveUpThoseWhoNeverCame() {
  const ShardMemory& memory = arena_->memory();
  const std::vector<Member> members = Membership(memory);
  const bool running = std::any_of(members.begin(), members.end(), [](const Member& m) {
    return m.phase == Phase::kRunning || m.phase == Phase::kJoining;
  });
  for (const Member& member : members) {
    if (member.phase == Phase::kExpected && !running) GiveUpExpecting(memory, member.worker);
    // In the modes with rounds the other workers may have given it up themselves.
    const bool gone = StateOf(memory, member.worker) == TaskState{0, Phase::kEvicted};
    if (!gone || Stopped() || !told_missing_.insert(member.worker).second) continue;
    LogWarning("{} did not start within {:g} s: the job goes on and ends without it",
               options_.names(member.worker),
               1e-9 * static_cast<double>(options_.start_limit.count()));
  }
}

// Those who have no connection to us, too.
void PsHost::LookAfterWorkers() {
  const ShardMemory& memory = arena_->memory();
  MarkDeadByKernel(memory);
  // Of one that is joining the kernel cannot be asked, and who died in it before this life of the
  // ps was there has no connection that ends.
  const std::int64_t now = MonotonicNs();
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    const auto is_it = [worker](int other) { return other == worker; };
    const bool connected = std::ranges::any_of(workers_, is_it, &Peer::index) ||
                           std::ranges::any_of(links_, is_it, &Link::worker);
    if (state.phase != Phase::kJoining || connected) {
      joiners_.erase(worker);
      continue;
    }
    Joiner& joiner = joiners_[worker];
    if (joiner.epoch != state.epoch) joiner = {state.epoch, now};
    if (now - joiner.since_ns > std::chrono::nanoseconds(kJoinPatience).count()) {
      MarkDead(memory, worker, state.epoch);
    }
  }
}

std::string PsHost::DescribeWorkers() const {
  std::string text;
  if (!arena_) return text;
  for (const Member& m : Membership(arena_->memory())) {
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
  const ShardMemory& memory = arena_->memory();
  if (worker >= memory.num_workers) return;
  const TaskState state = StateOf(memory, worker);
  const bool its_life =
      state.phase == Phase::kRunning
          ? LoadIdentity(memory.tasks[worker], state.epoch) == identity
          // Its identity is not written yet: ours, unless somebody else is about to join.
          : state.phase == Phase::kJoining &&
                std::ranges::find(workers_, worker, &Peer::index) == workers_.end();
  if (its_life) MarkDead(memory, worker, state.epoch);
}

}  // namespace passel::shm
