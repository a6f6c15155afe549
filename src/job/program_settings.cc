#include "job/program_settings.h"

#include <algorithm>
#include <array>

#include "optim/hyper_flags.h"

namespace passel::job {
namespace {

// Beside those of the optimizer. The others are about data and models that a program has itself, or
// about what only the program passel does.
constexpr auto kMeaningful = std::to_array<std::string_view>({"job_name",
                                                              "task_index",
                                                              "ps_hosts",
                                                              "worker_hosts",
                                                              "max_workers",
                                                              "job_id",
                                                              "token_file",
                                                              "insecure_no_auth",
                                                              "lease",
                                                              "fabric_spin_us",
                                                              "optimizer",
                                                              "mode",
                                                              "sync_replicas",
                                                              "replicas_to_aggregate",
                                                              "staleness_bound",
                                                              "mode_schedule",
                                                              "checkpoint_dir",
                                                              "save_secs",
                                                              "save_steps",
                                                              "keep_checkpoints",
                                                              "keep_every_hours",
                                                              "resume",
                                                              "checkpoint_consistent",
                                                              "logs_dir",
                                                              "summary_secs",
                                                              "summary_steps",
                                                              "placement",
                                                              "huge_pages",
                                                              "memory_fraction",
                                                              "spin_us",
                                                              "on_stall",
                                                              "stall_limit",
                                                              "start_wait",
                                                              "ps_wait",
                                                              "log_level",
                                                              "log_format",
                                                              "log_file"});

}  // namespace

bool MeansToProgram(std::string_view setting) {
  return std::ranges::find(kMeaningful, setting) != kMeaningful.end() ||
         std::ranges::any_of(kHyperFlags, [&](const HyperFlag& f) { return f.name == setting; });
}

}  // namespace passel::job
