// report.h - what all benchmarks found, as a table for people and as JSON.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lab/cell_json.h"
#include "lab/machine.h"
#include "lab/samples.h"

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
  /// The figure is Row::ratio; else it is what was measured.
  bool of_ratio = true;
};
inline Target NoTarget() { return {}; }
inline Target RatioAtMost(double bound) { return {Target::Kind::kAtMost, bound, true}; }
inline Target RatioAtLeast(double bound) { return {Target::Kind::kAtLeast, bound, true}; }
inline Target AtMost(double bound) { return {Target::Kind::kAtMost, bound, false}; }

/// One line of the table.
struct Row {
  std::string benchmark;  ///< its name, "BM_Push/mode:hogwild/..."
  std::string what;       ///< in words
  std::string unit;       ///< of `measured`, `limit` and `latency`
  double measured = 0;    ///< median
  /// Median, of the same run: what the same work cannot beat, or, of a reference, what it is only
  /// compared with and may beat.
  std::optional<double> limit;
  bool is_reference = false;
  std::optional<double> ratio;  ///< measured / limit
  std::vector<double> pairs;    ///< that of each pair, or what was measured: for the spread
  Target target;
  std::optional<lab::Latency> latency;  ///< of every sample
  std::string not_applicable;           ///< why nothing was measured; else empty
  std::string error;                    ///< the answer was wrong; else empty
  std::string note;
  lab::OtherLoad load;  ///< while it was measured
  double seconds = 0;   ///< how long that took
};

/// "met", "missed", "-" (no target), "not applicable" or "WRONG".
std::string Verdict(const Row& row);

/// What the machine can do: no row's, one figure.
struct Limit {
  std::string what;       ///< "triad", "memcpy", "hand-over, spinning"
  std::size_t bytes = 0;  ///< that one operation touches
  int cores = 1;          ///< that take part
  double value = 0;
  std::string unit;
};

/// Lines that one core has just written and another one wants, for each ordered pair.
struct LineMatrix {
  std::vector<int> cores;  ///< processors
  /// Of one line that both write in turn, [from][to]; the diagonal is 0.
  std::vector<std::vector<double>> round_trip_ns;
  /// What a line of values or slots costs `to` more in an update if `from` wrote it last.
  std::vector<std::vector<double>> update_ns_per_line;
};

/// Training by `workers` processes, against as many that share nothing.
struct Scaling {
  std::string sharing;
  int workers = 1;
  double steps_per_second = 0, private_steps_per_second = 0;  ///< of all workers
  double ratio = 0;                                           ///< of the two
  double spread = 0;
};

/// Where the time of one training step goes, mean over the steps of all workers, in us.
struct TimeSplit {
  std::string sharing;
  int workers = 1;
  double gather_us = 0, forward_us = 0, backward_us = 0, update_us = 0, wait_us = 0;
  double other_us = 0;  ///< of the step's computing, what is none of the first three
};

class Report {
 public:
  void Add(Row row) { rows_.push_back(std::move(row)); }
  void Add(lab::CellRow cell) { cells_.push_back(std::move(cell)); }
  void Add(Limit limit) { limits_.push_back(std::move(limit)); }
  void Add(Scaling scaling) { scaling_.push_back(std::move(scaling)); }
  void Add(TimeSplit split) { splits_.push_back(std::move(split)); }
  void Set(LineMatrix lines) { lines_ = std::move(lines); }
  /// A line of text under the table.
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  /// True if no answer was wrong.
  bool AllCorrect() const;

  struct Run {
    std::vector<lab::Fact> machine;
    std::string load_average_before, load_average_after;
    lab::OtherLoad load;
    double seconds = 0;
    bool interrupted = false;
    int usable_cores = 0;
  };
  std::string ToTable(const Run& run) const;
  std::string ToJson(const Run& run) const;

 private:
  std::vector<std::string> Warnings(const Run& run) const;
  std::string CellTable() const;
  std::vector<Row> rows_;
  std::vector<lab::CellRow> cells_;
  std::vector<Limit> limits_;
  std::vector<Scaling> scaling_;
  std::vector<TimeSplit> splits_;
  LineMatrix lines_;
  std::vector<std::string> notes_;
};

}  // namespace passel::bench
