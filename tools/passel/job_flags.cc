// The flags that describe a training job, the same for `train`, `launch` and `task`.

#include <fmt/core.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "optim/hyper_flags.h"
#include "optim/optimizer.h"
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

void AddOptimizerFlags(Command& app, job::JobSettings* f) {
  app.Add("--optimizer", &f->optimizer, OptimizerNames()).Group("Optimizer").ShowDefault();
  for (std::size_t i = 0; i < kNumHyperFlags; ++i) {
    const std::string name = fmt::format("--{}", kHyperFlags[i].name);
    const std::string help = kHyperFlags[i].name == "learning_rate"
                                 ? "Default: " + DefaultLearningRates()
                                 : OptimizersWith(kHyperFlags[i].name);
    if (kHyperFlags[i].is_switch) {
      app.AddSwitch(name.c_str(), &f->hyper[i].on, help.c_str()).Group("Optimizer");
    } else {
      app.Add(name.c_str(), &f->hyper[i].number, help).Group("Optimizer");
    }
  }
}

}  // namespace

void AddJobFlags(Command& app, job::JobSettings* f) {
  AddSourceFlags(app, &f->source);
  app.AddSwitch(
         "--download_only", &f->download_only,
         "Make sure that real data is there, downloading MNIST where there is none, and end; "
         "nothing else is looked at")
      .Group("Data");
  AddCsvLimitFlags(app, &f->csv_train_limit, &f->csv_test_limit);
  app.Add("--batch_size", &f->batch_size, "Examples per gradient").Group("Data").ShowDefault();
  app.Add("--sampler", &f->sampler,
          "next_batch: every example once per epoch; random: independent batches")
      .Group("Data")
      .ShowDefault();
  app.AddSwitch("--shard_data", &f->shard_data,
                "Worker i of N draws only from the examples e with e mod N = i")
      .Group("Data");
  app.Add("--train_examples", &f->train_examples,
          "Use only the first so many training examples; 0: all")
      .Group("Data")
      .ShowDefault();
  app.Add("--validation_size", &f->validation_size,
          "The first so many training examples are for validation, not for training")
      .Group("Data")
      .ShowDefault();

  app.Add("--model", &f->model, "mlp or softmax").Group("Model").ShowDefault();
  app.Add("--hidden_units", &f->hidden_units, "Widths of the hidden layers, e.g. 256,128")
      .Group("Model")
      .ShowDefault();
  app.Add("--loss", &f->loss, "mean or sum of the cross-entropy over a batch")
      .Group("Model")
      .ShowDefault();
  app.Add("--seed", &f->seed, "Of the first values and of every worker's order of examples")
      .Check(IsNotASeed)
      .Group("Model")
      .ShowDefault();

  AddOptimizerFlags(app, f);

  app.Add("--mode", &f->mode,
          "hogwild: at once, lock-free; locked: at once, nothing lost; barrier: one mean "
          "gradient of all workers per update; replicas: the mean of the first R "
          "gradients; ssp: hogwild with a bound on how far workers get ahead")
      .Group("Training")
      .ShowDefault("hogwild");
  app.AddSwitch("--sync_replicas,!--nosync_replicas", &f->sync_replicas,
                "The same as --mode barrier; with --replicas_to_aggregate as --mode replicas")
      .Group("Training");
  app.Add("--replicas_to_aggregate", &f->replicas_to_aggregate,
          "replicas: gradients per update, R. Fewer than workers: the slowest are dropped; "
          "more: several per worker. Default: the number of workers")
      .Group("Training");
  app.Add("--staleness_bound", &f->staleness_bound,
          "ssp: steps a worker may be ahead of the slowest. Default: 3")
      .Group("Training");
  app.Add("--mode_schedule", &f->mode_schedule,
          "STEP:MODE,... The mode from that global step on, e.g. "
          "0:barrier,2000:replicas=3,5000:hogwild; replicas=R and ssp=S carry their number")
      .Group("Training");
  app.Add("--slow_worker", &f->slow_worker,
          "INDEX:DELAYms,... Workers that sleep after each gradient, for experiments")
      .Group("Training")
      .SplitAt(',');
  app.Add("--train_steps", &f->train_steps,
          "Stop rule: global steps, updates applied to the variables by all workers "
          "together; 0: no such rule, which is the default with one of the next two")
      .ShowDefault(std::to_string(job::kDefaultTrainSteps))
      .Group("Training");
  app.Add("--epochs", &f->epochs,
          "Stop rule: each worker makes so many epochs of (training examples / batch size) "
          "local steps; 0: no such rule")
      .Group("Training")
      .ShowDefault();
  app.Add("--local_steps", &f->local_steps,
          "Stop rule: each worker makes so many local steps; 0: no such rule")
      .Group("Training")
      .ShowDefault();
  app.Add("--push_every", &f->push_every,
          "Local steps, of one batch each, whose gradients a worker pushes as one: their "
          "mean (with --loss sum their sum), as if their batches were one. 1 to 1000; "
          "global steps, rounds and --staleness_bound count pushes. On CPUs only")
      .Group("Training")
      .ShowDefault();
  app.Add(
         "--pull", &f->pull,
         "view: compute on the shared values themselves; copy: on a private copy; auto: copy where "
         "several workers share up to 1 MiB in hogwild, locked or ssp, which is faster, else view")
      .Group("Training")
      .ShowDefault();
  app.Add("--on_nan", &f->on_nan,
          "What to do with a gradient that is not finite: stop, or skip it and count")
      .Group("Training")
      .ShowDefault();

  app.Add("--eval_interval", &f->eval_interval,
          "Seconds from one evaluation to the next, of an evaluator")
      .Group("Evaluator")
      .ShowDefault();
  app.Add("--eval_steps", &f->eval_steps,
          "Evaluate already after so many global steps; 0: by time only")
      .Group("Evaluator")
      .ShowDefault();

  app.Add("--worker_eval_set", &f->worker_eval_set,
          "test or validation: the images that workers evaluate on")
      .Group("Evaluation and log")
      .ShowDefault();
  app.Add("--worker_eval_steps", &f->worker_eval_steps,
          "Workers evaluate when the global step reaches a multiple of this; 0: only at the "
          "end")
      .Group("Evaluation and log")
      .ShowDefault();
  app.Add("--log_lines", &f->log_lines,
          fmt::format("What workers print: {}. Default: task for passel task, else none",
                      LogStyleNames()))
      .Group("Evaluation and log");
  app.Add("--log_step_count_steps", &f->log_step_count_steps,
          "A line about every so many local steps (monitored: global steps)")
      .Group("Evaluation and log")
      .ShowDefault();
  app.Add("--log_epochs", &f->log_epochs,
          "A line about every so many epochs instead; 0: --log_step_count_steps counts")
      .Group("Evaluation and log")
      .ShowDefault();

  app.Add("--placement", &f->placement, "Of variables on ps tasks: round_robin or greedy")
      .Group("Placement")
      .ShowDefault();
  app.Add("--partitioner", &f->partitioner,
          "none, fixed:PARTS, min_max:MAX_PARTS[:MIN_BYTES] or axis:MAX_BYTES[:MAX_PARTS]")
      .Group("Placement")
      .ShowDefault();
  app.Add("--global_step", &f->global_step,
          "first or last: created before the model's variables or after them. It counts in "
          "the placement")
      .Group("Placement")
      .ShowDefault();
  app.Add("--global_step_bytes", &f->global_step_bytes,
          "4 or 8: what it counts for in --placement greedy, as an int32 or an int64")
      .Group("Placement")
      .ShowDefault();
  app.Add("--pin_variable", &f->pin_variable,
          "NAME=DEVICE,... Variables at places of their own, e.g. hid_w=/job:ps/task:1")
      .Group("Placement")
      .SplitAt(',');

  app.Add("--threads_per_worker", &f->threads_per_worker, "Of the matrix library")
      .Group("Machine")
      .ShowDefault();
  app.Add("--towers", &f->towers,
          "Threads of a worker that compute a share of each batch; one gradient is pushed")
      .Group("Machine")
      .ShowDefault();
  app.AddSwitch(
         "--overlap,!--nooverlap", &f->overlap,
         "Workers on GPUs begin the next step before they push the last gradient. Each is staler "
         "then by about one update of each worker. For hogwild, locked and ssp")
      .ShowDefault("false")
      .Group("Machine");
  app.Add("--steps_ahead", &f->steps_ahead,
          "How many steps --overlap begins before, 1 or 2. Two keep the GPU busy when a push "
          "takes longer than a step, and cost as much staleness again")
      .ShowDefault("1")
      .Group("Machine");
  app.Add("--math", &f->math,
          "How GPUs multiply the large matrices that are cuBLASLt's: float32, tf32 or bfloat16 "
          "(both lose accuracy)")
      .Group("Machine")
      .ShowDefault();
  app.Add("--arena", &f->arena,
          "Where the parameters live: host, or device, the memory of the first GPU that workers "
          "compute on; those on others need NVLink to it. device is for hogwild, locked and "
          "ssp")
      .Group("Machine")
      .ShowDefault();
  app.Add("--shadow_interval", &f->shadow_interval,
          "With --arena device: seconds after which the copy of the parameters in host "
          "memory is renewed, which eval, predict and ctl look at")
      .Group("Machine")
      .ShowDefault();
  app.AddSwitch("--cuda_graphs,!--nocuda_graphs", &f->cuda_graphs,
                "Launch a step on a GPU as one graph rather than operation by operation. Default: "
                "true")
      .ShowDefault("true")
      .Group("Machine");
  app.AddSwitch(
         "--fused_update,!--nofused_update", &f->fused_update,
         "With --arena device: the products that give a gradient add it to the parameters "
         "themselves, and nobody sees it. For --optimizer sgd in hogwild and ssp, all workers "
         "on one GPU, layers that need no cuBLAS, --on_nan stop, and without --overlap; "
         "elsewhere a gradient is pushed as ever. Default: true")
      .ShowDefault("true")
      .Group("Machine");
  app.Add("--huge_pages", &f->huge_pages, "off, transparent or explicit")
      .Group("Machine")
      .ShowDefault();
  app.Add("--memory_fraction", &f->memory_fraction,
          "Share of the machine's free memory that a ps may take for its arena, above 0 and "
          "up to 1")
      .Group("Machine")
      .ShowDefault();
  app.Add("--spin_us", &f->spin_us,
          "How long a wait spins before it sleeps, in microseconds. Default: 500 if every "
          "worker has a core, else 20")
      .Group("Machine");
  app.Add("--stall_limit", &f->stall_limit,
          "Seconds after which a worker that does not answer no longer holds up the others")
      .Group("Machine")
      .ShowDefault();
  app.Add("--on_stall", &f->on_stall,
          "What then becomes of it: evict (it is killed, the others go on), wait (for as long "
          "as it takes: for debugging) or fail (the job ends)")
      .Group("Machine")
      .ShowDefault();
  app.Add("--start_wait", &f->start_wait, "Seconds to wait for other tasks to start")
      .Group("Machine")
      .ShowDefault();
  app.Add("--ps_wait", &f->ps_wait, "Seconds a worker without a supervisor goes on without its ps")
      .Group("Machine")
      .ShowDefault();
  app.Add("--log_level", &f->log_level, "debug, info, warning or error")
      .Group("Machine")
      .ShowDefault();
  app.Add("--log_format", &f->log_format, "text, or json: one object a line")
      .Group("Machine")
      .ShowDefault();
  app.Add("--log_file", &f->log_file, "Append the log lines of all tasks to this file too")
      .Group("Machine");
  app.KeepTypedNumbers(&f->typed);
}

}  // namespace passel
