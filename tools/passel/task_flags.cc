#include "tools/passel/task_flags.h"

#include <CLI/CLI.hpp>

namespace passel {

void AddTaskFlags(CLI::App& command, TaskFlags* f) {
  const auto text = [&](const char* name, std::string* value, const char* help) {
    command.add_option(name, *value, help)->group("Task");
  };
  text(
      "--job_name", &f->job_name,
      "ps, worker, chief (or master), evaluator. Without a cluster, here, in the environment or in "
      "--config, one process trains alone");
  command.add_option("--task_index", f->task_index, "Which one, from 0")->group("Task");
  text("--ps_hosts", &f->ps_hosts, "host:port,... of all ps, the same for every task");
  text("--worker_hosts", &f->worker_hosts,
       "host:port,... of all workers. Addresses name tasks; no port is opened");
  text("--config", &f->config,
       "YAML or JSON file with values for these flags. Typed flags and environment variables "
       "come first");
  command
      .add_flag("--print_config", f->print_config,
                "Print every setting and where it comes from, and end")
      ->group("Task");
  command
      .add_flag("--print_placement", f->print_placement,
                "Print on which ps each variable would be, and end")
      ->group("Task");
  text("--job_id", &f->job_id, "Default: made from the address of ps 0");
  text("--token_file", &f->token_file,
       "32 secret bytes that the tasks share, in a file of this user or root that nobody else can "
       "use; the first task makes it");
  text("--save", &f->save, "chief: write the variables to this .safetensors file");
  command
      .add_flag("--existing_servers", f->existing_servers,
                "worker: open no endpoint of its own; use the servers that run")
      ->group("Task");

  AddDeviceFlags(command, &f->devices);
  command
      .add_option("--device_filters", f->devices.device_filters,
                  "Devices that this task may use, e.g. /job:ps,/job:worker/task:0")
      ->group("Devices")
      ->delimiter(',');

  // For children of a supervisor.
  command.add_flag("--supervised", f->supervised)->group("");
  command.add_flag("--restarted", f->restarted)->group("");
  command.add_flag("--had_gpu", f->had_gpu)->group("");
  command.add_option("--listen_fd", f->listen_fd)->group("");
  command.add_option("--arena_fd", f->arena_fd)->group("");
  command.add_option("--data_fd", f->data_fd)->group("");
  command.add_option("--error_fd", f->error_fd)->group("");
  command.add_option("--job_data", f->job_data)->group("");
}

}  // namespace passel
