#include "bench/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/lab/cell_json.h"

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
  return fmt::format("{} {:g}{}",
                     row.target.kind == Target::Kind::kAtMost ? "<=" : ">=", row.target.bound,
                     row.target.of_ratio ? "x" : " " + row.unit);
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
  return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.error.empty(); });
}

std::vector<std::string> Report::Warnings(const Run& run) const {
  std::vector<std::string> warnings = LoadWarnings(run.load, run.usable_cores);
  const auto spread = static_cast<std::size_t>(std::count_if(
      rows_.begin(), rows_.end(), [](const Row& row) { return Spread(row.pairs) > kMuchSpread; }));
  if (spread > 0) {
    warnings.push_back(
        fmt::format("{} of {} rows, marked !, spread by more than {:.0f} % of their median", spread,
                    rows_.size(), 100 * kMuchSpread));
  }
  return warnings;
}

std::string Report::ToTable(const Run& run) const {
  std::string text;
  for (const auto& [name, value] : run.machine) text += fmt::format("{:<12}{}\n", name, value);
  text += fmt::format(
      "{:<12}{:.1f} cores busy with other programs, {:.1f} % steal, load average "
      "{} before, {} after, {:.0f} s\n\n",
      "load", run.load.cores, 100 * run.load.steal, run.load_average_before, run.load_average_after,
      run.seconds);
  if (rows_.empty()) {
    text += "nothing was measured\n";
  } else {
    std::vector<std::vector<std::string>> lines = {
        {"what", "measured", "limit", "unit", "ratio", "target", "spread", "verdict"}};
    for (const Row& row : rows_) {
      const bool figures = row.not_applicable.empty() && row.error.empty();
      const double spread = Spread(row.pairs);
      lines.push_back(
          {row.what, figures ? Number(row.measured) : "",
           figures && row.limit ? Number(*row.limit) : "", row.unit,
           figures && row.ratio ? Number(*row.ratio) : "", Bound(row),
           figures ? fmt::format("{:.0f} %{}", 100 * spread, spread > kMuchSpread ? "!" : " ") : "",
           Verdict(row)});
    }
    text += Columns(lines);
    std::vector<std::vector<std::string>> latencies = {
        {"latency of every sample", "samples", "p50", "p99", "p99.9", "max", "unit"}};
    for (const Row& row : rows_) {
      if (!row.latency) continue;
      const Latency& l = *row.latency;
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
  }
  for (const std::string& note : notes_) text += note + "\n";
  if (run.interrupted)
    text += "interrupted: what is above is complete, the rest was not measured\n";
  for (const std::string& warning : Warnings(run)) text += "warning: " + warning + "\n";
  return text;
}

std::string Report::ToJson(const Run& run) const {
  nlohmann::ordered_json json;
  json["format"] = kResultsFormat;
  for (const auto& [name, value] : run.machine) json["machine"][name] = value;
  json["load"] = {{"other_cores", run.load.cores},
                  {"steal", run.load.steal},
                  {"load_average_before", run.load_average_before},
                  {"load_average_after", run.load_average_after}};
  json["seconds"] = run.seconds;
  json["interrupted"] = run.interrupted;
  json["warnings"] = Warnings(run);
  json["notes"] = notes_;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json r;
    r["benchmark"] = row.benchmark;
    r["what"] = row.what;
    r["unit"] = row.unit;
    r["verdict"] = Verdict(row);
    if (!row.not_applicable.empty()) r["reason"] = row.not_applicable;
    if (!row.error.empty()) r["error"] = row.error;
    if (row.not_applicable.empty() && row.error.empty()) {
      r["measured"] = row.measured;
      r["limit"] = row.limit ? nlohmann::ordered_json(*row.limit) : nlohmann::ordered_json();
      r["ratio"] = row.ratio ? nlohmann::ordered_json(*row.ratio) : nlohmann::ordered_json();
      r["pairs"] = row.pairs;
      r["spread"] = Spread(row.pairs);
    }
    if (row.target.kind != Target::Kind::kNone) {
      r["target"] = {
          {row.target.kind == Target::Kind::kAtMost ? "at_most" : "at_least", row.target.bound},
          {"of", row.target.of_ratio ? "ratio" : "measured"}};
    }
    if (row.latency) {
      r["latency"] = {{"samples", row.latency->samples},
                      {"p50", row.latency->p50},
                      {"p99", row.latency->p99},
                      {"p999", row.latency->p999},
                      {"max", row.latency->maximum}};
    }
    if (!row.note.empty()) r["note"] = row.note;
    r["load"] = {{"other_cores", row.load.cores}, {"steal", row.load.steal}};
    r["seconds"] = row.seconds;
    rows.push_back(std::move(r));
  }
  json["rows"] = rows;
  return json.dump(2) + "\n";
}

}  // namespace passel::bench
