// report.h - what all benchmarks found, as a table for people and as JSON.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/lab/machine.h"
#include "bench/lab/samples.h"

namespace passel::bench {

/// What must be reached, and by which figure.
struct Target {
  enum class Kind {
    kNone,     ///< shown beside the others, nothing is asked of it
    kAtMost,   ///< figure <= bound
    kAtLeast,  ///< figure >= bound
  };
  Kind kind = Kind::kNone;
  double bound = 0;
  /// The figure is ratio = measured / limit; else it is what was measured.
  bool of_ratio = true;
};
inline Target NoTarget() { return {}; }
inline Target RatioAtMost(double bound) { return {Target::Kind::kAtMost, bound, true}; }
inline Target RatioAtLeast(double bound) { return {Target::Kind::kAtLeast, bound, true}; }
inline Target AtMost(double bound) { return {Target::Kind::kAtMost, bound, false}; }

/// One line of the table.
struct Row {
  std::string benchmark;        ///< its name, "BM_Push/mode:hogwild/..."
  std::string what;             ///< in words
  std::string unit;             ///< of `measured`, `limit` and `latency`
  double measured = 0;          ///< median
  std::optional<double> limit;  ///< median, of the same run
  std::optional<double> ratio;  ///< median of the pairs' ratios, measured / limit
  std::vector<double> pairs;    ///< what `ratio` (or, without one, `measured`) is the median of
  Target target;
  std::optional<Latency> latency;  ///< of every sample
  std::string not_applicable;      ///< why nothing was measured; else empty
  std::string error;               ///< the answer was wrong; else empty
  std::string note;
  OtherLoad load;      ///< while it was measured
  double seconds = 0;  ///< how long that took
};

/// "met", "missed", "-" (no target), "not applicable" or "WRONG".
std::string Verdict(const Row& row);

class Report {
 public:
  void Add(Row row) { rows_.push_back(std::move(row)); }
  /// A line of text under the table.
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  const std::vector<Row>& rows() const { return rows_; }
  /// True if no answer was wrong.
  bool AllCorrect() const;

  struct Run {
    std::vector<Fact> machine;
    std::string load_average_before, load_average_after;
    OtherLoad load;
    double seconds = 0;
    bool interrupted = false;
    int usable_cores = 0;
  };
  std::string ToTable(const Run& run) const;
  std::string ToJson(const Run& run) const;

 private:
  std::vector<std::string> Warnings(const Run& run) const;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

}  // namespace passel::bench
