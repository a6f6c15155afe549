#include "shm/job_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "store/membership.h"

namespace passel::shm {
namespace {

template <typename T>
T Read(const std::atomic<T>& word) {
  return word.load(std::memory_order_relaxed);
}

double Seconds(const std::atomic<std::uint64_t>& ns) {
  return 1e-9 * static_cast<double>(Read(ns));
}

nlohmann::json Describe(const HistogramSummary& h) {
  return {{"count", h.count}, {"p50", h.p50}, {"p99", h.p99}, {"p999", h.p999}, {"max", h.maximum}};
}

nlohmann::json Events(const EventRing& ring, const WorkerNames& names) {
  nlohmann::json events = nlohmann::json::array();
  const std::uint64_t last = Read(ring.next);
  const std::uint64_t count = std::min<std::uint64_t>(last, EventRing::kRecords);
  for (std::uint64_t number = last - count + 1; number <= last; ++number) {
    const EventRecord& r = ring.records[(number - 1) % EventRing::kRecords];
    if (r.number.load(std::memory_order_acquire) != number) continue;
    const TaskState state = TaskState::Unpack(Read(r.state));
    nlohmann::json event = {
        {"seconds_ago", 1e-9 * static_cast<double>(MonotonicNs() - Read(r.time_ns))},
        {"task", names(Read(r.worker))},
        {"phase", PhaseName(state.phase)},
        {"epoch", state.epoch},
        {"pid", Read(r.pid)},
        {"global_step", Read(r.global_step)}};
    // Overwritten while we read: leave it out.
    if (r.number.load(std::memory_order_acquire) == number) events.push_back(std::move(event));
  }
  return events;
}

}  // namespace

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kExpected:
      return "expected";
    case Phase::kJoining:
      return "joining";
    case Phase::kRunning:
      return "running";
    case Phase::kDone:
      return "done";
    case Phase::kDead:
      return "dead";
    case Phase::kEvicted:
      return "evicted";
    case Phase::kLeft:
      return "left";
  }
  return "unknown";
}

std::string_view PhaseInWords(const Member& member) {
  const bool came = member.epoch > 0 || member.phase != Phase::kEvicted;
  return came ? PhaseName(member.phase) : "never started";
}

JobStatus ReadJobStatus(const Arena& arena) { return ReadJobStatus(arena.memory()); }

JobStatus ReadJobStatus(const ShardMemory& memory) {
  JobStatus status;
  status.modes = ModesSoFar(memory);
  if (const std::optional<ModeWord> wish = WishedMode(memory)) {
    status.wish = wish->setting;
    status.wish_waits_for = MissingAtChange(memory, wish->number);
  }
  status.global_step = Read(memory.state->global_step);
  status.target_step = Read(memory.state->target_step);
  status.started_ns = Read(memory.state->started_ns);
  status.version = Read(memory.state->version);
  status.initialized = Read(memory.state->initialized) != 0;
  status.stopped = Read(memory.state->stop) != 0;
  std::vector<const Histogram*> staleness;
  std::vector<const Histogram*> latency;
  for (const Member& member : Membership(memory)) {
    const WorkerCounters& c = memory.tasks[member.worker].counters;
    WorkerStatus w;
    w.member = member;
    w.dropped = Read(c.dropped);
    w.skipped = Read(c.skipped);
    w.max_clock_lead = Read(c.max_clock_lead);
    w.half_applied = Read(c.half_applied);
    w.fused_updates = Read(c.fused_updates);
    w.overlapped_blocks = Read(c.overlapped_blocks);
    w.taken_over_blocks = Read(c.taken_over_blocks);
    w.pull_seconds = Seconds(c.pull_ns);
    w.compute_seconds = Seconds(c.compute_ns);
    w.push_seconds = Seconds(c.push_ns);
    w.wait_seconds = Seconds(c.wait_ns);
    w.first_step_ns = Read(c.first_step_ns);
    w.last_step_ns = Read(c.last_step_ns);
    w.loss = Read(c.loss);
    w.accuracy = Read(c.accuracy);
    w.final_accuracy = Read(c.final_accuracy);
    w.device = Read(c.device);
    status.local_steps += member.local_steps;
    staleness.push_back(&c.staleness);
    latency.push_back(&c.push_latency_ns);
    status.workers.push_back(w);
  }
  status.staleness = Summarize(staleness);
  status.push_latency_ns = Summarize(latency);
  return status;
}

MeanRates RatesOf(const JobStatus& status, std::int64_t now_ns) {
  std::int64_t first = 0, last = 0;
  bool running = false;
  for (const WorkerStatus& w : status.workers) {
    running = running || w.member.phase == Phase::kRunning;
    if (w.first_step_ns == 0) continue;
    first = first == 0 ? w.first_step_ns : std::min(first, w.first_step_ns);
    last = std::max(last, w.last_step_ns);
  }
  const double seconds = 1e-9 * static_cast<double>((running ? now_ns : last) - first);
  if (first == 0 || seconds <= 0) return {};
  return {static_cast<double>(status.local_steps) / seconds,
          static_cast<double>(status.global_step) / seconds};
}

const char* DeviceName(std::uint64_t device) {
  return device == 2 ? "gpu" : device == 1 ? "cpu" : "unknown";
}

namespace {

// Seconds since 1970 of a moment in the past; null for 0.
nlohmann::json WallTimeOf(std::int64_t monotonic_ns) {
  if (monotonic_ns == 0) return {};
  return WallSeconds() - 1e-9 * static_cast<double>(MonotonicNs() - monotonic_ns);
}

// Null where the values that the ps hold are those of the job.
nlohmann::json DescribeShadow(const Arena& arena) {
  if (!arena.plan().on_device) return {};
  const DeviceState& device = arena.memory().state->device;
  const std::int64_t at = device.shadow_ns.load(std::memory_order_acquire);
  if (at == 0) return {{"age_seconds", nullptr}, {"global_step", nullptr}};
  return {{"age_seconds", 1e-9 * static_cast<double>(MonotonicNs() - at)},
          {"global_step", Read(device.shadow_step)}};
}

}  // namespace

std::string DescribeJob(const Arena& arena, const WorkerNames& names) {
  const JobStatus status = ReadJobStatus(arena);
  nlohmann::json workers = nlohmann::json::array();
  for (const WorkerStatus& w : status.workers) {
    workers.push_back(
        {{"task", names(w.member.worker)},
         {"phase", PhaseInWords(w.member)},
         {"pid", w.member.pid},
         {"epoch", w.member.epoch},
         {"device", DeviceName(w.device)},
         {"local_steps", w.member.local_steps},
         {"heartbeat_age_seconds", 1e-9 * static_cast<double>(w.member.heartbeat_age_ns)},
         {"loss", w.loss},
         {"accuracy", w.accuracy},
         {"dropped", w.dropped},
         {"half_applied", w.half_applied},
         {"fused_updates", w.fused_updates},
         {"max_clock_lead", w.max_clock_lead},
         {"overlapped_blocks", w.overlapped_blocks},
         {"taken_over_blocks", w.taken_over_blocks}});
  }
  const ModeWord current = CurrentMode(arena.memory());
  nlohmann::json modes = nlohmann::json::array();
  std::int64_t since = 0;
  for (const PastMode& mode : status.modes) {
    modes.push_back(
        {{"number", mode.number}, {"mode", mode.setting.ToString()}, {"since", mode.since}});
    since = mode.since;
  }
  nlohmann::json wish;  // null: none
  if (status.wish) {
    nlohmann::json waits_for = nlohmann::json::array();
    for (const Member& member : status.wish_waits_for) waits_for.push_back(names(member.worker));
    wish = {{"mode", status.wish->ToString()}, {"waits_for", waits_for}};
  }
  const MeanRates rates = RatesOf(status, MonotonicNs());
  nlohmann::json target;  // null: none
  if (status.target_step != 0) target = status.target_step;
  const nlohmann::json json = {{"shadow", DescribeShadow(arena)},
                               {"mode", ModeName(current.setting.mode)},
                               {"mode_number", current.number},
                               {"mode_since", since},
                               {"modes", modes},
                               {"changing", wish},
                               {"replicas_to_aggregate", current.setting.replicas_to_aggregate},
                               {"staleness_bound", current.setting.staleness_bound},
                               {"optimizer", OptimizerName(arena.plan().optimizer.kind)},
                               {"parameters", arena.plan().variables.TotalElements()},
                               {"shards", arena.plan().variables.shards()},
                               {"bytes", arena.bytes()},
                               {"global_step", status.global_step},
                               {"target_step", target},
                               {"local_steps", status.local_steps},
                               {"steps_per_second", rates.steps_per_second},
                               {"updates_per_second", rates.updates_per_second},
                               {"started", WallTimeOf(status.started_ns)},
                               {"initialized", status.initialized},
                               {"stopped", status.stopped},
                               {"staleness", Describe(status.staleness)},
                               {"push_latency_ns", Describe(status.push_latency_ns)},
                               {"workers", workers},
                               {"events", Events(*arena.memory().events, names)}};
  return json.dump();
}

}  // namespace passel::shm
