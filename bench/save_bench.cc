// What a checkpoint costs those who train meanwhile, and how fast it is written, against the same
// bytes by dd.

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/subprocess.h"
#include "bench/scoped_folder.h"
#include "bench/suite.h"
#include "bench/training.h"
#include "data/dataset.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_save.h"
#include "job/job_config.h"
#include "lab/processes.h"
#include "lab/samples.h"
#include "store/open_store.h"

namespace passel::bench {
namespace {

constexpr const char* kManyUnits = "80500";  // 784 x 80,500 x 10: 64 M floats, 768 MB with Adam's
constexpr double kPart = 1.0 / 1024 / 1024;

// A job of 64 M floats with Adam whose workers are idle: what those who train here share with the
// saver is cores, memory and the disk.
class BigJob {
 public:
  Status Open(const Dataset& data, bool smoke) {
    settings_.hidden_units = smoke ? "16" : kManyUnits;
    PASSEL_ASSIGN_OR_RETURN(job::JobConfig config, job::CheckJobSettings(settings_));
    PASSEL_RETURN_IF_ERROR(job::FitToData(data, 1, &config));
    config_.emplace(std::move(config));
    PASSEL_ASSIGN_OR_RETURN(plan_, job::MakePlan(*config_, 1, 1, 1));
    PASSEL_ASSIGN_OR_RETURN(arena_, InProcessArena::Create(plan_));
    PASSEL_ASSIGN_OR_RETURN(store_, arena_->Open(0));
    const auto fill = [](VarId id, std::span<float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 1e-3F * static_cast<float>((i * 2654435761U + id) % 1000);
      }
    };
    return store_->Initialize(fill);
  }

  // Each to a folder that was empty.
  Result<job::SaveOutcome> Save(std::optional<job::AtEnd> at_end = {}) const {
    const ScopedFolder folder;
    if (!folder.made()) return Internal("a temporary folder cannot be made");
    PASSEL_ASSIGN_OR_RETURN(CheckpointFolder owned,
                            CheckpointFolder::Own(folder.path(), {}, WallSeconds()));
    const ShardMemory shard = arena_->shard(0);
    const std::string data;
    const WorkerNames names;
    const job::SavedJob saved{*config_, settings_, plan_, data, {&shard, 1}, names};
    const std::atomic<bool> quit{false};
    return job::SaveCheckpoint(saved, {}, at_end, {quit, Deadline::After(std::chrono::minutes(5))},
                               owned);
  }

 private:
  job::JobSettings settings_;
  std::optional<job::JobConfig> config_;
  StorePlan plan_;
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_;
};

double CpuSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The processor time of this process from now until `seconds` have passed, or it says that it is
// done.
class CpuOfWindow {
 public:
  explicit CpuOfWindow(double seconds)
      : begin_(CpuSeconds()), thread_([this, seconds] {
          std::unique_lock lock(mutex_);
          wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; });
          used_ = CpuSeconds() - begin_;
        }) {}
  double End() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
    return used_;
  }

 private:
  const double begin_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  double used_ = 0;
  std::thread thread_;
};

struct SaveLog {
  double cpu_seconds = 0;  // within the time in which steps count
  double seconds = 0;      // of the save
};

// One run of the workers alone and one beside a save.
struct SavePair {
  TrainingRun alone, beside;
  SaveLog log;
};

Result<SavePair> RunPair(const TrainingJob& training, const BigJob& big) {
  SavePair pair;
  PASSEL_ASSIGN_OR_RETURN(pair.alone, RunTraining(training, Mode::kHogwild));
  lab::SharedArray<SaveLog> log(1);
  TrainingJob disturbed = training;
  disturbed.beside = [&]() -> Status {
    CpuOfWindow cpu(training.seconds);
    const std::int64_t begin = MonotonicNs();
    const Status saved = big.Save().status();
    log[0].seconds = 1e-9 * static_cast<double>(MonotonicNs() - begin);
    log[0].cpu_seconds = cpu.End();
    return saved;
  };
  PASSEL_ASSIGN_OR_RETURN(pair.beside, RunTraining(disturbed, Mode::kHogwild));
  pair.log = log[0];
  return pair;
}

// Steps are counted for as long as a save takes about, where nobody else wants the cores.
Result<TrainingJob> JobBeside(const Suite& suite, const Dataset& data, const BigJob& big,
                              int workers) {
  const std::int64_t begin = MonotonicNs();
  PASSEL_RETURN_IF_ERROR(big.Save().status());
  TrainingJob training;
  training.data = &data;
  training.workers = workers;
  training.cores = suite.usable_cores();
  training.seconds = suite.settings().smoke ? suite.settings().RunSeconds()
                                            : 1.2e-9 * static_cast<double>(MonotonicNs() - begin);
  return training;
}

Status BenchLostTime(benchmark::State& state, Suite& suite, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  BigJob big;
  PASSEL_RETURN_IF_ERROR(big.Open(*data, suite.settings().smoke));
  PASSEL_ASSIGN_OR_RETURN(const TrainingJob training,
                          JobBeside(suite, *data, big, suite.usable_cores()));
  std::vector<double> lost, cpu, took;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const SavePair pair, RunPair(training, big));
    const double share = 1 - pair.beside.steps_per_second / pair.alone.steps_per_second;
    lost.push_back(training.workers * training.seconds * share);
    cpu.push_back(pair.log.cpu_seconds);
    took.push_back(pair.log.seconds);
    state.SetIterationTime(training.seconds);
  }
  Compare(lost, cpu, &row);
  row.note = fmt::format("{} workers, {:.2f} s in which steps count; a save takes {:.2f} s",
                         training.workers, training.seconds, lab::Median(took));
  return {};
}

Status BenchSlowSteps(benchmark::State& state, Suite& suite, Row& row) {
  const int workers = suite.usable_cores() - 1;
  if (workers < 1) {
    for (auto _ : state) state.SetIterationTime(1e-9);
    row.not_applicable = "one core, and none to be free";
    return {};
  }
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  BigJob big;
  PASSEL_RETURN_IF_ERROR(big.Open(*data, suite.settings().smoke));
  PASSEL_ASSIGN_OR_RETURN(const TrainingJob training, JobBeside(suite, *data, big, workers));
  std::vector<double> with, without, medians;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const SavePair pair, RunPair(training, big));
    with.push_back(pair.beside.p99_step_us);
    without.push_back(pair.alone.p99_step_us);
    medians.push_back(pair.beside.median_step_us / pair.alone.median_step_us);
    state.SetIterationTime(training.seconds);
  }
  Compare(with, without, &row);
  row.note = fmt::format("{} workers; the median step is {:.2f}x", workers, lab::Median(medians));
  return {};
}

// The bytes of a checkpoint, made of nothing: MB/s.
Result<double> RateOfDd(std::uint64_t bytes) {
  const ScopedFolder folder;
  if (!folder.made()) return Internal("a temporary folder cannot be made");
  const std::uint64_t blocks = bytes / (std::uint64_t{1} << 20) + 1;
  SpawnOptions spawn;
  spawn.executable = "/bin/sh";
  spawn.name = "sh";
  spawn.arguments = {
      "-c", fmt::format("exec dd if=/dev/zero of='{}/zeros' bs=1M count={} conv=fsync status=none",
                        folder.path(), blocks)};
  const std::int64_t begin = MonotonicNs();
  PASSEL_ASSIGN_OR_RETURN(Subprocess dd, Subprocess::Spawn(spawn));
  PASSEL_ASSIGN_OR_RETURN(const ExitState end, dd.Reap(Deadline::After(std::chrono::minutes(5))));
  if (end.signalled || end.code != 0) return Internal("dd failed");
  return static_cast<double>(blocks) * 1e9 / static_cast<double>(MonotonicNs() - begin);
}

Status BenchRate(benchmark::State& state, Suite& suite, std::optional<job::AtEnd> at_end,
                 Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  BigJob big;
  PASSEL_RETURN_IF_ERROR(big.Open(*data, suite.settings().smoke));
  PASSEL_ASSIGN_OR_RETURN(const job::SaveOutcome first, big.Save(at_end));
  std::vector<double> rate, limit, copying;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const double dd, RateOfDd(first.bytes));
    PASSEL_ASSIGN_OR_RETURN(const job::SaveOutcome saved, big.Save(at_end));
    const double seconds = 1e-9 * static_cast<double>((saved.copying + saved.writing).count());
    limit.push_back(dd);
    rate.push_back(kPart * static_cast<double>(saved.bytes) / seconds);
    copying.push_back(1e-6 * static_cast<double>(saved.copying.count()));
    state.SetIterationTime(seconds);
  }
  Compare(rate, limit, &row);
  row.note = fmt::format("{:.0f} MiB, all of them copied after {:.0f} ms",
                         kPart * static_cast<double>(first.bytes), lab::Median(copying));
  return {};
}

}  // namespace

void RegisterSaveBenchmarks(Suite& suite) {
  const int pairs = suite.settings().Pairs(20);
  Row lost;
  lost.what = "steps lost beside a save of 64 M floats with Adam, no core free, of its own time";
  lost.unit = "s";
  lost.is_reference = true;
  lost.target = RatioAtMost(1.2);
  suite.Register("BM_Save/what:lost", lost, pairs, [&suite](benchmark::State& state, Row& row) {
    return BenchLostTime(state, suite, row);
  });
  Row slow;
  slow.what = "p99 of a step beside such a save, one core free, of that without";
  slow.unit = "us";
  slow.is_reference = true;
  slow.target = RatioAtMost(1.2);
  suite.Register("BM_Save/what:p99", slow, pairs, [&suite](benchmark::State& state, Row& row) {
    return BenchSlowSteps(state, suite, row);
  });
  const auto rate = [&suite](const char* name, const char* what, std::optional<job::AtEnd> at_end) {
    Row row;
    row.what = what;
    row.unit = "MiB/s";
    row.target = RatioAtLeast(0.7);
    suite.Register(name, row, suite.settings().Pairs(20),
                   [&suite, at_end](benchmark::State& state, Row& measured) {
                     return BenchRate(state, suite, at_end, measured);
                   });
  };
  rate("BM_Save/what:rate", "the last save of such a job, of dd with fsync on the same disk",
       job::AtEnd::kNobodyTrains);
  rate("BM_Save/what:rate_beside",
       "a save that gives way to training, on an idle machine, of dd with fsync", {});
}

}  // namespace passel::bench
