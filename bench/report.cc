#include "bench/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace passel::bench {
namespace {

// Beyond it the figure of another run may be another one.
constexpr double kMuchSpread = 0.20;

// Four significant digits, no exponent.
std::string Number(double x) {
  const double size = std::abs(x);
  if (size >= 1000) return fmt::format("{:.0f}", x);
  if (size >= 100) return fmt::format("{:.1f}", x);
  if (size >= 10) return fmt::format("{:.2f}", x);
  return fmt::format("{:.3f}", x);
}

std::string Bound(const Row& row) {
  if (row.target.kind == Target::Kind::kNone) return "-";
  return fmt::format("{} {:.4g}{}",
                     row.target.kind == Target::Kind::kAtMost ? "<=" : ">=", row.target.bound,
                     row.target.of_ratio ? "x" : " " + row.unit);
}

// Of all updates of elements.
std::string Share(std::int64_t lost, const lab::Cell& cell, const lab::CellResult& result) {
  if (lost == 0) return "0";
  return fmt::format("{:.3g} %", 100 * static_cast<double>(lost) /
                                     static_cast<double>(cell.elements) /
                                     static_cast<double>(result.pushes));
}

// UTF-8 is not used: bytes are columns.
std::string Line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += i == 0 || i + 1 == cells.size() ? fmt::format("{:<{}}", cells[i], widths[i])
                                            : fmt::format("{:>{}}", cells[i], widths[i]);
    if (i + 1 < cells.size()) line += "  ";
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string Columns(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& cells : lines) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += Line(lines[i], widths);
    if (i > 0) continue;
    std::size_t total = 2 * (widths.size() - 1);
    for (const std::size_t width : widths) total += width;
    text += std::string(total, '-') + "\n";
  }
  return text;
}

}  // namespace

std::string Verdict(const Row& row) {
  if (!row.error.empty()) return "WRONG";
  if (!row.not_applicable.empty()) return "not applicable";
  const double figure = row.target.of_ratio ? row.ratio.value_or(0) : row.measured;
  switch (row.target.kind) {
    case Target::Kind::kNone:
      return "-";
    case Target::Kind::kAtMost:
      return figure <= row.target.bound ? "met" : "missed";
    case Target::Kind::kAtLeast:
      return figure >= row.target.bound ? "met" : "missed";
  }
  return "-";
}

bool Report::AllCorrect() const {
  const auto right = [](const auto& row) { return row.error.empty(); };
  return std::all_of(rows_.begin(), rows_.end(), right) &&
         std::all_of(cells_.begin(), cells_.end(), right);
}

std::vector<std::string> Report::Warnings(const Run& run) const {
  std::vector<std::string> warnings = lab::LoadWarnings(run.load, run.usable_cores);
  const auto rows = std::count_if(rows_.begin(), rows_.end(), [](const Row& row) {
    return lab::Spread(row.pairs) > kMuchSpread;
  });
  const auto cells = std::count_if(cells_.begin(), cells_.end(), [](const lab::CellRow& cell) {
    return cell.result.spread > kMuchSpread;
  });
  if (rows + cells > 0) {
    warnings.push_back(
        fmt::format("{} of {} rows and {} of {} cells, marked !, spread by more than {:.0f} % of "
                    "their median",
                    rows, rows_.size(), cells, cells_.size(), 100 * kMuchSpread));
  }
  return warnings;
}

std::string Report::CellTable() const {
  std::vector<std::vector<std::string>> lines = {{"cell: us an update", "p50", "p99", "p99.9",
                                                  "reference", "ratio", "spread", "updates/s",
                                                  "share", "lost", "busy", "overlapped"}};
  std::string notes;
  for (const lab::CellRow& row : cells_) {
    const lab::Cell& cell = row.cell;
    std::string what =
        fmt::format("{} {} {} {} floats, {} writer{} {}", lab::CellOpName(cell.op),
                    lab::SharingName(cell.sharing), OptimizerName(cell.optimizer), cell.elements,
                    cell.writers, cell.writers == 1 ? "" : "s", lab::PlacementName(cell.placement));
    if (cell.pages == lab::CellPages::kHuge) what += ", huge pages";
    if (cell.rate_per_second > 0) what += fmt::format(", open at {:g}/s", cell.rate_per_second);
    const lab::CellResult& r = row.result;
    if (!row.error.empty()) {
      notes += fmt::format("{}: WRONG: {}\n", what, row.error);
      lines.push_back({what, "WRONG", "", "", "", "", "", "", "", "", "", ""});
      continue;
    }
    if (!row.not_applicable.empty()) {
      notes += fmt::format("{}: not applicable: {}\n", what, row.not_applicable);
      lines.push_back({what, "not applicable", "", "", "", "", "", "", "", "", "", ""});
      continue;
    }
    if (!r.note.empty()) notes += fmt::format("{}: {}\n", what, r.note);
    lines.push_back(
        {what, Number(r.latency.p50), Number(r.latency.p99), Number(r.latency.p999),
         Number(r.limit.p50), Number(r.ratio),
         fmt::format("{:.0f} %{}", 100 * r.spread, r.spread > kMuchSpread ? "!" : " "),
         fmt::format("{:.0f}", r.updates_per_second),
         cell.rate_per_second == 0 && r.share > 0 ? fmt::format("{:.0f} %", 100 * r.share) : "",
         Share(r.lost_updates, cell, r), std::to_string(r.busy_blocks),
         std::to_string(r.overlapped_blocks)});
  }
  return Columns(lines) + (notes.empty() ? "" : "\n" + notes);
}

std::string Report::ToTable(const Run& run) const {
  std::string text;
  for (const auto& [name, value] : run.machine) text += fmt::format("{:<12}{}\n", name, value);
  text += fmt::format(
      "{:<12}{:.1f} cores busy with other programs, {:.1f} % steal, load average "
      "{} before, {} after, {:.0f} s\n\n",
      "load", run.load.cores, 100 * run.load.steal, run.load_average_before, run.load_average_after,
      run.seconds);
  if (rows_.empty() && cells_.empty()) text += "nothing was measured\n";
  if (!rows_.empty()) {
    std::vector<std::vector<std::string>> lines = {
        {"what", "measured", "limit", "reference", "unit", "ratio", "target", "spread", "verdict"}};
    for (const Row& row : rows_) {
      const bool figures = row.not_applicable.empty() && row.error.empty();
      const double spread = lab::Spread(row.pairs);
      lines.push_back(
          {row.what, figures ? Number(row.measured) : "",
           figures && row.limit && !row.is_reference ? Number(*row.limit) : "",
           figures && row.limit && row.is_reference ? Number(*row.limit) : "", row.unit,
           figures && row.ratio ? Number(*row.ratio) : "", Bound(row),
           figures ? fmt::format("{:.0f} %{}", 100 * spread, spread > kMuchSpread ? "!" : " ") : "",
           Verdict(row)});
    }
    text += Columns(lines);
    std::vector<std::vector<std::string>> latencies = {
        {"latency of every sample", "samples", "p50", "p99", "p99.9", "max", "unit"}};
    for (const Row& row : rows_) {
      if (!row.latency) continue;
      const lab::Latency& l = *row.latency;
      latencies.push_back({row.what, std::to_string(l.samples), Number(l.p50), Number(l.p99),
                           Number(l.p999), Number(l.maximum), row.unit});
    }
    if (latencies.size() > 1) text += "\n" + Columns(latencies);
    std::string notes;
    for (const Row& row : rows_) {
      if (!row.error.empty()) notes += fmt::format("{}: WRONG: {}\n", row.what, row.error);
      if (!row.not_applicable.empty()) {
        notes += fmt::format("{}: not applicable: {}\n", row.what, row.not_applicable);
      } else if (!row.note.empty()) {
        notes += fmt::format("{}: {}\n", row.what, row.note);
      }
    }
    if (!notes.empty()) text += "\n" + notes;
    if (!cells_.empty()) text += "\n";
  }
  if (!cells_.empty()) text += CellTable();
  for (const std::string& note : notes_) text += note + "\n";
  if (run.interrupted)
    text += "interrupted: what is above is complete, the rest was not measured\n";
  for (const std::string& warning : Warnings(run)) text += "warning: " + warning + "\n";
  return text;
}

}  // namespace passel::bench
