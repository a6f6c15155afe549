// The flags that describe a training job, the same for `train`, `launch` and `task`.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>

#include "tools/passel/flags.h"
#include "train/log_lines.h"

namespace passel {

namespace {

// "" if it is one. The parser itself would wrap negative numbers around.
std::string IsNotASeed(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return "";
  return fmt::format("a seed is a number from 0 to {}, not \"{}\"",
                     std::numeric_limits<std::uint64_t>::max(), text.substr(0, 64));
}

}  // namespace

void AddJobFlags(CLI::App& app, JobFlags* f) {
  AddSourceFlags(app, &f->source);
  app.add_flag("--download_only", f->download_only,
               "Make sure that real data is there, downloading MNIST where there is none, and end; "
               "nothing else is looked at")
      ->group("Data");
  AddCsvLimitFlags(app, &f->csv_train_limit, &f->csv_test_limit);
  app.add_option("--batch_size", f->batch_size, "Examples per gradient")
      ->group("Data")
      ->capture_default_str();
  app.add_option("--sampler", f->sampler,
                 "next_batch: every example once per epoch; random: independent batches")
      ->group("Data")
      ->capture_default_str();
  app.add_flag("--shard_data", f->shard_data,
               "Worker i of N draws only from the examples e with e mod N = i")
      ->group("Data");
  app.add_option("--train_examples", f->train_examples,
                 "Use only the first so many training examples; 0: all")
      ->group("Data")
      ->capture_default_str();
  app.add_option("--validation_size", f->validation_size,
                 "The first so many training examples are for validation, not for training")
      ->group("Data")
      ->capture_default_str();

  app.add_option("--model", f->model, "mlp or softmax")->group("Model")->capture_default_str();
  app.add_option("--hidden_units", f->hidden_units, "Widths of the hidden layers, e.g. 256,128")
      ->group("Model")
      ->capture_default_str();
  app.add_option("--loss", f->loss, "mean or sum of the cross-entropy over a batch")
      ->group("Model")
      ->capture_default_str();
  app.add_option("--seed", f->seed, "Of the first values and of every worker's order of examples")
      ->check(CLI::Validator(IsNotASeed, "", "seed"))
      ->group("Model")
      ->capture_default_str();

  app.add_option("--optimizer", f->optimizer,
                 "sgd, momentum, nesterov, adagrad, rmsprop, adam or ftrl")
      ->group("Optimizer")
      ->capture_default_str();
  app.add_option("--learning_rate", f->learning_rate,
                 "Default: adam and rmsprop 0.001, sgd 0.1, others 0.05")
      ->group("Optimizer");
  const auto hyper = [&](const char* name, std::optional<double>* value, const char* help) {
    app.add_option(name, *value, help)->group("Optimizer");
  };
  hyper("--momentum", &f->momentum, "momentum, rmsprop");
  app.add_flag("--use_nesterov", f->use_nesterov, "momentum")->group("Optimizer");
  hyper("--decay", &f->decay, "rmsprop");
  app.add_flag("--centered", f->centered, "rmsprop")->group("Optimizer");
  hyper("--epsilon", &f->epsilon, "adam, rmsprop");
  hyper("--beta1", &f->beta1, "adam");
  hyper("--beta2", &f->beta2, "adam");
  hyper("--initial_accumulator_value", &f->initial_accumulator_value, "adagrad, ftrl");
  hyper("--l1", &f->l1, "ftrl");
  hyper("--l2", &f->l2, "ftrl");
  hyper("--l2_shrinkage", &f->l2_shrinkage, "ftrl");
  hyper("--learning_rate_power", &f->learning_rate_power, "ftrl");

  app.add_option("--mode", f->mode,
                 "hogwild: at once, lock-free; locked: at once, nothing lost; barrier: one mean "
                 "gradient of all workers per update; replicas: the mean of the first R "
                 "gradients; ssp: hogwild with a bound on how far workers get ahead")
      ->group("Training")
      ->default_str("hogwild");
  app.add_flag("--sync_replicas,!--nosync_replicas", f->sync_replicas,
               "The same as --mode barrier; with --replicas_to_aggregate as --mode replicas")
      ->group("Training");
  app.add_option("--replicas_to_aggregate", f->replicas_to_aggregate,
                 "replicas: gradients per update, R. Fewer than workers: the slowest are dropped; "
                 "more: several per worker. Default: the number of workers")
      ->group("Training");
  app.add_option("--staleness_bound", f->staleness_bound,
                 "ssp: steps a worker may be ahead of the slowest. Default: 3")
      ->group("Training");
  app.add_option("--mode_schedule", f->mode_schedule,
                 "STEP:MODE,... The mode from that global step on, e.g. "
                 "0:barrier,2000:replicas=3,5000:hogwild; replicas=R and ssp=S carry their number")
      ->group("Training");
  app.add_option("--slow_worker", f->slow_worker,
                 "INDEX:DELAYms,... Workers that sleep after each gradient, for experiments")
      ->group("Training")
      ->delimiter(',');
  app.add_option("--train_steps", f->train_steps,
                 "Stop rule: global steps, updates applied to the variables by all workers "
                 "together; 0: no such rule, which is the default with one of the next two")
      ->default_str(std::to_string(kDefaultTrainSteps))
      ->group("Training");
  app.add_option("--epochs", f->epochs,
                 "Stop rule: each worker makes so many epochs of (training examples / batch size) "
                 "local steps; 0: no such rule")
      ->group("Training")
      ->capture_default_str();
  app.add_option("--local_steps", f->local_steps,
                 "Stop rule: each worker makes so many local steps; 0: no such rule")
      ->group("Training")
      ->capture_default_str();
  app.add_option("--push_every", f->push_every,
                 "Local steps, of one batch each, whose gradients a worker pushes as one: their "
                 "mean (with --loss sum their sum), as if their batches were one. 1 to 1000; "
                 "global steps, rounds and --staleness_bound count pushes. On CPUs only")
      ->group("Training")
      ->capture_default_str();
  app.add_option(
         "--pull", f->pull,
         "view: compute on the shared values themselves; copy: on a private copy; auto: copy where "
         "several workers share up to 1 MiB in hogwild, locked or ssp, which is faster, else view")
      ->group("Training")
      ->capture_default_str();
  app.add_option("--on_nan", f->on_nan,
                 "What to do with a gradient that is not finite: stop, or skip it and count")
      ->group("Training")
      ->capture_default_str();

  app.add_option("--eval_interval", f->eval_interval,
                 "Seconds from one evaluation to the next, of an evaluator")
      ->group("Evaluator")
      ->capture_default_str();
  app.add_option("--eval_steps", f->eval_steps,
                 "Evaluate already after so many global steps; 0: by time only")
      ->group("Evaluator")
      ->capture_default_str();

  app.add_option("--worker_eval_set", f->worker_eval_set,
                 "test or validation: the images that workers evaluate on")
      ->group("Evaluation and log")
      ->capture_default_str();
  app.add_option("--worker_eval_steps", f->worker_eval_steps,
                 "Workers evaluate when the global step reaches a multiple of this; 0: only at the "
                 "end")
      ->group("Evaluation and log")
      ->capture_default_str();
  app.add_option("--log_lines", f->log_lines,
                 fmt::format("What workers print: {}. Default: task for passel task, else none",
                             LogStyleNames()))
      ->group("Evaluation and log");
  app.add_option("--log_step_count_steps", f->log_step_count_steps,
                 "A line about every so many local steps (monitored: global steps)")
      ->group("Evaluation and log")
      ->capture_default_str();
  app.add_option("--log_epochs", f->log_epochs,
                 "A line about every so many epochs instead; 0: --log_step_count_steps counts")
      ->group("Evaluation and log")
      ->capture_default_str();

  app.add_option("--placement", f->placement, "Of variables on ps tasks: round_robin or greedy")
      ->group("Placement")
      ->capture_default_str();
  app.add_option("--partitioner", f->partitioner,
                 "none, fixed:PARTS, min_max:MAX_PARTS[:MIN_BYTES] or axis:MAX_BYTES[:MAX_PARTS]")
      ->group("Placement")
      ->capture_default_str();
  app.add_option("--global_step", f->global_step,
                 "first or last: created before the model's variables or after them. It counts in "
                 "the placement")
      ->group("Placement")
      ->capture_default_str();
  app.add_option("--global_step_bytes", f->global_step_bytes,
                 "4 or 8: what it counts for in --placement greedy, as an int32 or an int64")
      ->group("Placement")
      ->capture_default_str();
  app.add_option("--pin_variable", f->pin_variable,
                 "NAME=DEVICE,... Variables at places of their own, e.g. hid_w=/job:ps/task:1")
      ->group("Placement")
      ->delimiter(',');

  app.add_option("--threads_per_worker", f->threads_per_worker, "Of the matrix library")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--towers", f->towers,
                 "Threads of a worker that compute a share of each batch; one gradient is pushed")
      ->group("Machine")
      ->capture_default_str();
  app.add_flag(
         "--overlap,!--nooverlap", f->overlap,
         "Workers on GPUs begin the next step before they push the last gradient. Each is staler "
         "then by about one update of each worker. For hogwild, locked and ssp")
      ->default_str("false")
      ->group("Machine");
  app.add_option(
         "--steps_ahead", f->steps_ahead,
         "How many steps --overlap begins before, 1 or 2. Two keep the GPU busy when a push "
         "takes longer than a step, and cost as much staleness again")
      ->default_str("1")
      ->group("Machine");
  app.add_option(
         "--math", f->math,
         "How GPUs multiply the large matrices that are cuBLASLt's: float32, tf32 or bfloat16 "
         "(both lose accuracy)")
      ->group("Machine")
      ->capture_default_str();
  app.add_option(
         "--arena", f->arena,
         "Where the parameters live: host, or device, the memory of the first GPU that workers "
         "compute on; those on others need NVLink to it. device is for hogwild, locked and "
         "ssp")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--shadow_interval", f->shadow_interval,
                 "With --arena device: seconds after which the copy of the parameters in host "
                 "memory is renewed, which eval, predict and ctl look at")
      ->group("Machine")
      ->capture_default_str();
  app.add_flag("--cuda_graphs,!--nocuda_graphs", f->cuda_graphs,
               "Launch a step on a GPU as one graph rather than operation by operation. Default: "
               "true")
      ->default_str("true")
      ->group("Machine");
  app.add_flag(
         "--fused_update,!--nofused_update", f->fused_update,
         "With --arena device: the products that give a gradient add it to the parameters "
         "themselves, and nobody sees it. For --optimizer sgd in hogwild and ssp, all workers "
         "on one GPU, layers that need no cuBLAS, --on_nan stop, and without --overlap; "
         "elsewhere a gradient is pushed as ever. Default: true")
      ->default_str("true")
      ->group("Machine");
  app.add_option("--huge_pages", f->huge_pages, "off, transparent or explicit")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--memory_fraction", f->memory_fraction,
                 "Share of the machine's free memory that a ps may take for its arena, above 0 and "
                 "up to 1")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--spin_us", f->spin_us,
                 "How long a wait spins before it sleeps, in microseconds. Default: 500 if every "
                 "worker has a core, else 20")
      ->group("Machine");
  app.add_option("--stall_limit", f->stall_limit,
                 "Seconds after which a worker that does not answer no longer holds up the others")
      ->group("Machine")
      ->capture_default_str();
  app.add_option(
         "--on_stall", f->on_stall,
         "What then becomes of it: evict (it is killed, the others go on), wait (for as long "
         "as it takes: for debugging) or fail (the job ends)")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--start_wait", f->start_wait, "Seconds to wait for other tasks to start")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--ps_wait", f->ps_wait,
                 "Seconds a worker without a supervisor goes on without its ps")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--log_level", f->log_level, "debug, info, warning or error")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--log_format", f->log_format, "text, or json: one object a line")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--log_file", f->log_file, "Append the log lines of all tasks to this file too")
      ->group("Machine");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name() == "FLOAT") KeepTyped(option, &f->typed);
  }
}

}  // namespace passel
