#include "job/job_status.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "compute/matrix_kernels.h"
#include "store/membership.h"
#include "store/rates.h"
#include "store/scale.h"

namespace passel::job {
namespace {

template <typename T>
T Read(const std::atomic<T>& word) {
  return word.load(std::memory_order_relaxed);
}

double SecondsSince(std::int64_t monotonic_ns) {
  return 1e-9 * static_cast<double>(MonotonicNs() - monotonic_ns);
}

Json Describe(const HistogramSummary& h) {
  return {{"count", h.count}, {"p50", h.p50}, {"p99", h.p99}, {"p999", h.p999}, {"max", h.maximum}};
}

Json Events(const EventRing& ring, const WorkerNames& names) {
  Json events = Json::MakeList();
  const std::uint64_t last = Read(ring.next);
  const std::uint64_t count = std::min<std::uint64_t>(last, EventRing::kRecords);
  for (std::uint64_t number = last - count + 1; number <= last; ++number) {
    const EventRecord& r = ring.records[(number - 1) % EventRing::kRecords];
    if (r.number.load(std::memory_order_acquire) != number) continue;
    const TaskState state = TaskState::Unpack(Read(r.state));
    Json event = {{"seconds_ago", SecondsSince(Read(r.time_ns))},
                  {"task", names(Read(r.worker))},
                  {"phase", PhaseName(state.phase)},
                  {"epoch", state.epoch},
                  {"pid", Read(r.pid)},
                  {"global_step", Read(r.global_step)}};
    // Overwritten while we read: leave it out.
    if (r.number.load(std::memory_order_acquire) == number) events.Add(std::move(event));
  }
  return events;
}

}  // namespace

JobStatus ReadJobStatus(const ShardMemory& memory) {
  JobStatus status;
  status.modes = ModesSoFar(memory);
  if (const std::optional<ModeWord> wish = WishedMode(memory)) status.wish = wish->setting;
  status.rates = RatesNow(memory);
  status.global_step = Read(memory.state->global_step);
  status.restored_step = Read(memory.state->restored_step);
  status.restored_local_steps =
      static_cast<std::uint64_t>(Read(memory.state->restored_local_steps));
  // Of the mode before that step nothing is known, unless a schedule says it.
  if (!status.modes.empty() && status.modes.front().since == 0) {
    status.modes.front().since = status.restored_step;
  }
  status.initialized = Read(memory.state->initialized) != 0;
  status.stopped = Read(memory.state->stop) != 0;
  std::vector<const Histogram*> staleness;
  std::vector<const Histogram*> latency;
  for (const Member& member : Membership(memory)) {
    const WorkerCounters& c = memory.tasks[member.worker].counters;
    if (member.phase == Phase::kSpare) {  // it may have steps of a checkpoint
      status.local_steps += member.local_steps;
      continue;
    }
    WorkerStatus w;
    w.member = member;
    w.remote = IsRepresented(memory, member.worker, member.epoch);
    w.counts = WorkerCounts(c);
    w.first_step_ns = Read(c.first_step_ns);
    w.last_step_ns = Read(c.last_step_ns);
    w.loss = Read(c.loss);
    w.accuracy = Read(c.accuracy);
    w.final_accuracy = Read(c.final_accuracy);
    w.device = DeviceOf(Read(c.device));
    w.kernels = KernelsOf(Read(c.device));
    w.metrics = ReadMetrics(memory.tasks[member.worker].metrics);
    status.local_steps += member.local_steps;
    staleness.push_back(&c.staleness);
    latency.push_back(&c.push_latency_ns);
    status.workers.push_back(w);
  }
  status.staleness = Summarize(staleness);
  status.push_latency_ns = Summarize(latency);
  status.staleness_buckets = Buckets(staleness);
  status.push_latency_buckets = Buckets(latency);
  return status;
}

std::int64_t FirstStepNs(const JobStatus& status) {
  std::int64_t first = 0;
  for (const WorkerStatus& w : status.workers) {
    if (w.first_step_ns != 0 && (first == 0 || w.first_step_ns < first)) first = w.first_step_ns;
  }
  return first;
}

std::int64_t LastStepNs(const JobStatus& status) {
  std::int64_t last = 0;
  for (const WorkerStatus& w : status.workers) last = std::max(last, w.last_step_ns);
  return last;
}

std::vector<Metric> MeanMetrics(const JobStatus& status) {
  std::vector<Metric> means;
  std::vector<int> counts;
  for (const WorkerStatus& w : status.workers) {
    for (const Metric& metric : w.metrics) {
      const auto known = std::ranges::find(means, metric.name, &Metric::name);
      if (known == means.end()) {
        means.push_back(metric);
        counts.push_back(1);
      } else {
        known->value += metric.value;
        ++counts[static_cast<std::size_t>(known - means.begin())];
      }
    }
  }
  for (std::size_t i = 0; i < means.size(); ++i) means[i].value /= counts[i];
  return means;
}

std::string InWords(const Metric& metric, int digits) {
  return std::isnan(metric.value) ? "nan" : fmt::format("{:.{}g}", metric.value, digits);
}

Json Describe(const std::vector<Metric>& metrics) {
  Json described = Json::MakeObject();
  for (const Metric& metric : metrics) {
    described.AddMember(
        metric.name, std::isfinite(metric.value) ? Json(metric.value) : Json(InWords(metric, 4)));
  }
  return described;
}

Json Describe(const std::vector<GroupRates>& rates) {
  Json described = Json::MakeList();
  for (const GroupRates& group : rates) {
    described.Add({{"learning_rate", group.learning_rate}, {"weight_decay", group.weight_decay}});
  }
  return described;
}

std::string KernelsOf(std::uint64_t word) { return MatrixKernelsOf(word >> 8); }

const char* DeviceName(std::uint64_t device) {
  return device == 2 ? "gpu" : device == 1 ? "cpu" : "unknown";
}

namespace {

// Since the first step of any worker: until now, or until the last step where no worker is running
// any more. Zero before the first step.
double TrainingSeconds(const JobStatus& status) {
  const std::int64_t first = FirstStepNs(status);
  std::int64_t last = 0;
  bool running = false;
  for (const WorkerStatus& w : status.workers) {
    running = running || w.member.phase == Phase::kRunning;
    last = std::max(last, w.last_step_ns);
  }
  if (first == 0) return 0;
  return 1e-9 * static_cast<double>((running ? MonotonicNs() : last) - first);
}

// Null where the values that the ps hold are those of the job.
Json DescribeShadow(const shm::Arena& arena) {
  if (!arena.plan().on_device) return {};
  const DeviceState& device = arena.memory().state->device;
  const std::int64_t at = device.shadow_ns.load(std::memory_order_acquire);
  if (at == 0) return {{"age_seconds", nullptr}, {"global_step", nullptr}};
  return {{"age_seconds", SecondsSince(at)}, {"global_step", Read(device.shadow_step)}};
}

}  // namespace

Json DescribeJob(const shm::Arena& arena, const WorkerNames& names) {
  const ShardMemory& memory = arena.memory();
  const JobStatus status = ReadJobStatus(memory);
  Json workers = Json::MakeList();
  for (const WorkerStatus& w : status.workers) {
    Json& worker = *workers.Add(
        {{"task", names(w.member.worker)},
         {"phase", PhaseInWords(w.member)},
         {"pid", w.member.pid},
         {"remote", w.remote},
         {"epoch", w.member.epoch},
         {"device", DeviceName(w.device)},
         {"local_steps", w.member.local_steps},
         {"heartbeat_age_seconds", 1e-9 * static_cast<double>(w.member.heartbeat_age_ns)},
         {"loss", w.loss},
         {"accuracy", w.accuracy}});
    w.counts.DescribeCounts(&worker);
    w.counts.DescribeTimes(&worker["seconds"]);
    worker["metrics"] = Describe(w.metrics);
  }
  Json modes = Json::MakeList();
  for (const PastMode& mode : status.modes) {
    modes.Add({{"number", mode.number}, {"mode", mode.setting.ToString()}, {"since", mode.since}});
  }
  const ModeWord current = CurrentMode(memory);
  Json wish;  // null: none
  if (status.wish) {
    wish = {{"mode", status.wish->ToString()}, {"waits_for", Json::MakeList()}};
    for (const Member& member : MissingAtChange(memory, current.number + 1)) {
      wish["waits_for"].Add(names(member.worker));
    }
  }
  const double seconds = TrainingSeconds(status);
  const auto rate = [seconds](auto steps) {
    return seconds > 0 ? static_cast<double>(steps) / seconds : 0;
  };
  const std::int64_t target = Read(memory.state->target_step);
  const std::int64_t started = Read(memory.state->started_ns);
  Json job = {{"shadow", DescribeShadow(arena)},
              {"mode", ModeName(current.setting.mode)},
              {"mode_number", current.number},
              {"mode_since", status.modes.empty() ? 0 : status.modes.back().since},
              {"modes", modes},
              {"changing", wish},
              {"optimizer", OptimizerName(arena.plan().optimizer.kind)},
              {"rates", Describe(status.rates)},
              {"parameters", arena.plan().variables.TotalElements()},
              {"shards", arena.plan().variables.shards()},
              {"bytes", arena.bytes()},
              {"global_step", status.global_step},
              {"target_step", target != 0 ? Json(target) : Json()},
              {"local_steps", status.local_steps},
              {"steps_per_second", rate(status.LocalStepsHere())},
              {"updates_per_second", rate(status.GlobalStepsHere())},
              {"started", started != 0 ? Json(WallSeconds() - SecondsSince(started)) : Json()},
              {"initialized", status.initialized},
              {"stopped", status.stopped},
              {"staleness", Describe(status.staleness)},
              {"push_latency_ns", Describe(status.push_latency_ns)},
              {"workers", workers},
              {"max_workers", memory.num_workers},
              {"scaled_to", WantedWorkers(memory)},
              {"scale_number", DoneScale(memory).number},
              {"events", Events(*memory.events, names)}};
  // The number of each mode that takes one: 0 but for the mode in force.
  for (const ModeTraits& mode : kModes) {
    if (mode.flag.empty()) continue;
    job[mode.flag] = mode.flag == current.setting.traits().flag ? current.setting.number : 0;
  }
  return job;
}

}  // namespace passel::job
