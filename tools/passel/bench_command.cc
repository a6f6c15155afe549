// `passel bench`: what one update costs on this machine in each mode, and which one to choose.
//
// Writers are processes that push all the time, with nothing computed between: the worst case of
// sharing. Everything is measured by src/lab; tools/bench, in the sources, measures far more.

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "job/exit_code.h"
#include "job/flag_checks.h"
#include "job/result_output.h"
#include "lab/advice.h"
#include "lab/cell.h"
#include "lab/cell_json.h"
#include "lab/machine.h"
#include "lab/measure.h"
#include "lab/processes.h"
#include "optim/optimizer.h"
#include "tools/passel/commands.h"
#include "tools/passel/flags.h"
#include "tools/passel/json_file.h"

namespace passel {
namespace {

using lab::Cell;
using lab::CellResult;
using lab::MeasuredCell;

constexpr std::int64_t kMaxElements = std::int64_t{16} << 20;
constexpr int kPairs = 3;             // of limit and update
constexpr double kLongestRun = 0.25;  // of one timed run, in seconds
constexpr double kShortestRun = 0.01;
constexpr double kMuchSpread = 0.20;
constexpr double kReserve = 0.05;  // of the time, for what takes longer than it should
// What a cell costs beside its timed runs: processes, first touch, the check. At first a guess,
// then what the last one took, but never more than this: a disturbed cell says little of the next.
constexpr double kFirstSeconds = 0.05, kMostSeconds = 0.1;
constexpr double kFirstSecondsPerByte = 1.5e-9, kMostSecondsPerByte = 3e-9;

struct BenchFlags {
  std::int64_t elements = 79510;
  std::string optimizer = "adam";
  std::optional<std::int64_t> workers;  // none: one per usable core
  double seconds = 10;
  std::string json;
  job::TypedNumbers typed;
};

struct BenchPlan {
  OptimizerKind optimizer = OptimizerKind::kAdam;
  std::size_t elements = 0;
  int workers = 1;
  int cores = 1;
  std::vector<Cell> cells;  // in the order of measuring: what the advice needs comes first
};

// Columns of the table; rows are printed as they come.
constexpr const char* kRow = "{:<9} {:>7} {:>9} {:>9} {:>9} {:>11} {:>9} {:>7}  {}\n";

// The memory that it checks is that of the cell alone.
Status CheckBench(const BenchFlags& flags, BenchPlan* plan) {
  plan->cores = static_cast<int>(UsableCpus().size());
  const int most = std::min(std::max(2, lab::kWritersPerCore * plan->cores), kMaxWorkers);
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--elements", flags.elements, 1, kMaxElements));
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--seconds", flags.seconds, 1, 60, flags.typed, " s"));
  plan->elements = static_cast<std::size_t>(flags.elements);
  plan->workers = plan->cores;
  if (flags.workers) {
    PASSEL_RETURN_IF_ERROR(job::CheckRange("--workers", *flags.workers, 1, most));
    plan->workers = static_cast<int>(*flags.workers);
  }
  const lab::CellOptimizer* const optimizer = lab::CellOptimizerOf(flags.optimizer);
  if (optimizer == nullptr) {
    return InvalidArgument(fmt::format("--optimizer {} is not known: use one of {}",
                                       flags.optimizer,
                                       fmt::join(lab::CellOptimizerNames(), ", ")));
  }
  plan->optimizer = optimizer->kind;
  if (!flags.json.empty()) PASSEL_RETURN_IF_ERROR(job::PrepareResult("--json", flags.json));
  // All workers first, which the advice is about; then where sharing begins; then none.
  std::vector<int> counts = {plan->workers};
  for (const int count : {2, 1}) {
    if (count < plan->workers) counts.push_back(count);
  }
  for (const int count : counts) {
    for (const lab::Sharing sharing : lab::kSharings) {
      if (sharing.is_foil()) continue;
      Cell cell;
      cell.op = sharing.in_rounds() ? lab::CellOp::kRound : lab::CellOp::kPush;
      cell.sharing = sharing;
      cell.optimizer = plan->optimizer;
      cell.elements = plan->elements;
      cell.writers = count;
      cell.placement = count <= plan->cores ? lab::Placement::kOwn : lab::Placement::kFree;
      plan->cells.push_back(cell);
    }
  }
  return CheckCellMemory(plan->cells[0]);
}

std::string Seconds(double us) {
  if (us < 0.9995) return fmt::format("{:.0f} ns", 1e3 * us);
  if (us < 999.5) return fmt::format("{:.{}f} us", us, us < 9.995 ? 2 : us < 99.95 ? 1 : 0);
  return fmt::format("{:.{}f} ms", 1e-3 * us, us < 9995 ? 2 : us < 99950 ? 1 : 0);
}

// "79,510"
std::string Grouped(double number) {
  std::string text = fmt::format("{:.0f}", number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

// The share of all updates of elements that was lost.
std::string Lost(const Cell& cell, const CellResult& found) {
  if (found.lost_updates == 0) return "none";
  const double all = static_cast<double>(found.pushes) * static_cast<double>(cell.elements);
  return fmt::format("{:.2g} %", 100 * static_cast<double>(found.lost_updates) / all);
}

void PrintHead(const BenchPlan& plan, const BenchFlags& flags) {
  for (const auto& [name, value] : lab::DescribeMachine()) fmt::print("{:<12}{}\n", name, value);
  fmt::print(
      "\nOne update of {} parameters by {}: every writer pushes all the time and computes nothing\n"
      "between, the worst case of sharing. The reference: the bare loops of as many writers, each\n"
      "on memory of its own, in turn with the update; the share is that of its updates a second.\n"
      "A round applies one mean of all gradients, less work than its reference's, and may come\n"
      "out above 1.\n\n",
      Grouped(static_cast<double>(plan.elements)), flags.optimizer);
  fmt::print(kRow, "mode", "writers", "p50", "p99", "reference", "updates/s", "share", "spread",
             "lost");
  fmt::print("{}\n", std::string(86, '-'));
  std::fflush(stdout);
}

void PrintCell(const Cell& cell, const CellResult& found) {
  fmt::print(kRow, lab::SharingName(cell.sharing), cell.writers, Seconds(found.latency.p50),
             Seconds(found.latency.p99), Seconds(found.limit.p50),
             Grouped(found.updates_per_second), fmt::format("{:.2f}", found.share),
             fmt::format("{:.0f} %{}", 100 * found.share_spread,
                         found.share_spread > kMuchSpread ? "!" : ""),
             Lost(cell, found));
  std::fflush(stdout);
}

// What became of the cells.
struct Measured {
  std::vector<MeasuredCell> cells;
  std::vector<std::string> warnings;
  lab::OtherLoad load;
  double seconds = 0;
  bool interrupted = false;
};

// Measures cell after cell until `seconds` from `begin` on are over. A cell for which there is no
// time is left out.
Status MeasureCells(const BenchPlan& plan, double seconds, std::int64_t begin, Measured* measured) {
  const auto elapsed = [begin] { return 1e-9 * static_cast<double>(MonotonicNs() - begin); };
  const lab::CpuTimes before = lab::ReadCpuTimes();
  double per_byte = kFirstSecondsPerByte, fixed = kFirstSeconds;
  std::size_t left = plan.cells.size();
  int late = 0;
  for (const Cell& cell : plan.cells) {
    if (lab::Interrupted()) {
      measured->interrupted = true;
      break;
    }
    const double beside = fixed + per_byte * static_cast<double>(CellBytes(cell));
    const double time_left = (1 - kReserve) * seconds - elapsed();
    lab::LabOptions options;
    options.pairs = kPairs;
    // A fair share of what is left.
    options.run_seconds =
        std::min(kLongestRun, (time_left / static_cast<double>(left) - beside) / (2 * kPairs));
    --left;
    if (options.run_seconds < kShortestRun) {
      // Too slow for all: for this one alone there may be time.
      options.run_seconds = kShortestRun;
      if (beside + 2 * kPairs * kShortestRun > time_left) {
        ++late;
        continue;
      }
    }
    const double start = elapsed();
    const Result<CellResult> found = MeasureCell(cell, options);
    const double took = elapsed() - start - 2 * kPairs * options.run_seconds;
    if (!found.ok()) {
      if (found.status().code() == Code::kCancelled) {
        measured->interrupted = true;
        break;
      }
      return found.status().WithContext(CellName(cell));
    }
    fixed = std::clamp(took, 0.005, kMostSeconds);
    per_byte =
        std::clamp((took - fixed) / static_cast<double>(CellBytes(cell)), 0.0, kMostSecondsPerByte);
    PrintCell(cell, *found);
    measured->cells.push_back({cell, *found});
  }
  measured->seconds = elapsed();
  measured->load = LoadBetween(before, lab::ReadCpuTimes());
  // The load is that of the whole machine, however much of it we may use.
  measured->warnings =
      LoadWarnings(measured->load, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  const auto spread = std::count_if(
      measured->cells.begin(), measured->cells.end(),
      [](const MeasuredCell& cell) { return cell.result.share_spread > kMuchSpread; });
  if (spread > 0) {
    measured->warnings.push_back(
        fmt::format("{} of {} rows, marked !, spread by more than {:.0f} % of their median", spread,
                    measured->cells.size(), 100 * kMuchSpread));
  }
  if (plan.workers > plan.cores) {
    measured->warnings.push_back(fmt::format("{} workers share {} usable core{}", plan.workers,
                                             plan.cores, plan.cores == 1 ? "" : "s"));
  }
  if (late > 0) {
    measured->warnings.push_back(
        fmt::format("{} of {} rows were left out, for which {:g} s are too short: give --seconds a "
                    "larger number or --elements a smaller one",
                    late, plan.cells.size(), seconds));
  }
  return {};
}

Json BenchToJson(const Measured& measured, const std::string& advice) {
  Json json;
  json["format"] = lab::kResultsFormat;
  json["program"] = "passel bench";
  for (const auto& [name, value] : lab::DescribeMachine()) json["machine"][name] = value;
  json["load"] = {{"other_cores", measured.load.cores}, {"steal", measured.load.steal}};
  json["seconds"] = measured.seconds;
  json["interrupted"] = measured.interrupted;
  json["warnings"] = measured.warnings;
  json["notes"] = Json::MakeList();
  json["rows"] = Json::MakeList();  // those of tools/bench: none
  json["guarantees"] = lab::GuaranteesToJson();
  json["cells"] = Json::MakeList();
  for (const auto& [cell, result] : measured.cells) {
    json["cells"].Add(lab::CellToJson({cell, result, "", ""}));
  }
  json["advice"] = advice;
  return json;
}

int BenchCommand(const BenchFlags& flags, std::int64_t start_ns) {
  BenchPlan plan;
  if (const Status status = CheckBench(flags, &plan); !status.ok()) {
    LogError("{}", status.message());
    return job::kExitUsage;
  }
  lab::NoteInterrupts();
  PrintHead(plan, flags);
  Measured measured;
  const Status status = MeasureCells(plan, flags.seconds, start_ns, &measured);
  if (!status.ok()) {
    LogError("{}", status.message());
    // A wrong answer, or a machine that stood still; else something is short.
    const bool failed =
        status.code() == Code::kInternal || status.code() == Code::kDeadlineExceeded;
    return failed ? job::kExitFailed : job::kExitUsage;
  }
  fmt::print("\n");
  if (measured.interrupted) fmt::print("interrupted: what is above is complete\n");
  for (const std::string& warning : measured.warnings) fmt::print("warning: {}\n", warning);
  const std::string advice = lab::Advise(measured.cells, plan.workers);
  fmt::print("{}\n", advice);
  if (!flags.json.empty()) {
    const Status written = WriteJsonFile(flags.json, BenchToJson(measured, advice));
    if (!written.ok()) {
      LogError("{}", written.message());
      return job::kExitFailed;
    }
  }
  return measured.interrupted ? job::kExitInterrupted : job::kExitDone;
}

}  // namespace

void AddBenchCommand(Command& program, std::int64_t start_ns) {
  auto flags = std::make_shared<BenchFlags>();
  Command command = program.AddCommand(
      "bench", "Measure what an update costs here in each mode, in ten seconds, and advise one");
  command.Add("--elements", &flags->elements, "Parameters of the model, float32 each")
      .ShowDefault();
  command.Add("--optimizer", &flags->optimizer, Listed(lab::CellOptimizerNames(), "or"))
      .ShowDefault();
  command.Add("--workers", &flags->workers,
              "Processes that push at once; default: one per usable core");
  command
      .Add("--seconds", &flags->seconds,
           "Length of it all, 1 to 60; rows that do not fit are left out")
      .ShowDefault()
      .KeepTyped(&flags->typed);
  command.Add("--json", &flags->json,
              "Write everything to this file as well; -: to standard output, with the "
              "table on standard error");
  command.OnRun([flags, start_ns] { return BenchCommand(*flags, start_ns); });
}

}  // namespace passel
