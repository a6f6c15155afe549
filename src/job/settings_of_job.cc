// The settings that describe the training, the same in every task of a job; those of the optimizer
// are in settings_of_optimizer.cc.

#include <fmt/core.h>

#include "data/download.h"
#include "data/formats.h"
#include "job/settings_table.h"
#include "store/mode.h"
#include "train/log_lines.h"
#include "train/towers.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

using J = JobSettings;

constexpr double kMaxSteps = 1e12;
constexpr double kMaxCount = 1e9;  // of epochs, of examples

SettingGroup DataGroup() {
  return {
      "Data",
      {{"data_dir", At<&J::source, &SourceSettings::data_dir>(),
        fmt::format("Directory or file: {}. Else $PASSEL_DATA_DIR, else where the preset has it, "
                    "else ../shared/data/mnist, else a download, else generated digits",
                    DataFormatsInWords()),
        InShortHelp()},
       {"download_url",
        At<&J::source, &SourceSettings::download_url>(),
        "URL,... Base URLs (http or https) from which MNIST's four files are downloaded where no "
        "data is found, each file from the first that has it",
        {.shown = kMnistUrl, .to_child = false}},
       {"fake_data", At<&J::source, &SourceSettings::fake_data>(),
        "Use no data at all: 10000 images of 28 x 28 pixels, all white, of class 0, for each set, "
        "to try a job out"},
       {"download_only", At<&J::download_only>(),
        "Make sure that real data is there, downloading MNIST where there is none, and end. "
        "Nothing else is looked at",
        kNotToChild},
       {"csv_train_limit", At<&J::csv_train_limit>(),
        "Read only the first N examples of mnist_train.csv. 0: all"},
       {"csv_test_limit", At<&J::csv_test_limit>(),
        "Read only the first N examples of mnist_test.csv. 0: all"},
       {"batch_size", At<&J::batch_size>(), "Number of examples per gradient",
        Mathematics(InShortHelp(Within(1, 1 << 24)))},
       {"sampler", At<&J::sampler>(),
        "next_batch: every example once per epoch; random: independent batches", Mathematics()},
       {"shard_data", At<&J::shard_data>(),
        "Worker i of N draws only from the examples e with e mod N = i", Mathematics()},
       {"train_examples", At<&J::train_examples>(),
        "Use only the first N training examples. 0: all", Mathematics(Within(0, kMaxCount))},
       {"validation_size", At<&J::validation_size>(),
        "The first N training examples are for validation, not for training", Mathematics()}}};
}

SettingGroup ModelGroup() {
  return {
      "Model",
      {{"model", At<&J::model>(), "mlp or softmax"},
       {"hidden_units", At<&J::hidden_units>(), "Widths of the hidden layers, e.g. 256,128", kList},
       {"loss", At<&J::loss>(), "mean or sum of the cross-entropy over a batch", Mathematics()},
       {"seed", At<&J::seed>(), "Decides the first values and every worker's order of examples",
        Mathematics()}}};
}

SettingGroup TrainingGroup() {
  return {
      "Training",
      {{"mode", At<&J::mode>(),
        "hogwild: at once, lock-free; locked: at once, nothing lost; barrier: one mean gradient of "
        "all workers per update; replicas: the mean of the first R gradients; ssp: hogwild with a "
        "bound on how far workers get ahead",
        Mathematics({.shown = "hogwild", .first = true})},
       {"sync_replicas", At<&J::sync_replicas>(),
        "The same as --mode barrier; with --replicas_to_aggregate as --mode replicas",
        Mathematics()},
       {"replicas_to_aggregate", At<&J::replicas_to_aggregate>(),
        "In mode replicas: number of gradients per update, R. Fewer than workers: the slowest are "
        "dropped; more: several per worker. Default: the number of workers",
        Mathematics()},
       {"staleness_bound", At<&J::staleness_bound>(),
        "In mode ssp: number of steps that a worker may be ahead of the slowest. Default: 3",
        Mathematics()},
       {"mode_schedule", At<&J::mode_schedule>(),
        "STEP:MODE,... The mode from that global step on, e.g. "
        "0:barrier,2000:replicas=3,5000:hogwild; replicas=R and ssp=S carry their number",
        Mathematics()},
       {"slow_worker", At<&J::slow_worker>(),
        "INDEX:DELAYms,... Workers that sleep after each gradient, for experiments"},
       {"train_steps",
        At<&J::train_steps>(),
        "Stop rule: global steps, updates applied to the variables by all workers together. 0: no "
        "such rule, which is the default with one of the next two",
        {.range = SettingRange{0, kMaxSteps}, .shown = "20000", .first = true}},
       {"epochs", At<&J::epochs>(),
        "Stop rule: each worker makes N epochs of (training examples / batch size) local steps. "
        "0: no such rule",
        Within(0, kMaxCount)},
       {"local_steps", At<&J::local_steps>(),
        "Stop rule: each worker makes N local steps. 0: no such rule", Within(0, kMaxSteps)},
       {"push_every", At<&J::push_every>(),
        "Number of local steps, of one batch each, whose gradients a worker pushes as one: their "
        "mean (with --loss sum their sum), as if their batches were one. Global steps, rounds and "
        "--staleness_bound count pushes. On CPUs only",
        Mathematics(Within(1, kMaxPushEvery))},
       {"pull", At<&J::pull>(),
        "view: compute on the shared values themselves; copy: on a private copy; auto: copy where "
        "several workers share up to 1 MiB in hogwild, locked or ssp, which is faster, else view"},
       {"prefetch", At<&J::prefetch>(),
        "In hogwild, locked and ssp: a worker whose ps is on another host computes its next step "
        "while the last gradient travels, on values without that one, and so with a staleness of "
        "one more. The same for every task; of no effect where memory is shared",
        Mathematics()},
       {"on_nan", At<&J::on_nan>(),
        "What to do with a gradient that is not finite: stop, or skip it and count"}}};
}

SettingGroup EvaluatorGroup() {
  return {"Evaluator",
          {{"eval_interval", At<&J::eval_interval>(),
            "Seconds from one evaluation of an evaluator to the next", Within(0.01, 1e6, " s")},
           {"eval_steps", At<&J::eval_steps>(),
            "An evaluator evaluates already after N global steps. 0: by time only",
            Within(0, kMaxSteps)},
           {"eval_consistent", At<&J::eval_consistent>(),
            "Workers wait between two steps while an evaluator copies the values, so that all of "
            "them are of one step. In barrier and replicas they are without it"}}};
}

SettingGroup LogGroup() {
  return {
      "Evaluation and log",
      {{"worker_eval_set", At<&J::worker_eval_set>(),
        "test or validation: the images that workers evaluate on"},
       {"worker_eval_steps", At<&J::worker_eval_steps>(),
        "Workers evaluate when the global step reaches a multiple of N. 0: only at the end",
        Within(0, kMaxSteps)},
       {"log_lines", At<&J::log_lines>(),
        fmt::format("What workers print: {}. Default: task for passel task, else none",
                    LogStyleNames())},
       {"log_step_count_steps", At<&J::log_step_count_steps>(),
        "Print a line about every N local steps (monitored: global steps)", Within(1, kMaxSteps)},
       {"log_epochs", At<&J::log_epochs>(),
        "Print a line about every N epochs instead. 0: --log_step_count_steps counts",
        Within(0, kMaxCount)},
       {"timeline_dir", At<&J::timeline_dir>(),
        "Folder, made if there is none, where each worker writes WORKER/timeline-STEP.json: what "
        "its steps spent their time on, for https://ui.perfetto.dev. Default: none"},
       {"timeline_steps", At<&J::timeline_steps>(),
        "A timeline is written every N global steps, and at the end. It shows the last 1000 "
        "steps at most",
        Within(1, kMaxSteps)}}};
}

SettingGroup SummaryGroup() {
  return {
      "Summaries",
      {{"logs_dir", At<&J::logs_dir>(),
        "Folder, made if there is none, where the chief writes files for TensorBoard: loss, "
        "rates and waits, histograms, the model. Default: none"},
       {"summary_secs", At<&J::summary_secs>(),
        "Seconds from one summary to the next; the first is of the first step. 0: by steps "
        "only",
        Within(0, 1e6, " s")},
       {"summary_steps", At<&J::summary_steps>(),
        "A summary is written already after N global steps. 0: by time only", Within(0, kMaxSteps)},
       {"histogram_secs", At<&J::histogram_secs>(),
        "Seconds from one summary with histograms of variables and gradients to the next, at "
        "least. 0: none have them",
        Within(0, 1e6, " s")}}};
}

SettingGroup PlacementGroup() {
  return {"Placement",
          {{"placement", At<&J::placement>(),
            "How variables are placed on ps tasks: round_robin or greedy"},
           {"partitioner", At<&J::partitioner>(),
            "none, fixed:PARTS, min_max:MAX_PARTS[:MIN_BYTES] or axis:MAX_BYTES[:MAX_PARTS]"},
           {"global_step", At<&J::global_step>(),
            "first or last: the global step is created before the model's variables or after "
            "them. It counts in the placement"},
           {"global_step_bytes", At<&J::global_step_bytes>(),
            "4 or 8: the bytes that it counts for in --placement greedy, as an int32 or an int64"},
           {"pin_variable", At<&J::pin_variable>(),
            "NAME=DEVICE,... Variables at places of their own, e.g. hid_w=/job:ps/task:1"}}};
}

SettingGroup MachineGroup() {
  return {
      "Machine",
      {{"threads_per_worker", At<&J::threads_per_worker>(),
        "Number of threads with which a worker's matrix library computes", Within(1, 256)},
       {"towers", At<&J::towers>(),
        "Number of threads of a worker that compute a share of each batch; one gradient is pushed",
        Within(1, kMaxTowers)},
       {"overlap", At<&J::overlap>(),
        "Workers on GPUs begin the next step before they push the last gradient. Each is staler "
        "then by about one update of each worker. For hogwild, locked and ssp"},
       {"steps_ahead",
        At<&J::steps_ahead>(),
        "How many steps --overlap begins before, 1 or 2. Two keep the GPU busy when a push takes "
        "longer than a step, and cost as much staleness again",
        {.range = SettingRange{1, kMostStepsAhead}, .shown = "1"}},
       {"math", At<&J::math>(),
        "How GPUs multiply the large matrices that are cuBLASLt's: float32, tf32 or bfloat16 (both "
        "lose accuracy)"},
       {"arena", At<&J::arena>(),
        "Where the parameters live: host, or device, the memory of the first GPU that workers "
        "compute on; those on others need NVLink to it. device is for hogwild, locked and ssp"},
       {"shadow_interval", At<&J::shadow_interval>(),
        "With --arena device: seconds after which the copy of the parameters in host memory is "
        "renewed, which eval, predict and ctl look at"},
       {"cuda_graphs", At<&J::cuda_graphs>(),
        "Launch a step on a GPU as one graph rather than operation by operation"},
       {"fused_update", At<&J::fused_update>(),
        "With --arena device: the products that give a gradient add it to the parameters "
        "themselves, and nobody sees it. For --optimizer sgd in hogwild and ssp, all workers on "
        "one GPU, layers that need no cuBLAS, --on_nan stop, and without --overlap; elsewhere a "
        "gradient is pushed as ever"},
       {"huge_pages", At<&J::huge_pages>(),
        "Pages of the arena: off (plain ones), transparent or explicit"},
       {"memory_fraction", At<&J::memory_fraction>(),
        "Share of the machine's free memory that a ps may take for its arena, above 0 and up to "
        "1"},
       {"spin_us", At<&J::spin_us>(),
        "How long a wait spins before it sleeps, in microseconds. Default: 500 if every worker has "
        "a core, else 20",
        Within(0, 1e6)},
       {"stall_limit", At<&J::stall_limit>(),
        "Seconds after which a worker that does not answer no longer holds up the others",
        Within(0.05, 1e6, " s")},
       {"on_stall", At<&J::on_stall>(),
        "What then becomes of it: evict (it is killed, the others go on), wait (for as long as it "
        "takes: for debugging) or fail (the job ends)"},
       {"start_wait", At<&J::start_wait>(), "Seconds to wait for other tasks to start",
        Within(0.1, 1e6, " s")},
       {"ps_wait", At<&J::ps_wait>(),
        "Seconds that a worker without a supervisor goes on without its ps", Within(0, 1e6, " s")},
       {"log_level", At<&J::log_level>(), "debug, info, warning or error"},
       {"log_format", At<&J::log_format>(), "text, or json: one object a line"},
       {"log_file", At<&J::log_file>(), "Append the log lines of all tasks to this file too"}}};
}

}  // namespace

std::vector<SettingGroup> DataAndModelGroups() { return {DataGroup(), ModelGroup()}; }

std::vector<SettingGroup> TrainingGroups() {
  return {TrainingGroup(), EvaluatorGroup(), LogGroup(),
          SummaryGroup(),  PlacementGroup(), MachineGroup()};
}

}  // namespace passel::job
