// status_view.h - a status of a running job, as who asks for it reads it: job/job_status.h writes
// it.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace passel::job {

struct DataView {
  std::string directory;
};

struct ModeView {
  std::string mode;
  std::int64_t since = 0;
};

struct ChangeView {
  std::string mode;
  std::vector<std::string> waits_for;
};

struct ShadowView {
  std::optional<double> age_seconds;
  std::int64_t global_step = 0;
};

struct WorkerView {
  std::string task, phase, device;
  int pid = 0;
  std::uint64_t local_steps = 0;
  Json metrics = Json::MakeObject();
  double loss = std::numeric_limits<double>::quiet_NaN();  // JSON has null for what is not finite
  double heartbeat_age_seconds = 0;
};

struct RatesView {
  double learning_rate = 0, weight_decay = 0;
  friend bool operator==(const RatesView&, const RatesView&) = default;
};

struct ArenaView {
  std::string mode, optimizer;
  std::uint32_t mode_number = 0;
  std::int64_t mode_since = 0, global_step = 0;
  std::optional<std::int64_t> target_step;
  std::optional<double> started;  // seconds since 1970
  std::uint64_t parameters = 0, bytes = 0, local_steps = 0;
  int shards = 0, max_workers = 0;
  std::uint32_t scale_number = 0;  // of the last wish for workers that was done
  double steps_per_second = 0;
  bool stopped = false;
  std::optional<ShadowView> shadow;
  std::optional<ChangeView> changing;
  std::vector<ModeView> modes;
  std::vector<RatesView> rates;  // of each group; empty: none were set
  std::vector<WorkerView> workers;
};

struct StatusView {
  int pid = 0;
  bool alone = false;  // a job without a ps
  std::string chief = "worker/0";
  DataView data;  // "" if it has not said where its images come from
  std::optional<ArenaView> arena;
};

/// What is not shown here is passed over: a ps of another build may say more. Errors: kDataLoss: it
/// says less.
Result<StatusView> ReadStatus(const std::string& job, const Json& json);

}  // namespace passel::job
