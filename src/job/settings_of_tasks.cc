// The settings that say who runs where: of a whole job, of one task, of its devices.

#include <fmt/core.h>

#include "cluster/cluster_spec.h"
#include "job/settings_table.h"
#include "train/preset.h"

namespace passel::job {

SettingGroup JobGroup() {
  using S = TrainSettings;
  return {
      "Job",
      {{"ps", At<&S::ps>(), "Number of ps tasks. 0: one process without a ps, which is one worker",
        InShortHelp(Only("train"))},
       {"workers", At<&S::workers>(), "Number of worker tasks; unasked at most one for each GPU",
        InShortHelp(Only("train"))},
       {"max_workers", At<&S::max_workers>(),
        "Keep memory and places for so many workers: passel ctl scale changes their number while "
        "they train. Default: no more than it begins with"},
       {"config", At<&S::config>(), "YAML or JSON file with values for these flags", kNotInFile},
       {"job_id", At<&S::job_id>(), "Name of the job, for passel ctl. Default: job-<process id>"},
       {"max_restarts", At<&S::max_restarts>(),
        "How often a worker that died is started again within --restart_window, at most. A ps is "
        "always started again, unless it dies again and again at its start",
        Within(0, 1000)},
       {"restart_window", At<&S::restart_window>(),
        "Seconds for which a restart counts. 0: until the job ends", Within(0, 31536000, " s")},
       {"grace", At<&S::grace>(),
        "Seconds from the wish to end (Ctrl-C, SIGTERM) to the end. Tasks that have not ended are "
        "killed when a fifth of it, at most 5 s, is left",
        Within(0.1, 3600, " s")},
       {"print_placement", At<&S::print_placement>(),
        "Print on which ps each variable would be, and end", kNotInFile},
       {"evaluator", At<&S::evaluator>(),
        "One more process evaluates the values on the test images while they are trained"},
       {"save", At<&S::save>(),
        "Write the trained variables to this .safetensors file, after Ctrl-C too", InShortHelp()},
       {"report", At<&S::report>(),
        "Write the results as JSON to this file. -: to standard output, and everything else to "
        "standard error"},
       {"report_html", At<&S::report_html>(),
        "Write a page of the run to this file, with curves; needs Python's matplotlib"},
       {"output_dir", At<&S::output_dir>(),
        "What each task prints goes to a file in this folder, too: worker_0.log", Only("run")}}};
}

SettingGroup TaskGroup() {
  using S = TaskSettings;
  return {
      "Task",
      {{"job_name", At<&S::job_name>(),
        "ps, worker, chief (or master), evaluator. Where no cluster is named, here, in the "
        "environment or in --config, one process trains alone",
        InShortHelp()},
       {"task_index", At<&S::task_index>(), "Which of the tasks of that job it is, from 0",
        InShortHelp()},
       {"ps_hosts", At<&S::ps_hosts>(), "host:port,... of all ps, the same for every task",
        InShortHelp()},
       {"worker_hosts", At<&S::worker_hosts>(),
        "host:port,... of all workers. A ps opens its port if the lists name several hosts, a "
        "worker never does",
        InShortHelp()},
       {"max_workers", At<&S::max_workers>(),
        "Keep memory for so many workers, the same for every task: more than --worker_hosts "
        "names may join while others train. Default: no more than those"},
       {"join", At<&S::join>(),
        "Train as one more worker of the job that runs, in a place that is free", kNotInFile},
       {"config", At<&S::config>(),
        "YAML or JSON file with values for these flags. Typed flags and environment variables "
        "come first",
        kNotInFile},
       {"print_config", At<&S::print_config>(),
        "Print every setting and where it comes from, and end", InShortHelp(kNotInFile)},
       {"print_placement", At<&S::print_placement>(),
        "Print on which ps each variable would be, and end", kNotInFile},
       {"job_id", At<&S::job_id>(),
        "Name of the job, for passel ctl. Default: made from the address of ps 0"},
       {"token_file", At<&S::token_file>(),
        "32 secret bytes that the tasks share, in a file of this user or root that nobody else "
        "can use. The first task makes it; where the lists name several hosts, the first on the "
        "host of ps/0, and it is copied to the others"},
       {"insecure_no_auth", At<&S::insecure_no_auth>(),
        "On several hosts: let in whoever reaches the port of a ps, without --token_file. Every "
        "task must want it"},
       {"lease", At<&S::lease>(),
        "Between hosts: seconds without a word after which the other end of a connection counts as "
        "gone, and the connection is made anew. Of two tasks with different ones both go by the "
        "shorter",
        Within(1, 3600, " s")},
       {"fabric_provider",
        At<&S::fabric_provider>(),
        "Between hosts parameters travel by this provider of libfabric, in clear text: "
        "tcp;ofi_rxm; shm, for containers of one host; others, such as verbs and efa, have never "
        "been run here. The same for every task. Default: by TCP, sealed, without libfabric",
        {.shown = "sealed TCP"}},
       {"fabric_iface", At<&S::fabric_iface>(),
        "With --fabric_provider: the network interface of this host that parameters travel by. "
        "Default: the one that this host is reached by"},
       {"fabric_port", At<&S::fabric_port>(),
        "With --fabric_provider: the first of 256 ports of which each pair of a worker and a ps "
        "takes one on both hosts. 0: any that are free",
        Within(0, 65280)},
       {"fabric_spin_us", At<&S::fabric_spin_us>(),
        "Between hosts: for how many microseconds after the last message a worker that waits for a "
        "ps polls before it sleeps. 0: it sleeps at once; 1000000: it polls as long as a ps takes. "
        "Default: 1000 with --fabric_provider while there are processors enough for all threads of "
        "this "
        "host, else 0",
        Within(0, 1e6)},
       {"grace", At<&S::grace>(),
        "Seconds that a ps or the chief has for the last checkpoint once it is told to go; a fifth "
        "of it, at most 5 s, stays unused",
        Within(0.1, 3600, " s")},
       {"save", At<&S::save>(), "The chief writes the variables to this .safetensors file"},
       {"report", At<&S::report>(),
        "ps/0 writes what the job achieved as JSON to this file when it ends. -: to standard "
        "output, and everything else to standard error",
        kNotInFile},
       {"existing_servers", At<&S::existing_servers>(),
        "A worker opens no endpoint of its own and uses the servers that run"}}};
}

// What a supervisor tells its children; descriptors are inherited.
SettingGroup ChildGroup() {
  using S = TaskSettings;
  return {"",
          {{"supervised", At<&S::supervised>(), ""},
           {"resume_from", At<&S::resume_from>(), ""},
           {"checkpoint_folder", At<&S::checkpoint_folder>(), ""},
           {"restarted", At<&S::restarted>(), ""},
           {"had_gpu", At<&S::had_gpu>(), ""},
           {"listen_fd", At<&S::listen_fd>(), ""},
           {"arena_fd", At<&S::arena_fd>(), ""},
           {"data_fd", At<&S::data_fd>(), ""},
           {"error_fd", At<&S::error_fd>(), ""},
           {"job_data", At<&S::job_data>(), ""}}};
}

SettingGroup DeviceGroup() {
  using S = DeviceSettings;
  using L = LaunchSettings;
  return {
      "Devices",
      {{"device", At<&S::device>(),
        "auto: a GPU where one can be used, else the CPU, and a line that says why; cpu; cuda: a "
        "GPU, or an error; cuda:UUID: that one",
        InShortHelp(kNotToChild)},  // of a child its supervisor decides
       {"num_gpus", At<&S::num_gpus>(),
        "Number of GPUs of this machine to use: worker i takes number i mod N. 0: the CPU"},
       {"allow_soft_placement", At<&S::allow_soft_placement>(),
        "Compute on the CPU where there is no GPU, rather than fail"},
       {"log_device_placement", At<&S::log_device_placement>(),
        "Log the device of every variable and of the computation"},
       {"per_process_gpu_memory_fraction", At<&S::per_process_gpu_memory_fraction>(),
        "Share of the GPU's memory for each task, above 0 and up to 1"},
       {"device_filters", At<&S::device_filters>(),
        "Devices that this task may use, e.g. /job:ps,/job:worker/task:0", Only("task")},
       {"gpus", At<&L::gpus>(),
        "GPUs to compute on, one worker each: all, or a list of indices (0,2), MIG instances (0:1) "
        "and UUIDs, as passel topology shows them. Worker i computes on the one at place i modulo "
        "their number",
        kList},
       {"workers_per_gpu", At<&L::workers_per_gpu>(),
        "Number of workers that share each of --gpus. Default: 1", Within(1, kMaxWorkers)},
       {"bind",
        At<&L::bind>(),
        "Where workers run: none: anywhere; numa: on the NUMA node of their GPU (CPU workers: on "
        "the nodes in turn); core: on cores of their own; auto: GPU workers as numa, CPU workers "
        "as core, where the machine allows it",
        {.alias = "pin"}},
       {"topology", At<&L::topology>(),
        "With --dry_run: the machine that passel topology --json recorded in this file, instead "
        "of this one"},
       {"dry_run", At<&L::dry_run>(),
        "Print where each task would run, with its GPU, processors and environment, and end"}}};
}

SettingGroup PresetGroup() {
  const std::string help =
      fmt::format("Take the flags of a reference program: {}. A flag that is given wins over it",
                  PresetNames());
  return {"Preset",
          {{"preset", At<&TrainSettings::preset>(), help, InShortHelp()},
           {"preset", At<&TaskSettings::preset>(), help, InShortHelp()}}};
}

}  // namespace passel::job
