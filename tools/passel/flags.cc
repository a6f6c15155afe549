#include "tools/passel/flags.h"

namespace passel {

namespace {

constexpr const char* kTrainLimit = "--csv_train_limit";
constexpr const char* kTrainLimitHelp =
    "Read only the first so many examples of mnist_train.csv; 0: all";
constexpr const char* kTestLimit = "--csv_test_limit";
constexpr const char* kTestLimitHelp =
    "Read only the first so many examples of mnist_test.csv; 0: all";

}  // namespace

void AddCsvLimitFlags(Command& app, std::int64_t* train, std::int64_t* test) {
  app.Add(kTrainLimit, train, kTrainLimitHelp).Group("Data").ShowDefault();
  app.Add(kTestLimit, test, kTestLimitHelp).Group("Data").ShowDefault();
}

void AddCsvLimitFlags(Command& app, std::optional<std::int64_t>* train,
                      std::optional<std::int64_t>* test) {
  app.Add(kTrainLimit, train, kTrainLimitHelp).Group("Data");
  app.Add(kTestLimit, test, kTestLimitHelp).Group("Data");
}

void AddLocationFlags(Command& app, job::SourceSettings* flags, const std::string& help) {
  app.Add("--data_dir", &flags->data_dir, help).Group("Data");
  app.Add("--download_url", &flags->download_url,
          "URL,... Base URLs (http or https) from which MNIST's four files are downloaded "
          "where no data is found; each file from the first that has it")
      .Group("Data")
      .SplitAt(',')
      .ShowDefault(kMnistUrl);
}

void AddSourceFlags(Command& app, job::SourceSettings* flags) {
  AddLocationFlags(app, flags,
                   "Directory or file: four IDX files, plain or gzip, mnist.npz, or "
                   "mnist_train.csv and mnist_test.csv. Else $PASSEL_DATA_DIR, else where the "
                   "preset has it, else ../shared/data/mnist, else a download, else generated "
                   "digits");
  app.AddSwitch("--fake_data", &flags->fake_data,
                "No data at all: 10000 images of 28 x 28 pixels, all white, of class 0, for each "
                "set, to try a job out")
      .Group("Data");
}

void AddDataFlags(Command& app, job::DataSettings* flags) {
  AddSourceFlags(app, &flags->source);
  AddCsvLimitFlags(app, &flags->csv_train_limit, &flags->csv_test_limit);
}

void AddParameterFlags(Command& app, job::ParameterSettings* flags) {
  app.Add("--params,--model", &flags->params, "A .safetensors file of passel train --save")
      .Group("Parameters");
  app.Add("--job", &flags->job,
          "A running job of this user on this host (passel ctl list): a copy of its values "
          "as they are now")
      .Group("Parameters");
  app.Add("--wait", &flags->wait,
          "With --job: give up after so many seconds without an answer or first values")
      .Group("Parameters")
      .ShowDefault()
      .KeepTyped(&flags->typed);
}

void AddDeviceFlags(Command& command, job::DeviceSettings* f) {
  command
      .Add("--device", &f->device,
           "auto: a GPU where one can be used, else the CPU, and a line that says why; cpu; "
           "cuda: a GPU, or an error; cuda:UUID: that one")
      .Group("Devices")
      .ShowDefault();
  command
      .Add("--num_gpus", &f->num_gpus,
           "GPUs of this machine; worker i takes number i mod N. 0: the CPU")
      .Group("Devices")
      .ShowDefault();
  command
      .AddSwitch("--allow_soft_placement,!--noallow_soft_placement", &f->allow_soft_placement,
                 "Compute on the CPU where there is no GPU, rather than fail. Default: true")
      .ShowDefault("true")
      .Group("Devices");
  command
      .AddSwitch("--log_device_placement", &f->log_device_placement,
                 "Log the device of every variable and of the computation")
      .Group("Devices");
  command
      .Add("--per_process_gpu_memory_fraction", &f->per_process_gpu_memory_fraction,
           "Share of the GPU's memory for each task, above 0 and up to 1")
      .Group("Devices");
}

void AddTaskFlags(Command& command, job::TaskSettings* f) {
  const auto text = [&](const char* name, std::string* value, const char* help) {
    command.Add(name, value, help).Group("Task");
  };
  text(
      "--job_name", &f->job_name,
      "ps, worker, chief (or master), evaluator. Without a cluster, here, in the environment or in "
      "--config, one process trains alone");
  command.Add("--task_index", &f->task_index, "Which one, from 0").Group("Task");
  text("--ps_hosts", &f->ps_hosts, "host:port,... of all ps, the same for every task");
  text("--worker_hosts", &f->worker_hosts,
       "host:port,... of all workers. Addresses name tasks; no port is opened");
  text("--config", &f->config,
       "YAML or JSON file with values for these flags. Typed flags and environment variables "
       "come first");
  command
      .AddSwitch("--print_config", &f->print_config,
                 "Print every setting and where it comes from, and end")
      .Group("Task");
  command
      .AddSwitch("--print_placement", &f->print_placement,
                 "Print on which ps each variable would be, and end")
      .Group("Task");
  text("--job_id", &f->job_id, "Default: made from the address of ps 0");
  text("--token_file", &f->token_file,
       "32 secret bytes that the tasks share, in a file of this user or root that nobody else can "
       "use; the first task makes it");
  text("--save", &f->save, "chief: write the variables to this .safetensors file");
  command
      .AddSwitch("--existing_servers", &f->existing_servers,
                 "worker: open no endpoint of its own; use the servers that run")
      .Group("Task");

  AddDeviceFlags(command, &f->devices);
  command
      .Add("--device_filters", &f->devices.device_filters,
           "Devices that this task may use, e.g. /job:ps,/job:worker/task:0")
      .Group("Devices")
      .SplitAt(',');

  // For children of a supervisor.
  command.AddSwitch("--supervised", &f->supervised, "").Group("");
  command.AddSwitch("--restarted", &f->restarted, "").Group("");
  command.AddSwitch("--had_gpu", &f->had_gpu, "").Group("");
  command.Add("--listen_fd", &f->listen_fd, "").Group("");
  command.Add("--arena_fd", &f->arena_fd, "").Group("");
  command.Add("--data_fd", &f->data_fd, "").Group("");
  command.Add("--error_fd", &f->error_fd, "").Group("");
  command.Add("--job_data", &f->job_data, "").Group("");
}

void AddLaunchFlags(Command& command, job::LaunchSettings* f) {
  command
      .Add(
          "--gpus", &f->gpus,
          "GPUs to compute on, one worker each: all, or a list of indices (0,2), MIG instances "
          "(0:1) and UUIDs, as passel topology shows them. Worker i computes on the one at place i "
          "modulo their number")
      .Group("Devices");
  command
      .Add("--workers_per_gpu", &f->workers_per_gpu,
           "Workers that share each of --gpus. Default: 1")
      .Group("Devices");
  command
      .Add("--bind,--pin", &f->bind,
           "Where workers run: none: anywhere; numa: on the NUMA node of their GPU (CPU workers: "
           "on the nodes in turn); core: on cores of their own; auto: GPU workers as numa, CPU "
           "workers as core, where the machine allows it")
      .Group("Devices")
      .ShowDefault();
  command
      .Add("--topology", &f->topology,
           "With --dry_run: the machine that passel topology --json recorded in this file, instead "
           "of this one")
      .Group("Devices");
  command
      .AddSwitch("--dry_run", &f->dry_run,
                 "Print where each task would run, with its GPU, processors and environment, and "
                 "end")
      .Group("Devices");
}

}  // namespace passel
