#include "fabric/remote_worker.h"

#include <fmt/core.h>
#include <unistd.h>

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
  hello.stall_limit_ns = options.engine.stall_limit.count();
  hello.join_limit_ns = options.engine.join_limit.count();
  hello.on_stall = options.engine.on_stall;
  hello.chief = options.engine.names.chief;
  hello.chief_name = options.engine.names.chief_name;
  for (Connector& connector : connectors) {
    hello.shard = static_cast<std::int32_t>(sessions_.size());
    const bool lead = sessions_.empty();
    sessions_.push_back(std::make_unique<Session>(fmt::format("ps/{}", hello.shard),
                                                  std::move(connector), hello, options.session,
                                                  [this, lead](const Answer& answer) {
                                                    if (lead) Heard(answer);
                                                  }));
  }
}

Status RemoteWorker::Join() {
  for (std::size_t s = 0; s < sessions_.size(); ++s) {
    if (s > 0) sessions_[s]->SetEpoch(state().epoch);
    PASSEL_ASSIGN_OR_RETURN(const Answer answer,
                            sessions_[s]->Open(Deadline::After(options.answer_limit)));
    if (s > 0 || !answer.report) continue;
    TakeReport(*answer.report, &counters);
    Remember(*answer.report, &known_);
  }
  if (one_shard()) return {};
  return CheckOneBeginning([this]() -> Result<std::vector<ShardBeginning>> {
    std::vector<ShardBeginning> seen(sessions_.size());
    for (std::size_t s = sessions_.size(); s-- > 0;) {
      Call call;
      call.request.kind = Kind::kAsk;
      PASSEL_RETURN_IF_ERROR(Quick(static_cast<int>(s), &call));
      seen[s] = {call.answer.state.initialized, call.answer.number, call.answer.version,
                 call.answer.state.global_step};
    }
    return seen;
  });
}

void RemoteWorker::Heard(const Answer& answer) {
  const std::lock_guard lock(mutex_);
  const State& heard = answer.state;
  // Answers may overtake each other.
  if (std::pair(heard.epoch, heard.serial) <= std::pair(state_.epoch, state_.serial)) return;
  state_ = heard;
  TakeEngineCounts(heard.engine, &counters);
}

State RemoteWorker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

MessageCount RemoteWorker::count() const {
  MessageCount count;
  for (const auto& session : sessions_) {
    count.sent += session->sent();
    count.received += session->received();
  }
  return count;
}

Status RemoteWorker::Quick(int shard_index, Call* call) const {
  return sessions_[static_cast<std::size_t>(shard_index)]->Ask(
      call, Deadline::After(options.answer_limit));
}

void RemoteWorker::StartStep(int shard_index, Call* call) {
  if (shard_index == 0) {
    // The other side ends it too, when it sees a later step.
    if (round != nullptr) session(0).Drop(round.get());
    round.reset();
    // What is asked for its cursor must not overwrite it.
    const Kind kind = call->request.kind;
    if (kind != Kind::kRestore && kind != Kind::kAwaitInitialized) {
      call->request.report = MakeReport(counters, known_);
      call->request.flags |= kReport;
    }
  }
  session(shard_index).Start(call);
}

void RemoteWorker::EndStep(int shard_index, Call* call) {
  session(shard_index).Drop(call);
  if (call->finished && (call->request.flags & kReport)) Remember(call->request.report, &known_);
}

Status RemoteWorker::Step(int shard_index, Call* call, Deadline deadline) {
  call->deadline = deadline;
  StartStep(shard_index, call);
  // The other side says what happened at the deadline.
  Status status = session(shard_index)
                      .Await(call, Deadline::At(deadline.at_ns() + options.answer_limit.count()));
  EndStep(shard_index, call);
  if (call->finished && call->answer.report) {
    TakeReport(*call->answer.report, &counters);
    Remember(*call->answer.report, &known_);
  }
  return status;
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
