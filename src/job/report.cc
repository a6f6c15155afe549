#include "job/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "job/result_output.h"
#include "store/shadow.h"

namespace passel::job {

namespace {

// Once, of the first two that differ.
void NoteKernels(const std::vector<WorkerStatus>& workers, std::vector<std::string>* notes) {
  const WorkerStatus* one = nullptr;
  for (const WorkerStatus& w : workers) {
    if (w.kernels.empty()) continue;
    if (one == nullptr) one = &w;
    if (w.kernels == one->kernels) continue;
    std::string note = fmt::format(
        "worker/{} multiplies with the kernels for {}, worker/{} with those for {}: the bits of "
        "this job depend on which hosts its workers have",
        one->member.worker, one->kernels, w.member.worker, w.kernels);
    if (std::ranges::find(*notes, note) == notes->end()) notes->push_back(std::move(note));
    return;
  }
}

}  // namespace

void JobReport::TakeStatus(JobStatus said) {
  status = std::move(said);
  const std::int64_t first = FirstStepNs(status);
  if (first != 0) startup_seconds = 1e-9 * static_cast<double>(first - program_start_ns);
  NoteKernels(status.workers, &notes);
}

double JobReport::TrainingSeconds() const {
  const std::int64_t first = FirstStepNs(status);
  const std::int64_t last = LastStepNs(status);
  return first != 0 && last > first ? 1e-9 * static_cast<double>(last - first) : 0;
}

bool JobReport::MadeSteps() const { return status.LocalStepsHere() > 0; }

double JobReport::StepsPerSecond() const {
  const double trained = TrainingSeconds();
  return trained > 0 ? static_cast<double>(status.LocalStepsHere()) / trained : 0;
}

double JobReport::UpdatesPerSecond() const {
  const double trained = TrainingSeconds();
  return trained > 0 ? static_cast<double>(status.GlobalStepsHere()) / trained : 0;
}

namespace {

// "barrier, from step 2000 on hogwild"
std::string ModesInWords(const JobReport& r) {
  if (r.status.modes.size() <= 1) return r.mode;
  std::string text;
  for (const PastMode& mode : r.status.modes) {
    text += text.empty() ? mode.setting.ToString()
                         : fmt::format(", from step {} on {}", mode.since, mode.setting.ToString());
  }
  return text;
}

// "cpu", "gpu", or "cpu and gpu": of the workers that computed.
std::string DeviceOf(const JobReport& r) {
  bool cpu = false, gpu = false;
  for (const WorkerStatus& w : r.status.workers) {
    cpu |= std::string_view(DeviceName(w.device)) == "cpu";
    gpu |= std::string_view(DeviceName(w.device)) == "gpu";
  }
  return gpu ? (cpu ? "cpu and gpu" : "gpu") : "cpu";
}

double Microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1000; }

// [least, most, how many of the values], the first two as `show` gives them.
template <typename Show>
Json BucketsToJson(const std::vector<BucketCount>& buckets, Show show) {
  Json json = Json::MakeList();
  for (const BucketCount& bucket : buckets) {
    json.Add(Json::MakeList(show(bucket.least), show(bucket.most), bucket.count));
  }
  return json;
}

Json RunToJson(const RunInfo& run) {
  Json settings = Json::MakeObject(), changed = Json::MakeObject();
  for (const auto& [name, value] : run.settings) settings[name] = value;
  for (const auto& [name, value] : run.changed) changed[name] = value;
  return {{"version", run.version}, {"command", run.command},     {"started", run.started},
          {"host", run.host},       {"processor", run.processor}, {"cores", run.cores},
          {"settings", settings},   {"changed", changed}};
}

WorkerCounts CountsOfAll(const JobReport& r) {
  WorkerCounts all;
  for (const WorkerStatus& w : r.status.workers) all.Add(w.counts);
  return all;
}

// Null where none were made or gone on from.
Json CheckpointsToJson(const JobReport& r) {
  const CheckpointFacts& c = r.checkpoints;
  if (c.folder.empty() && c.resumed_from.empty()) return nullptr;
  const auto known = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json json;
  json["folder"] = known(c.folder);
  json["saved"] = c.saved;
  json["failed"] = c.failed;
  json["newest"] = known(c.newest);
  json["best"] = c.best ? Json(c.best->name) : Json();
  const bool has_score = c.best && c.best->score;
  json["best_accuracy"] = has_score ? Json(c.best->score->accuracy) : Json();
  json["best_step"] = has_score ? Json(c.best->score->step) : Json();
  json["bytes"] = c.bytes;
  json["copying_seconds"] = c.copying_seconds;
  json["writing_seconds"] = c.writing_seconds;
  json["held_seconds"] = c.held_seconds;
  json["resumed_from"] = known(c.resumed_from);
  json["resumed_step"] = c.resumed_from.empty() ? Json() : Json(r.resumed_step);
  json["was_finished"] = c.resumed_from.empty() ? Json() : Json(c.was_finished);
  return json;
}

std::string StepsInWords(const JobReport& r) {
  std::string text =
      fmt::format("{} in {:.2f} s: {:.0f} steps/s, {:.0f} updates/s, start-up {:.2f} s\n",
                  Counted(static_cast<std::uint64_t>(r.status.global_step), "global step"),
                  r.TrainingSeconds(), r.StepsPerSecond(), r.UpdatesPerSecond(), r.startup_seconds);
  text += fmt::format("mode {}, {}staleness p50 {} p99 {} max {}", ModesInWords(r),
                      r.push_every > 1 ? fmt::format("a push every {} steps, ", r.push_every) : "",
                      r.status.staleness.p50, r.status.staleness.p99, r.status.staleness.maximum);
  const std::uint64_t fused_updates = CountsOfAll(r)[&WorkerCounters::fused_updates];
  if (fused_updates == 0 || r.status.push_latency_ns.count > 0) {
    text += fmt::format(", push p50 {:.0f} us p99 {:.0f} us",
                        1e-3 * static_cast<double>(r.status.push_latency_ns.p50),
                        1e-3 * static_cast<double>(r.status.push_latency_ns.p99));
  }
  if (fused_updates > 0) text += fmt::format(", {} updates fused into their steps", fused_updates);
  return text;
}

std::string NoStepsInWords(const JobReport& r) {
  return fmt::format("no step was made; the checkpoint had {}",
                     Counted(static_cast<std::uint64_t>(r.resumed_step), "global step"));
}

}  // namespace

std::string Summary(const JobReport& r) {
  std::string text;
  if (r.test) {
    text += fmt::format("test accuracy {:.4f}, test loss {:.4f}\n", r.test->accuracy, r.test->loss);
  } else if (!r.model.empty()) {
    text += "not evaluated\n";
  }
  if (r.MadeSteps()) {
    text += StepsInWords(r) + "\n";
  } else if (!r.model.empty()) {
    text += NoStepsInWords(r) + "\n";
  }
  for (const WorkerStatus& w : r.status.workers) {
    const auto index = static_cast<std::size_t>(w.member.worker);
    text +=
        fmt::format("worker/{}: {}", w.member.worker, Counted(w.member.local_steps, "local step"));
    if (w.final_accuracy >= 0) text += fmt::format(", final accuracy {:.4f}", w.final_accuracy);
    const std::uint64_t lead = w.counts[&WorkerCounters::max_clock_lead];
    const std::uint64_t dropped = w.counts[&WorkerCounters::dropped];
    const std::uint64_t skipped = w.counts[&WorkerCounters::skipped];
    if (dropped > 0) text += fmt::format(", {} dropped", Counted(dropped, "gradient"));
    if (lead > 0) text += fmt::format(", up to {} ahead of the slowest", Counted(lead, "step"));
    if (skipped > 0) text += fmt::format(", {} skipped (not finite)", Counted(skipped, "gradient"));
    for (const Metric& m : w.metrics) text += fmt::format(", {} {}", m.name, InWords(m, 6));
    text += fmt::format(", {}\n", index < r.worker_exits.size() ? r.worker_exits[index] : "");
  }
  std::string notes;
  for (const std::string& note : r.notes) notes += fmt::format("note: {}\n", note);
  // The last words of a program that has failed come last.
  const bool of_program = r.model.empty();
  const std::string lives = r.lives.InWords(/*tells_survived=*/!of_program);
  return text + (of_program ? notes + lives : lives + notes);
}

void NoteShadow(const ShardMemory& lead, JobReport* report) {
  const ShadowSteps steps = ShadowReader(lead).Steps(report->status.global_step);
  report->values_step = steps.first;
  if (steps.first == report->status.global_step) return;
  report->notes.push_back(fmt::format(
      "the parameters on the GPU are gone with the workers: what is left, evaluated and saved is "
      "their shadow of global step {}, and the job had come to {}",
      steps.first, report->status.global_step));
}

std::string ToJson(const JobReport& r) {
  Json json;
  json["format"] = kReportFormat;
  json["job"] = r.job_id;
  json["test_accuracy"] = r.test ? Json(r.test->accuracy) : Json();
  json["test_loss"] = r.test ? Json(r.test->loss) : Json();
  json["global_step"] = r.status.global_step;
  json["local_steps"] = r.status.local_steps;
  json["seconds"] = r.seconds;
  json["startup_seconds"] = r.startup_seconds;
  json["training_seconds"] = r.TrainingSeconds();
  json["steps_per_second"] = r.StepsPerSecond();
  json["updates_per_second"] = r.UpdatesPerSecond();
  json["mode"] =
      r.status.modes.empty() ? r.mode : std::string(ModeName(r.status.modes.back().setting.mode));
  json["modes"] = Json::MakeList();
  for (const PastMode& mode : r.status.modes) {
    json["modes"].Add({{"mode", mode.setting.ToString()}, {"since", mode.since}});
  }
  json["push_every"] = r.push_every;
  json["device"] = DeviceOf(r);
  json["model"] = r.model;
  json["optimizer"] = r.optimizer;
  json["rates"] = Describe(r.status.rates);
  json["data"] = r.data;
  json["ps"] = r.ps;
  json["pinned"] = r.pinned;
  json["interrupted"] = r.interrupted;
  json["exit_code"] = r.exit_code;
  json["staleness"] = {{"p50", r.status.staleness.p50},
                       {"p99", r.status.staleness.p99},
                       {"max", r.status.staleness.maximum},
                       {"buckets", BucketsToJson(r.status.staleness_buckets, std::identity())}};
  // Nobody knows when an update that is part of a step began.
  const auto latency = [&](std::uint64_t ns) -> Json {
    if (r.status.push_latency_ns.count == 0 && r.status.local_steps > 0) return nullptr;
    return Microseconds(ns);
  };
  json["push_latency_us"] = {
      {"p50", latency(r.status.push_latency_ns.p50)},
      {"p99", latency(r.status.push_latency_ns.p99)},
      {"p999", latency(r.status.push_latency_ns.p999)},
      {"max", latency(r.status.push_latency_ns.maximum)},
      {"buckets", BucketsToJson(r.status.push_latency_buckets, Microseconds)}};
  Json workers = Json::MakeList();
  for (const WorkerStatus& w : r.status.workers) {
    Json worker;
    worker["index"] = w.member.worker;
    worker["device"] = DeviceName(w.device);
    worker["kernels"] = w.kernels.empty() ? Json() : Json(w.kernels);
    worker["local_steps"] = w.member.local_steps;
    worker["final_accuracy"] = w.final_accuracy >= 0 ? Json(w.final_accuracy) : Json();
    w.counts.DescribeTimes(&worker["seconds"]);
    w.counts.DescribeCounts(&worker);
    worker["metrics"] = Describe(w.metrics);
    const auto index = static_cast<std::size_t>(w.member.worker);
    worker["exit"] = index < r.worker_exits.size() ? r.worker_exits[index] : "";
    workers.Add(std::move(worker));
  }
  CountsOfAll(r).DescribeCounts(&json);
  json["metrics"] = Describe(MeanMetrics(r.status));
  json["workers"] = workers;
  r.lives.Describe(&json);
  json["checkpoints"] = CheckpointsToJson(r);
  json["notes"] = r.notes;
  json["run"] = RunToJson(r.run);
  json["curve"] = Json::MakeList();
  for (const CurvePoint& point : r.curve) {
    json["curve"].Add({{"seconds", point.seconds},
                       {"global_step", point.global_step},
                       {"loss", point.loss},
                       {"accuracy", r.model.empty() ? Json() : Json(point.accuracy)},
                       {"steps_per_second", point.steps_per_second},
                       {"staleness_mean", point.staleness_mean},
                       {"staleness_p99", point.staleness_p99},
                       {"dropped", point.dropped},
                       {"workers", point.workers}});
  }
  return json.Write(2) + "\n";
}

Status WriteReport(const std::string& path, const JobReport& report) {
  return WriteResult(path, ToJson(report));
}

}  // namespace passel::job
