#include "fabric/remote_worker.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "fabric/remote_lead.h"
#include "fabric/remote_shard.h"
#include "store/open_store.h"

namespace passel::fabric {

RemoteWorker::RemoteWorker(const StorePlan& worker_plan, int index,
                           std::vector<Connector> connectors, const ClientOptions& client_options)
    : plan(worker_plan), worker(index), options(client_options), rules(worker_plan.Rules()) {
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
    const bool lead = sessions_.empty();
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
    if (s > 0) sessions_[s]->SetEpoch(state().epoch);
    PASSEL_ASSIGN_OR_RETURN(const Answer answer,
                            sessions_[s]->Open(Deadline::After(options.answer_limit)));
    if (s == 0 && answer.report) TakeReport(*answer.report, &counters);
  }
  if (one_shard()) return {};
  return CheckOneBeginning([this]() -> Result<std::vector<ShardBeginning>> {
    std::vector<ShardBeginning> seen(sessions_.size());
    for (std::size_t s = sessions_.size(); s-- > 0;) {
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

void RemoteWorker::Stop() {
  {
    const std::lock_guard lock(mutex_);
    state_.stopped = true;
  }
  for (const auto& session : sessions_) session->StopToo();
}

MessageCount RemoteWorker::count() const {
  MessageCount count;
  for (const auto& session : sessions_) {
    count.sent += session->sent();
    count.received += session->received();
    count.gone = std::max(count.gone, session->gone_for());
  }
  return count;
}

Result<Answer> RemoteWorker::Quick(int shard, Call call) const {
  PASSEL_RETURN_IF_ERROR(sessions_[static_cast<std::size_t>(shard)]->Ask(
      &call, Deadline::After(options.answer_limit)));
  return std::move(call.answer);
}

std::vector<Member> RemoteWorker::QuickMembers(int shard, Call call) const {
  Result<Answer> answer = Quick(shard, std::move(call));
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

void RemoteWorker::GiveUp(int shard) {
  auto& place = under_way_[static_cast<std::size_t>(shard)];
  if (place != nullptr) session(shard).Drop(place.get());
  place.reset();
}

Result<Answer> RemoteWorker::End(int shard) {
  auto& place = under_way_[static_cast<std::size_t>(shard)];
  // The other side says what happened at the deadline. To send it may have taken longer.
  const Deadline begun = Deadline::At(std::max(place->deadline.at_ns(), MonotonicNs()));
  const Status status =
      session(shard).Await(place.get(), Deadline::At(begun.at_ns() + options.answer_limit.count()));
  session(shard).Drop(place.get());
  const std::unique_ptr<Call> ended = std::move(place);
  if (ended->finished && ended->answer.report) TakeReport(*ended->answer.report, &counters);
  if (status.ok()) return std::move(ended->answer);
  // What was begun on the others too must not be sent any more: its memory is the caller's again.
  for (int s = 0; s < static_cast<int>(sessions_.size()); ++s) GiveUp(s);
  return status;
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

Result<std::unique_ptr<ParameterStore>> OpenRemoteStore(const StorePlan& plan, int worker,
                                                        std::vector<Connector> connectors,
                                                        const ClientOptions& options,
                                                        std::function<MessageCount()>* count) {
  PASSEL_CHECK(static_cast<int>(connectors.size()) == plan.variables.shards(),
               "a connector for each ps");
  auto remote = std::make_shared<RemoteWorker>(plan, worker, std::move(connectors), options);
  auto lead = std::make_unique<RemoteLead>(remote);
  std::vector<std::unique_ptr<Shard>> shards;
  try {
    for (int s = 0; s < plan.variables.shards(); ++s) {
      shards.push_back(std::make_unique<RemoteShard>(remote, s));
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        fmt::format("no memory for copies of {} values and their gradients: use a smaller model",
                    plan.variables.TotalElements()));
  }
  if (Status joined = remote->Join(); !joined.ok()) {
    if (remote->state().epoch != 0) (void)lead->Leave(Phase::kLeft);
    return joined;
  }
  if (count != nullptr) *count = [remote = remote.get()] { return remote->count(); };
  return MakeStore(plan, worker, std::move(lead), std::move(shards));
}

}  // namespace passel::fabric
