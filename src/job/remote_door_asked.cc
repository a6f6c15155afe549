// What a ps answers to those of other hosts who do not train: ps/0 as it saves, passel ctl, and
// evaluators.

#include <fmt/core.h>

#include <chrono>
#include <new>

#include "base/log.h"
#include "base/text.h"
#include "cluster/endpoint.h"
#include "cluster/json_message.h"
#include "job/remote_door.h"
#include "store/membership.h"
#include "store/shard_snapshot.h"

namespace passel::job {
namespace {

// Of the ps of this process; who asks waits no longer.
constexpr std::chrono::seconds kAskerLimit{4};

}  // namespace

Result<Errand> RemoteDoor::AnswerSaver(const Errand& errand) {
  std::shared_ptr<const shm::Arena> arena;
  {
    const std::lock_guard lock(mutex_);
    if (served_ != nullptr) arena = served_->arena;
    if (const Json* ask = errand.json.Find("ask"); ask != nullptr && ask->text() != nullptr) {
      if (*ask->text() == "save_over") {
        dismissed_ = true;
        changed_.notify_all();
        return Errand{{{"ok", true}}, ""};
      }
    }
  }
  return saver_.Answer(errand, arena);
}

// It reads, and what it reads is copied.
Result<Errand> RemoteDoor::AnswerWatcher(const Errand& errand) {
  PASSEL_ASSIGN_OR_RETURN(const auto ask, Field<std::string>(errand.json, "ask"));
  Errand answer{{{"ok", true}}, ""};
  if (ask == "read_data") {
    const Deadline limit = Deadline::After(kAskerLimit);
    PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient ps,
                            shm::RendezvousClient::Control(task_.job_id, shard_, limit));
    PASSEL_ASSIGN_OR_RETURN(const shm::ShardSnapshot now, ps.GetSnapshot(/*values=*/false, limit));
    answer.bytes = now.data;
    return answer;
  }
  if (ask == "tell_score") {
    PASSEL_ASSIGN_OR_RETURN(const auto evaluator, Field<int>(errand.json, "evaluator"));
    PASSEL_ASSIGN_OR_RETURN(const auto accuracy, Field<double>(errand.json, "accuracy"));
    PASSEL_ASSIGN_OR_RETURN(const auto step, Field<std::int64_t>(errand.json, "global_step"));
    const Introduction me{task_.job_id, Role::kEvaluator, evaluator, task_.spec.Hash()};
    const Deadline limit = Deadline::After(kAskerLimit);
    PASSEL_ASSIGN_OR_RETURN(
        shm::RendezvousClient ps,
        shm::RendezvousClient::Connect(me, Role::kPs, shard_, &task_.token, limit));
    PASSEL_RETURN_IF_ERROR(ps.TellScore(accuracy, step, limit));
    return answer;
  }
  std::shared_ptr<const shm::Arena> arena;
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    if (served_ != nullptr) arena = served_->arena;
    over = over_;
  }
  if (ask == "read_plan") {
    if (arena != nullptr) answer.bytes = ToJson(arena->plan());
    return answer;
  }
  if (arena == nullptr) return Unavailable("there is no arena yet");
  const ShardMemory& memory = arena->memory();
  const bool initialized = memory.state->initialized.load(std::memory_order_acquire) != 0;
  if (ask == "watch") {
    const bool stopped = memory.state->stop.load(std::memory_order_acquire) != 0;
    answer.json["initialized"] = initialized;
    answer.json["ended"] = AllWorkersEnded(memory);
    answer.json["done"] = over || AllWorkersDone(memory);
    answer.json["stopped"] = stopped;
    answer.json["global_step"] = memory.state->global_step.load(std::memory_order_acquire);
    return answer;
  }
  if (ask != "values") return FailedPrecondition("a ps does not answer that");
  if (!initialized) return Unavailable("there are no values yet");
  if (arena->plan().on_device) {
    return FailedPrecondition(
        "the values are in the memory of a GPU: start the evaluator on the host of ps/0");
  }
  try {
    answer.floats.resize(memory.floats);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        fmt::format("ps/{} has no memory for a copy of {} values", shard_, memory.floats));
  }
  float* const out[] = {answer.floats.data()};
  const ShardSnapshotInfo info = TakeShardSnapshot(memory, shard_ == 0, out);
  answer.json["global_step"] = info.global_step;
  answer.json["last_global_step"] = info.last_global_step;
  if (info.exact_round) answer.json["round"] = *info.exact_round;
  return answer;
}

// As somebody of this host would ask it.
Result<Errand> RemoteDoor::AnswerAsker(std::uint64_t life, const Errand& errand) {
  const Deadline limit = Deadline::After(kAskerLimit);
  PASSEL_ASSIGN_OR_RETURN(const auto ask, Field<std::string>(errand.json, "ask"));
  if (ask == "reserve") return Reserve(life, errand);
  if (ask == "save") return Save(life, errand);
  PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient ps,
                          shm::RendezvousClient::Control(task_.job_id, shard_, limit));
  Errand answer{{{"ok", true}}, ""};
  if (ask == "status") {
    PASSEL_ASSIGN_OR_RETURN(answer.bytes, ps.GetStatus(limit));
    return answer;
  }
  if (ask == "stop") {
    PASSEL_ASSIGN_OR_RETURN(const auto failure, FieldOr(errand.json, "failure", std::string()));
    if (failure.empty()) LogInfo("somebody on another host asks the job to stop");
    PASSEL_RETURN_IF_ERROR(ps.Stop(limit, Printable(failure, kMostFailureBytes)));
    return answer;
  }
  if (ask == "set_mode") {
    PASSEL_ASSIGN_OR_RETURN(const auto text, Field<std::string>(errand.json, "mode"));
    PASSEL_ASSIGN_OR_RETURN(const ModeSetting mode, ParseModeSetting(text));
    PASSEL_ASSIGN_OR_RETURN(answer.json["number"], ps.SetMode(mode, limit));
    return answer;
  }
  if (ask == "scale") {
    PASSEL_ASSIGN_OR_RETURN(const auto workers, Field<std::int64_t>(errand.json, "workers"));
    PASSEL_ASSIGN_OR_RETURN(answer.json["number"], ps.Scale(workers, limit));
    return answer;
  }
  return FailedPrecondition("a ps does not answer that");
}

// Whoever saves looks for it. Who asks may wait long, on a pipe of its own.
Result<Errand> RemoteDoor::Save(std::uint64_t life, const Errand& errand) {
  if (wishes_ == nullptr) return FailedPrecondition("ps/0 saves, and no other ps");
  if (checkpoints_.empty()) {
    return FailedPrecondition(
        "ps/0 saves the checkpoints of this job, and has no --checkpoint_dir: start it with one");
  }
  {
    const std::lock_guard lock(mutex_);
    if (!askers_.contains(life)) return Unavailable("who asks has gone");
    wishers_.insert(life);
  }
  PASSEL_ASSIGN_OR_RETURN(Json said, wishes_->Ask(errand.json));
  return Errand{std::move(said), ""};
}

// Of the joiners of this host, too, who ask the kernel alone.
Result<Errand> RemoteDoor::Reserve(std::uint64_t life, const Errand& errand) {
  const Json* const wanted = errand.json.Find("workers");
  const Json::List* const places = wanted == nullptr ? nullptr : wanted->list();
  if (places == nullptr || shard_ != 0) return FailedPrecondition("ps/0 is asked for a list");
  for (const Json& place : *places) {
    const int worker = place.As<int>().value_or(-1);
    if (worker < 0 || worker >= task_.MostTrainers()) {
      return InvalidArgument(
          fmt::format("this job has places for {} workers", task_.MostTrainers()));
    }
    Result<FileDescriptor> held = ReservePlace(task_.job_id, worker);
    if (held.status().code() == Code::kAlreadyExists) continue;
    PASSEL_RETURN_IF_ERROR(held.status());
    const std::lock_guard lock(mutex_);
    const auto asker = askers_.find(life);
    if (asker == askers_.end()) return Unavailable("who asks has gone");
    asker->second.push_back(std::move(*held));
    return Errand{{{"ok", true}, {"worker", worker}}, ""};
  }
  return ResourceExhausted("others that join hold all places");
}

}  // namespace passel::job
