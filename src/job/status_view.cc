#include "job/status_view.h"

#include <fmt/core.h>

#include "base/json_fields.h"

namespace passel::job {

void JsonMembers(JsonReader& members, DataView& data) {
  members.MayHaveOthers();
  members.IfAny("directory", data.directory);
}
void JsonMembers(JsonReader& members, ModeView& mode) {
  members.MayHaveOthers();
  members("mode", mode.mode);
  members("since", mode.since);
}
void JsonMembers(JsonReader& members, ChangeView& change) {
  members.MayHaveOthers();
  members("mode", change.mode);
  members("waits_for", change.waits_for);
}
void JsonMembers(JsonReader& members, ShadowView& shadow) {
  members.MayHaveOthers();
  members.IfAny("age_seconds", shadow.age_seconds);
  members.IfAny("global_step", shadow.global_step);
}
void JsonMembers(JsonReader& members, WorkerView& worker) {
  members.MayHaveOthers();
  members("task", worker.task);
  members("phase", worker.phase);
  members("device", worker.device);
  members("pid", worker.pid);
  members("local_steps", worker.local_steps);
  members.IfAny("loss", worker.loss);
  members.IfAny("metrics", worker.metrics);
  members("heartbeat_age_seconds", worker.heartbeat_age_seconds);
}
void JsonMembers(JsonReader& members, RatesView& rates) {
  members.MayHaveOthers();
  members("learning_rate", rates.learning_rate);
  members("weight_decay", rates.weight_decay);
}
void JsonMembers(JsonReader& members, ArenaView& arena) {
  members.MayHaveOthers();
  members("mode", arena.mode);
  members("optimizer", arena.optimizer);
  members("mode_number", arena.mode_number);
  members("mode_since", arena.mode_since);
  members("global_step", arena.global_step);
  members.IfAny("target_step", arena.target_step);
  members.IfAny("started", arena.started);
  members("parameters", arena.parameters);
  members("bytes", arena.bytes);
  members("local_steps", arena.local_steps);
  members("shards", arena.shards);
  members("max_workers", arena.max_workers);
  members("scale_number", arena.scale_number);
  members("steps_per_second", arena.steps_per_second);
  members("stopped", arena.stopped);
  members.IfAny("shadow", arena.shadow);
  members.IfAny("changing", arena.changing);
  members("modes", arena.modes);
  members.IfAny("rates", arena.rates);
  members("workers", arena.workers);
}
void JsonMembers(JsonReader& members, StatusView& status) {
  members.MayHaveOthers();
  members.IfAny("pid", status.pid);
  members.IfAny("alone", status.alone);
  members.IfAny("chief", status.chief);
  members.IfAny("data", status.data);
  members.IfAny("arena", status.arena);
}

Result<StatusView> ReadStatus(const std::string& job, const Json& json) {
  StatusView view;
  if (ReadJson("a status", json, &view).ok()) return view;
  return DataLoss(fmt::format(
      "ps/0 of job {} answered something else than a status: use passel of its build", job));
}

}  // namespace passel::job
