#include "tools/passel/flags.h"

#include <CLI/CLI.hpp>

namespace passel {

namespace {

constexpr const char* kTrainLimit = "--csv_train_limit";
constexpr const char* kTrainLimitHelp =
    "Read only the first so many examples of mnist_train.csv; 0: all";
constexpr const char* kTestLimit = "--csv_test_limit";
constexpr const char* kTestLimitHelp =
    "Read only the first so many examples of mnist_test.csv; 0: all";

}  // namespace

void KeepTyped(CLI::Option* option, TypedNumbers* typed) {
  option->each([typed, flag = "--" + option->get_lnames().front()](const std::string& text) {
    typed->Keep(flag, text);
  });
}

void AddCsvLimitFlags(CLI::App& app, std::int64_t* train, std::int64_t* test) {
  app.add_option(kTrainLimit, *train, kTrainLimitHelp)->group("Data")->capture_default_str();
  app.add_option(kTestLimit, *test, kTestLimitHelp)->group("Data")->capture_default_str();
}

void AddCsvLimitFlags(CLI::App& app, std::optional<std::int64_t>* train,
                      std::optional<std::int64_t>* test) {
  app.add_option(kTrainLimit, *train, kTrainLimitHelp)->group("Data");
  app.add_option(kTestLimit, *test, kTestLimitHelp)->group("Data");
}

void AddLocationFlags(CLI::App& app, SourceFlags* flags, const std::string& help) {
  app.add_option("--data_dir", flags->data_dir, help)->group("Data");
  app.add_option("--download_url", flags->download_url,
                 "URL,... Base URLs (http or https) from which MNIST's four files are downloaded "
                 "where no data is found; each file from the first that has it")
      ->group("Data")
      ->delimiter(',')
      ->default_str(kMnistUrl);
}

void AddSourceFlags(CLI::App& app, SourceFlags* flags) {
  AddLocationFlags(app, flags,
                   "Directory or file: four IDX files, plain or gzip, mnist.npz, or "
                   "mnist_train.csv and mnist_test.csv. Else $PASSEL_DATA_DIR, else where the "
                   "preset has it, else ../shared/data/mnist, else a download, else generated "
                   "digits");
  app.add_flag("--fake_data", flags->fake_data,
               "No data at all: 10000 images of 28 x 28 pixels, all white, of class 0, for each "
               "set, to try a job out")
      ->group("Data");
}

void AddDataFlags(CLI::App& app, DataFlags* flags) {
  AddSourceFlags(app, &flags->source);
  AddCsvLimitFlags(app, &flags->csv_train_limit, &flags->csv_test_limit);
}

void AddParameterFlags(CLI::App& app, ParameterFlags* flags) {
  app.add_option("--params,--model", flags->params, "A .safetensors file of passel train --save")
      ->group("Parameters");
  app.add_option("--job", flags->job,
                 "A running job of this user on this host (passel ctl list): a copy of its values "
                 "as they are now")
      ->group("Parameters");
  KeepTyped(
      app.add_option("--wait", flags->wait,
                     "With --job: give up after so many seconds without an answer or first values")
          ->group("Parameters")
          ->capture_default_str(),
      &flags->typed);
}

void AddDeviceFlags(CLI::App& command, DeviceFlags* f) {
  command
      .add_option("--device", f->device,
                  "auto: a GPU where one can be used, else the CPU, and a line that says why; cpu; "
                  "cuda: a GPU, or an error; cuda:UUID: that one")
      ->group("Devices")
      ->capture_default_str();
  command
      .add_option("--num_gpus", f->num_gpus,
                  "GPUs of this machine; worker i takes number i mod N. 0: the CPU")
      ->group("Devices")
      ->capture_default_str();
  command
      .add_flag("--allow_soft_placement,!--noallow_soft_placement", f->allow_soft_placement,
                "Compute on the CPU where there is no GPU, rather than fail. Default: true")
      ->default_str("true")
      ->group("Devices");
  command
      .add_flag("--log_device_placement", f->log_device_placement,
                "Log the device of every variable and of the computation")
      ->group("Devices");
  command
      .add_option("--per_process_gpu_memory_fraction", f->per_process_gpu_memory_fraction,
                  "Share of the GPU's memory for each task, above 0 and up to 1")
      ->group("Devices");
}

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

void AddLaunchFlags(CLI::App& command, LaunchFlags* f) {
  const auto group = [](CLI::Option* option) { return option->group("Devices"); };
  group(command.add_option(
      "--gpus", f->gpus,
      "GPUs to compute on, one worker each: all, or a list of indices (0,2), MIG instances (0:1) "
      "and UUIDs, as passel topology shows them. Worker i computes on the one at place i modulo "
      "their number"));
  group(command.add_option("--workers_per_gpu", f->workers_per_gpu,
                           "Workers that share each of --gpus. Default: 1"));
  group(command.add_option(
            "--bind,--pin", f->bind,
            "Where workers run: none: anywhere; numa: on the NUMA node of their GPU (CPU workers: "
            "on the nodes in turn); core: on cores of their own; auto: GPU workers as numa, CPU "
            "workers as core, where the machine allows it"))
      ->capture_default_str();
  group(command.add_option("--topology", f->topology,
                           "With --dry_run: the machine that passel topology --json recorded in "
                           "this file, instead of this one"));
  group(command.add_flag("--dry_run", f->dry_run,
                         "Print where each task would run, with its GPU, processors and "
                         "environment, and end"));
}

}  // namespace passel
