// suite.h - what every benchmark of this program needs, and how it says what it found.
//
// A benchmark is a Google Benchmark whose iterations are pairs: one run of its limit and one of
// what is measured, so that both see the same machine. It checks its answer before it is timed,
// and adds its Row to the report when all pairs are done.

#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/report.h"
#include "bench/slow_push.h"
#include "lab/cell.h"

namespace passel::bench {

struct Settings {
  bool smoke = false;      ///< tiny sizes: does everything work?
  bool full = false;       ///< all that a person would ask, in longer runs: up to half an hour
  std::string data_dir;    ///< IDX files; empty: generated digits in a directory that is removed
  std::string program;     ///< the passel program
  double run_seconds = 0;  ///< of one training run; 0: what suits `full` or not
  SlowPush slow_push;      ///< on purpose, in BM_Push

  /// `wanted` belongs to a full run.
  int Pairs(int wanted) const { return smoke ? 1 : full ? wanted : std::min(wanted, 5); }
  double RunSeconds() const {
    if (smoke) return 0.05;
    return run_seconds > 0 ? run_seconds : full ? 0.5 : 0.3;
  }
};

class Suite {
 public:
  Suite(const Settings& settings, Report& report) : settings_(settings), report_(report) {}
  ~Suite();

  const Settings& settings() const { return settings_; }
  Report& report() { return report_; }
  int usable_cores() const { return usable_cores_; }

  /// The data set's directory: settings().data_dir, or digits drawn now.
  Result<std::string> DataDir();

  /// Registers `body` under `name` to run once with `pairs` iterations. `row` is what `body` fills
  /// in; it goes into the report whatever happens. An error of `body` is a wrong answer. The body
  /// runs `for (auto _ : state)` exactly once and calls state.SetIterationTime() in it.
  void Register(const std::string& name, const Row& row, int pairs,
                std::function<Status(benchmark::State& state, Row& row)> body);
  /// The same for a body that adds what it found to the report itself.
  void RegisterPlain(const std::string& name, std::function<void(benchmark::State& state)> body);
  /// Nothing runs at RunSelected() but what is `wanted` here. Before: nothing.
  void Select(const std::function<bool(const std::string&)>& wanted);
  const std::vector<std::string>& selected() const { return selected_; }
  void RunSelected(benchmark::BenchmarkReporter* reporter);

 private:
  const Settings settings_;
  Report& report_;
  const int usable_cores_ = UsableCores();
  std::vector<std::string> names_;               // of everything registered, in order
  std::vector<std::function<void()>> register_;  // with Google Benchmark, as names_
  std::vector<std::string> selected_;
  std::string data_dir_;
  bool remove_data_ = false;
  static int UsableCores();
};

/// Runs `pair` until other programs left the machine alone meanwhile, two or three times at most,
/// and returns what the run with the least load found: a pair whose workers had to share their
/// cores says nothing. On a quiet machine it runs once. Errors: the first one.
template <typename T>
Result<T> LeastDisturbed(const Suite& suite, const std::function<Result<T>()>& pair);

/// Fills in measured, limit and ratio, of the medians, and pairs from one entry per pair.
void Compare(const std::vector<double>& measured, const std::vector<double>& limit, Row* row);

/// Other load, in cores, below which a pair counts as undisturbed.
inline constexpr double kQuietCores = 0.15;

template <typename T>
Result<T> LeastDisturbed(const Suite& suite, const std::function<Result<T>()>& pair) {
  const int tries = suite.settings().smoke ? 1 : suite.settings().full ? 3 : 2;
  Result<T> best = Status(Code::kInternal, "no run");
  double least = 0;
  for (int i = 0; i < tries; ++i) {
    const lab::CpuTimes before = lab::ReadCpuTimes();
    Result<T> found = pair();
    const double load = lab::LoadBetween(before, lab::ReadCpuTimes()).cores;
    if (!found.ok()) return found;
    if (i == 0 || load < least) {
      least = load;
      best = std::move(found);
    }
    if (least < kQuietCores) break;
  }
  return best;
}

// Each registers its benchmarks.
void RegisterLimitBenchmarks(Suite& suite);     // memory, copies, hand-overs
void RegisterStoreBenchmarks(Suite& suite);     // push, pull
void RegisterRoundBenchmarks(Suite& suite);     // barrier rounds
void RegisterTrainingBenchmarks(Suite& suite);  // line transfer, training
void RegisterComputeBenchmarks(Suite& suite);   // one worker's compute
void RegisterLargeBenchmarks(Suite& suite);     // the same of large models
void RegisterProgramBenchmarks(Suite& suite);   // start-up, bytes of the arena
void RegisterNvtxBenchmarks(Suite& suite);      // ranges without a tool
void RegisterSummaryBenchmarks(Suite& suite);   // for TensorBoard
void RegisterHookBenchmarks(Suite& suite);      // hooks around a step
void RegisterSaveBenchmarks(Suite& suite);      // a checkpoint while workers train
void RegisterCellBenchmarks(Suite& suite, const std::vector<lab::Cell>& cells);

/// The cells of a run. A filter that names one cell in full gets that one, whatever its numbers; a
/// filter with "BM_Cell/" in it chooses from all cells there are; any other from the usual ones.
/// Errors: kInvalidArgument and kResourceExhausted for cells that cannot be measured here.
Result<std::vector<lab::Cell>> ChooseCells(const Settings& settings, const std::string& filter,
                                           const std::function<bool(const std::string&)>& matches,
                                           int usable_cores);

}  // namespace passel::bench
