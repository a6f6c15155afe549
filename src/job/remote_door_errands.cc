#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/memory_file.h"
#include "cluster/json_message.h"
#include "io/checkpoint_files.h"
#include "job/remote_door.h"
#include "shm/layout.h"
#include "store/membership.h"
#include "store/metrics.h"
#include "store/open_store.h"

// What a ps answers to the workers of other hosts: job/remote_errand.h.

namespace passel::job {
namespace {

// Of the ps of this process, whose thread may be busy with an arena.
constexpr std::chrono::seconds kAskLimit{10};
// To reserve and clear memory takes about a second a gigabyte.
constexpr std::chrono::minutes kArenaLimit{5};
constexpr std::chrono::milliseconds kLookForEnd{200};

}  // namespace

void RemoteDoor::RunErrands(const std::function<Result<Errand>(const Errand&)>& answer,
                            fabric::Pipe& pipe) {
  for (;;) {
    const Result<Errand> errand =
        ReceiveErrand(pipe, shm::kMaxPlanBytes, Deadline::After(kLookForEnd));
    if (errand.status().code() == Code::kDeadlineExceeded) {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      continue;
    }
    if (!errand.ok()) return;
    Result<Errand> said = answer(*errand);
    const Status sent =
        said.ok() ? SendErrand(pipe, std::move(*said)) : SendErrand(pipe, ErrorJson(said.status()));
    if (!sent.ok()) return;
  }
}

Result<Errand> RemoteDoor::Answer(Guest& guest, const Errand& errand) {
  const std::lock_guard lock(guest.mutex);
  PASSEL_ASSIGN_OR_RETURN(const auto ask, Field<std::string>(errand.json, "ask"));
  if (ask == "sees") {  // of one of this host too, which is connected without a stand-in
    PASSEL_ASSIGN_OR_RETURN(const auto name, Field<std::string>(errand.json, "file"));
    if (name.find('/') != std::string::npos) return InvalidArgument("a file has no folder");
    const std::string path = InFolder(checkpoints_, name);
    const bool sees = !checkpoints_.empty() && ::access(path.c_str(), F_OK) == 0;
    return Errand{{{"ok", true}, {"folder", checkpoints_}, {"sees", sees}}, ""};
  }
  if (!guest.stand_in) {
    const Introduction me{task_.job_id, Role::kWorker, guest.worker, task_.spec.Hash()};
    PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client,
                            shm::RendezvousClient::Connect(me, Role::kPs, shard_, &task_.token,
                                                           Deadline::After(kAskLimit)));
    guest.stand_in.emplace(std::move(client));
  }
  const Errand done{{{"ok", true}}, ""};
  if (ask == "plan") return TellPlan(*guest.stand_in);
  if (ask == "tell_data") {
    const Json* const about = errand.json.Find("about");
    if (about == nullptr) return DataLoss("data is told as an object");
    PASSEL_RETURN_IF_ERROR(guest.stand_in->TellData(*about, Deadline::After(kAskLimit)));
    return done;
  }
  if (ask == "propose") {
    PASSEL_RETURN_IF_ERROR(
        guest.stand_in->ProposePlan(errand.bytes, Deadline::After(kArenaLimit)).status());
    return done;
  }
  if (ask == "renew") {
    PASSEL_RETURN_IF_ERROR(
        guest.stand_in->Renew(errand.bytes, Deadline::After(kArenaLimit)).status());
    return done;
  }
  if (ask == "give_up") {
    PASSEL_ASSIGN_OR_RETURN(const auto why, Field<std::string>(errand.json, "why"));
    PASSEL_RETURN_IF_ERROR(guest.stand_in->GiveUp(why, Deadline::After(kAskLimit)));
    return done;
  }
  if (ask == "beginning") return TellBeginning();
  if (ask == "begin") {
    PASSEL_ASSIGN_OR_RETURN(const auto steps, Field<std::int64_t>(errand.json, "steps"));
    PASSEL_RETURN_IF_ERROR(Begin(steps));
    return done;
  }
  if (ask == "metrics") {
    const Json* const values = errand.json.Find("values");
    if (values == nullptr) return DataLoss("metrics are told as an object");
    PASSEL_RETURN_IF_ERROR(TakeMetrics(guest.worker, *values));
    return done;
  }
  if (ask == "batch") {
    const std::lock_guard served(mutex_);
    if (served_ == nullptr) return Unavailable("there is no arena yet");
    PASSEL_ASSIGN_OR_RETURN(Json json, served_->sharing.Answer(guest.worker, errand.json));
    return Errand{std::move(json), ""};
  }
  return FailedPrecondition("a ps does not answer that");
}

Result<Errand> RemoteDoor::TellPlan(shm::RendezvousClient& ps) {
  Errand answer{{{"ok", true}}, ""};
  PASSEL_ASSIGN_OR_RETURN(const FileDescriptor plan, ps.GetPlan(Deadline::After(kAskLimit)));
  if (plan.valid()) {
    PASSEL_ASSIGN_OR_RETURN(answer.bytes, ReadConstantFile(plan.get(), shm::kMaxPlanBytes));
  }
  return answer;
}

Result<Errand> RemoteDoor::TellBeginning() {
  const std::lock_guard lock(mutex_);
  if (served_ == nullptr) return Unavailable("there is no arena yet");
  const ShardBeginning seen = LookAtShard(served_->arena->memory());
  return Errand{{{"ok", true},
                 {"initialized", seen.initialized},
                 {"cohort", seen.cohort},
                 {"version", seen.version},
                 {"global_step", seen.global_step},
                 {"restored_step", seen.restored_step}},
                ""};
}

Status RemoteDoor::Begin(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  if (served_ == nullptr) return Unavailable("there is no arena yet");
  TellOfJob(steps, *served_->arena->memory().state);
  return {};
}

Status RemoteDoor::TakeMetrics(int worker, const Json& values) {
  const Json::Object* const members = values.object();
  if (members == nullptr) return DataLoss("metrics are told as an object");
  const std::lock_guard lock(mutex_);
  if (served_ == nullptr) return Unavailable("there is no arena yet");
  for (const auto& [name, value] : *members) {
    const std::string* const text = value.text();
    double number = 0;
    if (text == nullptr ||
        std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) {
      return DataLoss("the value of a metric is told as a text");
    }
    PASSEL_RETURN_IF_ERROR(SetMetric(served_->arena->memory().tasks[worker].metrics, name, number));
  }
  return {};
}

}  // namespace passel::job
