// The laboratory's cells as benchmarks: which ones a run has, and their registration.

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "bench/suite.h"
#include "lab/cell_sets.h"
#include "lab/machine.h"
#include "lab/measure.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

constexpr std::string_view kPrefix = "BM_Cell/";
// Of the full product, in one run.
constexpr std::size_t kMostByFilter = 300;

lab::LabOptions OptionsFor(const Settings& settings, const lab::Cell& cell) {
  lab::LabOptions options;
  options.run_seconds = settings.smoke ? 0.002 : settings.full ? 0.25 : 0.05;
  options.pairs = settings.smoke ? 1 : settings.full ? 5 : 3;
  // Its operations come at their own pace: p99 needs some.
  if (cell.rate_per_second > 0) options.run_seconds *= 4;
  return options;
}

void RunCell(benchmark::State& state, Suite& suite, const lab::Cell& cell) {
  if (lab::Interrupted()) return state.SkipWithError("interrupted");
  lab::CellRow row;
  row.cell = cell;
  const lab::CpuTimes before = lab::ReadCpuTimes();
  for (auto _ : state) {
    Result<lab::CellResult> found = lab::MeasureCell(cell, OptionsFor(suite.settings(), cell));
    const lab::CpuTimes after = lab::ReadCpuTimes();
    state.SetIterationTime(1e-9 * static_cast<double>(after.at_ns - before.at_ns));
    row.load = lab::LoadBetween(before, after);
    if (found.ok()) {
      row.result = std::move(*found);
      continue;
    }
    const Code code = found.status().code();
    if (code == Code::kFailedPrecondition || code == Code::kResourceExhausted) {
      row.not_applicable = found.status().message();
    } else {
      row.error = found.status().message();
    }
  }
  if (lab::Interrupted()) return state.SkipWithError("interrupted");
  if (!row.error.empty() || !row.not_applicable.empty()) {
    state.SkipWithError((row.error.empty() ? row.not_applicable : row.error).c_str());
  } else {
    const lab::Distribution& latency = row.result.latency;
    state.counters["p50"] = latency.p50;
    state.counters["p90"] = latency.p90;
    state.counters["p99"] = latency.p99;
    state.counters["p999"] = latency.p999;
    state.counters["max"] = latency.maximum;
    state.counters["limit"] = row.result.limit.p50;
    state.counters["ratio"] = row.result.ratio;
    state.counters["updates/s"] = row.result.updates_per_second;
    state.counters["lost"] = static_cast<double>(row.result.lost_updates);
    state.SetLabel("us");
  }
  suite.report().Add(std::move(row));
}

}  // namespace

Result<std::vector<lab::Cell>> ChooseCells(const Settings& settings, const std::string& filter,
                                           const std::function<bool(const std::string&)>& matches,
                                           int usable_cores) {
  std::string_view literal = filter;
  if (literal.substr(0, 1) == "^") literal.remove_prefix(1);
  if (literal.size() > 1 && literal.back() == '$') literal.remove_suffix(1);
  const bool is_name = literal.substr(0, kPrefix.size()) == kPrefix &&
                       literal.find_first_of("*?[](){}|\\^$") == std::string_view::npos;
  if (is_name) {
    // Whole names only: the start of one is a pattern like any other.
    if (const Result<lab::Cell> cell = lab::ParseCellName(literal); cell.ok()) {
      PASSEL_RETURN_IF_ERROR(lab::CheckCell(*cell, usable_cores));
      PASSEL_RETURN_IF_ERROR(lab::CheckCellMemory(*cell));
      if (!matches(lab::CellName(*cell))) {  // 5e3 for 5000
        return InvalidArgument(
            fmt::format("--filter {}: spell it {}", filter, lab::CellName(*cell)));
      }
      return std::vector<lab::Cell>{*cell};
    }
  }
  if (filter.find(kPrefix) == std::string::npos) {
    return settings.smoke  ? lab::SmokeCells(usable_cores)
           : settings.full ? lab::FullCells(usable_cores)
                           : lab::QuickCells(usable_cores);
  }
  std::vector<lab::Cell> chosen;
  for (const lab::Cell& cell : lab::AllCells(usable_cores)) {
    if (matches(lab::CellName(cell))) chosen.push_back(cell);
  }
  // Open loops are in no product: there is no end of rates.
  for (const lab::Cell& cell : lab::FullCells(usable_cores)) {
    if (cell.rate_per_second > 0 && matches(lab::CellName(cell))) chosen.push_back(cell);
  }
  if (chosen.size() > kMostByFilter) {
    return InvalidArgument(fmt::format(
        "--filter {} names {} of all cells, but at most {} run at once: name more of op, mode, "
        "opt, "
        "elems, writers, place and pages, or give BM_Cell (without a slash) for the usual ones",
        filter, chosen.size(), kMostByFilter));
  }
  if (chosen.empty() && is_name) return lab::ParseCellName(literal).status();
  for (const lab::Cell& cell : chosen) PASSEL_RETURN_IF_ERROR(lab::CheckCellMemory(cell));
  return chosen;
}

void RegisterCellBenchmarks(Suite& suite, const std::vector<lab::Cell>& cells) {
  for (const lab::Cell& cell : cells) {
    suite.RegisterPlain(lab::CellName(cell),
                        [&suite, cell](benchmark::State& state) { RunCell(state, suite, cell); });
  }
}

}  // namespace passel::bench
