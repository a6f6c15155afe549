#include "fabric/remote_worker.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "fabric/remote_shard.h"
#include "store/open_store.h"

namespace passel::fabric {

RemoteWorker::RemoteWorker(const StorePlan& worker_plan, int index,
                           std::vector<Connector> connectors, const ClientOptions& client_options)
    : plan(worker_plan), worker(index), options(client_options) {
  Hello hello;
  hello.plan_hash = plan.Hash();
  hello.worker = worker;
  hello.pid = ::getpid();
  hello.mode = Hello::kNoMode;
  hello.stall_limit_ns = options.waits.stall_limit.count();
  hello.start_wait_ns = options.waits.start_wait.count();
  hello.on_stall = options.waits.on_stall;
  hello.chief = options.waits.names.chief;
  hello.chief_name = options.waits.names.chief_name;
  for (Connector& connector : connectors) {
    hello.shard = static_cast<std::int32_t>(sessions_.size());
    if (options.here.memory.contains(hello.shard)) {
      sessions_.push_back(nullptr);
      continue;
    }
    const bool lead = hello.shard == 0;
    others_ += lead ? 0 : 1;
    sessions_.push_back(std::make_unique<Session>(fmt::format("ps/{}", hello.shard),
                                                  std::move(connector), hello, options.session,
                                                  [this, lead](const Answer& answer) {
                                                    if (lead) Heard(answer);
                                                  }));
  }
  under_way_.resize(sessions_.size());
}

Status RemoteWorker::Join() {
  for (std::size_t s = 0; s < sessions_.size(); ++s) {
    if (sessions_[s] == nullptr) continue;
    if (s > 0) sessions_[s]->SetEpoch(epoch());
    PASSEL_ASSIGN_OR_RETURN(const Answer answer,
                            sessions_[s]->Open(Deadline::After(options.answer_limit)));
    if (s == 0 && answer.report) TakeReport(*answer.report, &counters);
  }
  if (one_shard()) return {};
  return CheckOneBeginning([this]() -> Result<std::vector<ShardBeginning>> {
    std::vector<ShardBeginning> seen(sessions_.size());
    for (std::size_t s = sessions_.size(); s-- > 0;) {
      if (const auto here = options.here.memory.find(static_cast<int>(s));
          here != options.here.memory.end()) {
        seen[s] = LookAtShard(here->second);
        continue;
      }
      PASSEL_ASSIGN_OR_RETURN(const Answer answer, Quick(static_cast<int>(s), Call(Kind::kAsk)));
      seen[s] = {answer.state.initialized, answer.number, answer.version, answer.state.global_step};
    }
    return seen;
  });
}

void RemoteWorker::Heard(const Answer& answer) {
  const std::lock_guard lock(mutex_);
  const State& heard = answer.state;
  // Answers may overtake each other.
  if (std::pair(heard.epoch, heard.serial) <= std::pair(state_.epoch, state_.serial)) return;
  const bool stopped = state_.stopped;
  state_ = heard;
  state_.stopped |= stopped;
  TakeEngineCounts(heard.engine, &counters);
}

State RemoteWorker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::uint64_t RemoteWorker::completed_round() const {
  if (life == nullptr) return state().completed_round;
  return life->lead().state->completed_round.load(std::memory_order_acquire);
}

std::uint32_t RemoteWorker::epoch() const {
  return life != nullptr ? life->epoch() : state().epoch;
}

void RemoteWorker::Stop() {
  {
    const std::lock_guard lock(mutex_);
    state_.stopped = true;
  }
  for (const auto& session : sessions_) {
    if (session != nullptr) session->StopToo();
  }
}

MessageCount RemoteWorker::count() const {
  MessageCount count;
  for (const auto& session : sessions_) {
    if (session == nullptr) continue;
    count.sent += session->sent();
    count.received += session->received();
    count.gone = std::max(count.gone, session->gone_for());
  }
  return count;
}

Result<Answer> RemoteWorker::Ask(int shard, Call& call, std::chrono::nanoseconds limit) const {
  PASSEL_RETURN_IF_ERROR(
      sessions_[static_cast<std::size_t>(shard)]->Ask(&call, Deadline::After(limit)));
  return std::move(call.answer);
}

std::vector<Member> RemoteWorker::QuickMembers(int shard, Call call) const {
  Result<Answer> answer = QuickOrNot(shard, std::move(call));
  return answer.ok() ? std::move(answer->members) : std::vector<Member>();
}

void RemoteWorker::Begin(int shard, std::unique_ptr<Call> call) {
  GiveUp(shard);  // the other side does, too, when it sees a later one
  const Kind kind = call->request.kind;
  // What is asked for its cursor must not overwrite it.
  if (shard == 0 && kind != Kind::kRestore && kind != Kind::kAwaitInitialized) {
    call->request.report = MakeReport(counters);
    call->request.flags |= kReport;
  }
  auto& place = under_way_[static_cast<std::size_t>(shard)];
  place = std::move(call);
  session(shard).Start(place.get());
}

void RemoteWorker::BeginPump() {
  std::deque<Pump::Item> items;
  for (std::size_t s = 0; s < sessions_.size(); ++s) {
    if (under_way_[s] != nullptr) items.push_back({sessions_[s].get(), under_way_[s].get()});
  }
  pump_.Begin(items);
}

void RemoteWorker::GiveUp(int shard) {
  auto& place = under_way_[static_cast<std::size_t>(shard)];
  if (place == nullptr) return;
  pump_.Release(place.get());
  session(shard).Drop(place.get());
  place.reset();
}

Result<Answer> RemoteWorker::End(int shard) {
  auto& place = under_way_[static_cast<std::size_t>(shard)];
  // The other side says what happened at the deadline. To send it may have taken longer.
  const Deadline begun = Deadline::At(std::max(place->deadline.at_ns(), MonotonicNs()));
  const Status status =
      session(shard).Await(place.get(), Deadline::At(begun.at_ns() + options.answer_limit.count()));
  pump_.Release(place.get());
  session(shard).Drop(place.get());
  const std::unique_ptr<Call> ended = std::move(place);
  if (ended->finished && ended->answer.report) TakeReport(*ended->answer.report, &counters);
  if (status.ok()) return std::move(ended->answer);
  // What was begun on the others too must not be sent any more: its memory is the caller's again.
  for (int s = 0; s < static_cast<int>(sessions_.size()); ++s) GiveUp(s);
  return status;
}

void RemoteWorker::BeginApplyRound(const RoundGrant& grant, Deadline deadline) {
  if (grant.count > 0 && applying != grant.round) {
    (void)shards[0]->BeginApplyRound(grant, deadline);
  }
}

void RemoteWorker::DropValues() {
  if (options.prefetch) return;  // there the next step begins on no newer ones
  for (RemoteShard* shard : shards) shard->DropValues();
}

Status RemoteWorker::EndStages() {
  for (int s = 0; s < plan.variables.shards(); ++s) {
    const Call* call = under_way(s);
    if (call == nullptr || call->request.kind != Kind::kStage) continue;
    PASSEL_RETURN_IF_ERROR(End(s).status());
  }
  return {};
}

Result<Answer> RemoteWorker::Step(int shard, std::unique_ptr<Call> call) {
  Begin(shard, std::move(call));
  return End(shard);
}

Result<Answer> RemoteWorker::Step(int shard, Kind kind, std::uint64_t number, Deadline deadline) {
  auto call = std::make_unique<Call>(kind, number);
  call->deadline = deadline;
  return Step(shard, std::move(call));
}

Status RemoteWorker::EnterMode(int shard, const ModeWord& mode) {
  auto call = std::make_unique<Call>(Kind::kEnterMode);
  call->request.mode = mode.Pack();
  PASSEL_RETURN_IF_ERROR(Step(shard, std::move(call)).status());
  session(shard).SetMode(mode.Pack());
  return {};
}

}  // namespace passel::fabric
