#include "capi/checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/nvtx.h"
#include "base/text.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_part.h"
#include "job/far_job.h"
#include "job/first_values.h"
#include "job/remote_facts.h"
#include "job/save_wishes.h"
#include "store/variable_table.h"
#include "train/checkpoint_watch.h"
#include "train/model_plan.h"

namespace passel::capi {
namespace {

// For the last checkpoint.
constexpr std::chrono::seconds kSaveLimit{600};
// Of one look whether the others meet.
constexpr std::chrono::milliseconds kMeetTurn{20};

// Tensors that a checkpoint has beside the variables, and what their names begin with.
bool IsOfCheckpoint(std::string_view name) {
  return name == "__metadata__" || name == "global_step" || name == "beta1_power" ||
         name == "beta2_power" || name.starts_with("ps/") || name.starts_with("worker/");
}

// The names of the program become those of tensors in one file.
Status CheckNames(const StorePlan& plan) {
  const OptimizerWords optimizer = job::OptimizerWordsOf(plan.optimizer);
  std::set<std::string> names;
  for (const VariableInfo& v : plan.variables.all()) names.insert(v.name);
  for (const VariableInfo& v : plan.variables.all()) {
    if (IsOfCheckpoint(v.name)) {
      return InvalidArgument(
          fmt::format("the variable \"{}\" has the name of something else in a checkpoint: give it "
                      "another, or omit the setting checkpoint_dir",
                      Printable(v.name, kMaxNameBytes)));
    }
    for (const std::string& slot : optimizer.slots) {
      const std::string tensor_name = SlotTensor(v.name, slot);
      if (!names.contains(tensor_name)) continue;
      return InvalidArgument(fmt::format(
          "the variable \"{}\" has the name of a slot variable of \"{}\" in a checkpoint: give it "
          "another, or omit the setting checkpoint_dir",
          Printable(tensor_name, kMaxNameBytes), Printable(v.name, kMaxNameBytes)));
    }
  }
  return {};
}

job::AtEnd AtEndOf(Others others) {
  return others == Others::kTrain ? job::AtEnd::kOthersTrain : job::AtEnd::kNobodyTrains;
}

// Nothing: all meet. In the modes with rounds others who wait for our gradient cannot meet us.
std::optional<job::AtEnd> HowToSave(bool consistent, Others others, const ParameterStore& store) {
  if (consistent && others == Others::kTrain && !IsRoundMode(store.mode())) return {};
  return AtEndOf(others);
}

// For a moment.
Status Meet(ParameterStore& store, Deadline deadline) {
  const Status met = store.WaitUntilInitialized(deadline.Sooner(kMeetTurn));
  return met.code() == Code::kDeadlineExceeded ? Status() : met;
}

Status NoFolder() {
  return FailedPrecondition(
      "this job makes no checkpoints: give passel_open() the setting checkpoint_dir, a folder");
}

// Of the save that was asked for after that step.
Result<std::int64_t> OfStep(std::int64_t step, std::optional<std::int64_t> newest) {
  if (newest && *newest >= step) return *newest;
  return DeadlineExceeded(
      fmt::format("no checkpoint of global step {} was made: an update of another worker was under "
                  "way; call passel_save() again",
                  step));
}

Result<std::unique_ptr<job::CheckpointSaver>> OpenSaver(const Settings& settings,
                                                        const StorePlan& plan, bool begun) {
  job::JobConfig config = settings.config;
  if (!settings.alone) config.checkpoints.job = settings.task.job_id;
  config.model = OwnModel(plan.variables);
  return job::CheckpointSaver::Open(config, settings.task.job, plan, "", begun);
}

}  // namespace

Result<std::unique_ptr<Checkpoints>> Checkpoints::Open(const Settings& settings,
                                                       const StorePlan& plan, bool begun) {
  const job::CheckpointConfig& wanted = settings.config.checkpoints;
  const bool makes_any = !wanted.folder.empty();
  if (makes_any) PASSEL_RETURN_IF_ERROR(CheckNames(plan));
  std::unique_ptr<Checkpoints> checkpoints(new Checkpoints(plan, makes_any, wanted.consistent));
  PASSEL_ASSIGN_OR_RETURN(checkpoints->saver_, OpenSaver(settings, plan, begun));
  return checkpoints;
}

Checkpoints::~Checkpoints() {
  if (saver_ && saver_->hangs()) (void)saver_.release();
}

Status Checkpoints::Restore(ParameterStore& store) const {
  saver_->TellOfBeginning();
  return job::RestoreFrom(saver_->resume_from(), plan_.optimizer, plan_.variables.shards(), store);
}

void Checkpoints::Begin(std::vector<ShardMemory> shards, const WorkerNames& names) {
  saver_->Begin(std::move(shards), names);
}

Result<std::int64_t> Checkpoints::Save(Others others, ParameterStore& store, Deadline deadline) {
  if (!makes_any_) return NoFolder();
  const nvtx::Range range(nvtx::Event::kSave, store.worker());
  const std::int64_t step = store.global_step();
  const std::optional<job::AtEnd> at_end = HowToSave(consistent_, others, store);
  Status met;
  const Status saved = saver_->SaveNow(at_end, deadline, [&] {
    store.SayAlive();
    if (!at_end && met.ok()) met = Meet(store, deadline);
  });
  PASSEL_RETURN_IF_ERROR(met);
  if (saved.code() == Code::kCancelled && !store.stopped()) {  // passel_check_waits()
    return DeadlineExceeded(saved.message());
  }
  PASSEL_RETURN_IF_ERROR(saved);
  return OfStep(step, saver_->newest_step());
}

Result<std::int64_t> SaveElsewhere(const Settings& settings, Others others, ParameterStore& store,
                                   Deadline deadline) {
  const job::JobConfig& config = settings.config;
  if (config.checkpoints.folder.empty()) return NoFolder();
  const nvtx::Range range(nvtx::Event::kSave, store.worker());
  const std::int64_t step = store.global_step();
  const std::optional<job::AtEnd> at_end = HowToSave(config.checkpoints.consistent, others, store);
  PASSEL_ASSIGN_OR_RETURN(const HostPort lead, settings.task.spec.Address({"ps", 0}));
  const job::FarJob job{settings.task.job_id, {lead}, job::DoorKeyOf(settings.task)};
  PASSEL_ASSIGN_OR_RETURN(
      const std::int64_t newest,
      job::AskForSave(job, at_end, std::chrono::nanoseconds(config.ps_wait_ns), deadline, [&] {
        store.SayAlive();
        return at_end ? Status() : Meet(store, deadline);
      }));
  return OfStep(step, newest);
}

Status Checkpoints::End(Others others, ParameterStore& store) {
  return saver_->End(AtEndOf(others), Deadline::After(kSaveLimit), [&store] { store.SayAlive(); });
}

Status SaveTheRest(const Settings& settings, const StorePlan& plan, std::vector<ShardMemory> shards,
                   const WorkerNames& names, bool* hangs) {
  const nvtx::Range range(nvtx::Event::kSave, settings.task.Trainer());
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<job::CheckpointSaver> saver,
                          OpenSaver(settings, plan, /*begun=*/true));
  const Status saved = saver->SaveOnce(std::move(shards), names, job::AtEnd::kNobodyTrains,
                                       Deadline::After(kSaveLimit), {});
  if (const auto step = saver->last_step()) {
    const job::JobConfig& config = settings.config;
    TellOfCheckpoint(config.summaries.folder,
                     InFolder(config.checkpoints.folder, CheckpointName(*step)), *step);
  }
  *hangs = saver->hangs();
  if (*hangs) (void)saver.release();
  return saved;
}

}  // namespace passel::capi
