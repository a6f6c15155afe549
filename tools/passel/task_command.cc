// `passel task`: one task of a cluster, in its own terminal, container, or under a supervisor.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/log.h"
#include "tools/passel/commands.h"
#include "tools/passel/job_config.h"
#include "tools/passel/output_path.h"
#include "tools/passel/ps_task.h"
#include "tools/passel/task.h"
#include "tools/passel/worker_task.h"

namespace passel {
namespace {

int RunTask(Task& task) {
  Result<JobConfig> config = CheckJobFlags(task.job);
  if (!config.ok()) return FailTask(config.status());
  if (!task.flags.save.empty()) {
    if (const Status status = CheckOutputPath("--save", task.flags.save); !status.ok()) {
      return FailTask(status);
    }
  }
  if (const Status status = PrepareTask(&task); !status.ok()) return FailTask(status);
  if (task.flags.log_step_count_steps < 1) {
    return FailTask(InvalidArgument(fmt::format("--log_step_count_steps is at least 1, not {}",
                                                task.flags.log_step_count_steps)));
  }
  SetLogName(task.id.ToString());
  if (!task.flags.supervised) {
    fmt::print("job name = {}\ntask index = {}\n", task.id.job, task.id.index);
    std::fflush(stdout);
  }
  return task.id.job == "ps" ? RunPsTask(task, *config) : RunWorkerTask(task, *config);
}

}  // namespace

void AddTaskCommand(CLI::App& app, Run* run) {
  auto task = std::make_shared<Task>();
  CLI::App* command = app.add_subcommand(
      "task", "Run one task of a cluster, a ps or a worker, in its own terminal or container");
  TaskFlags& f = task->flags;
  command->add_option("--job_name", f.job_name, "ps or worker")->group("Task");
  command->add_option("--task_index", f.task_index, "Which one, from 0; worker 0 is the chief")
      ->group("Task");
  command->add_option("--ps_hosts", f.ps_hosts, "host:port,... of all ps, the same for every task")
      ->group("Task");
  command
      ->add_option("--worker_hosts", f.worker_hosts,
                   "host:port,... of all workers. Addresses name tasks; no port is opened")
      ->group("Task");
  command->add_option("--job_id", f.job_id, "Default: made from the two lists of hosts")
      ->group("Task");
  command
      ->add_option("--token_file", f.token_file,
                   "32 secret bytes that the tasks share; the first task makes the file")
      ->group("Task");
  command->add_option("--save", f.save, "worker 0: write the variables to this .safetensors file")
      ->group("Task");
  command
      ->add_option("--log_step_count_steps", f.log_step_count_steps,
                   "Print every so many local steps")
      ->group("Task")
      ->capture_default_str();
  // For children of a supervisor.
  command->add_flag("--supervised", f.supervised)->group("");
  command->add_option("--listen_fd", f.listen_fd)->group("");
  command->add_option("--arena_fd", f.arena_fd)->group("");
  command->add_option("--data_fd", f.data_fd)->group("");
  command->add_option("--error_fd", f.error_fd)->group("");
  AddJobFlags(*command, &task->job);
  command->callback([task, run] { *run = [task] { return RunTask(*task); }; });
}

}  // namespace passel
