#include "job/parameters.h"

#include <fmt/core.h>

#include <chrono>
#include <map>
#include <optional>

#include "base/log.h"
#include "job/find_job.h"
#include "shm/snapshot.h"
#include "train/evaluation.h"
#include "train/model_plan.h"
#include "train/model_shape.h"
#include "train/saved_model.h"

namespace passel::job {
namespace {

constexpr double kMaxWait = 3600;  // seconds

}  // namespace

struct Parameters::Source {
  std::optional<SavedModel> file;
  std::optional<shm::Snapshot> snapshot;
  Json about;
};

Parameters::Parameters() : source_(std::make_unique<Source>()) {}
Parameters::Parameters(Parameters&&) noexcept = default;
Parameters& Parameters::operator=(Parameters&&) noexcept = default;
Parameters::~Parameters() = default;

Result<Parameters> Parameters::Load(const ParameterSettings& flags) {
  if (flags.params.empty() == flags.job.empty()) {
    return InvalidArgument(
        fmt::format("{} of --params FILE and --job ID {} given: give exactly one",
                    flags.params.empty() ? "none" : "both", flags.params.empty() ? "is" : "are"));
  }
  // Not >= and <=: NaN is refused, too.
  if (!(flags.wait > 0 && flags.wait <= kMaxWait)) {
    return InvalidArgument(fmt::format(
        "--wait is above 0 and at most {:g} seconds, not {}: use, for example, --wait=10", kMaxWait,
        flags.typed.Show("--wait", flags.wait)));
  }
  if (flags.consistent && flags.job.empty()) {
    return InvalidArgument(
        "--consistent is for the values of a running job, and a file does not change: omit it, or "
        "name a job with --job");
  }
  Result<Parameters> loaded = flags.params.empty() ? FromJob(flags) : FromFile(flags.params);
  if (!loaded.ok()) return loaded;
  if (!loaded->AllFinite()) {
    LogWarning("{} holds values that are not finite (NaN or infinity)", loaded->name());
  }
  return loaded;
}

Result<Parameters> Parameters::FromFile(const std::string& path) {
  Parameters p;
  PASSEL_ASSIGN_OR_RETURN(p.source_->file, LoadModel(path));
  p.config_ = p.source_->file->config;
  if (p.config_.kind == ModelKind::kOwn) {
    return InvalidArgument(fmt::format(
        "{} has the values of a program's own model, which passel cannot compute: take them with "
        "passel ckpt export",
        path));
  }
  p.parts_ = p.source_->file->Parts();
  p.name_ = path;
  p.trained_on_.name = path;
  if (p.source_->file->IsOurs()) p.trained_on_.split = SplitOf(p.source_->file->metadata);
  p.source_->about["file"] = path;
  Json& about = p.source_->about["metadata"] = Json::MakeObject();
  for (const auto& [key, value] : p.source_->file->metadata) about[key] = value;
  return p;
}

Result<Parameters> Parameters::FromJob(const ParameterSettings& flags) {
  Parameters p;
  PASSEL_ASSIGN_OR_RETURN(const std::string name, ChooseJob(flags.job));
  const auto limit = std::chrono::duration<double>(flags.wait);
  const Deadline deadline =
      Deadline::After(std::chrono::duration_cast<std::chrono::nanoseconds>(limit));
  PASSEL_ASSIGN_OR_RETURN(p.source_->snapshot, flags.consistent
                                                   ? shm::TakeConsistentSnapshot(name, deadline)
                                                   : shm::TakeSnapshot(name, deadline));
  const shm::Snapshot& snapshot = *p.source_->snapshot;
  PASSEL_ASSIGN_OR_RETURN(p.config_, InferModel(snapshot.plan().variables));
  PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                          ModelLayout::Make(p.config_, snapshot.plan().variables));
  layout.Bind(snapshot.shard_values(), &p.parts_);
  p.trained_on_ = TrainedOn::OfJob(name, snapshot.data());
  p.name_ = fmt::format("job {} at global step {}", name, snapshot.global_step());
  if (snapshot.last_global_step() > snapshot.global_step()) {
    p.name_ += fmt::format(" to {}", snapshot.last_global_step());
  }
  if (const auto age = snapshot.shadow_age_ns()) {
    const double seconds = 1e-9 * static_cast<double>(*age);
    p.name_ += fmt::format(", a shadow of the values on the GPU, {:.1f} s old", seconds);
    p.source_->about["shadow_age_seconds"] = seconds;
  }
  p.source_->about["job"] = name;
  p.source_->about["global_step"] = snapshot.global_step();
  p.source_->about["last_global_step"] = snapshot.last_global_step();
  p.source_->about["exact"] = snapshot.exact();
  if (flags.consistent) {
    const MeetingCost& cost = snapshot.meeting_cost();
    const double seconds = 1e-9 * static_cast<double>((cost.gathering + cost.held).count());
    p.source_->about["workers_waited_seconds"] = seconds;
    LogInfo("the workers of job {} waited {:.1f} ms at most for this copy", name, 1e3 * seconds);
  }
  return p;
}

bool Parameters::AllFinite() const {
  return FindNonFinite(ModelVariables(config_), parts_) == nullptr;
}

const Json& Parameters::About() const { return source_->about; }

}  // namespace passel::job
