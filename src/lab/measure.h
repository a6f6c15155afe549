// measure.h - what one update costs: measures one cell, beside its reference.
//
//   Cell cell;                                      // 79,510 floats, adam, hogwild
//   cell.writers = 4;
//   Result<CellResult> found = MeasureCell(cell, LabOptions());
//   found->latency.p50, found->ratio, ...
//
// The writers are processes, each with a mapping of one arena. The limit is the bare fused loop of
// the same optimizer over as many floats of each writer's private memory, on the same cores, by as
// many writers at once. Limit and cell are timed in turn, in `pairs` pairs.
//
// Answers    Before anything is timed the writers update random values, and the result must be the
//            last bit of what the optimizer's loop gives. While it is timed the gradients are such
//            that the sum is known: updates that are lost are counted, one by one.
// Threads    One measurement at a time, from a process with one thread: it forks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lab/cell.h"
#include "lab/distribution.h"

namespace passel::lab {

struct LabOptions {
  double run_seconds = 0.1;  ///< of each timed run: a pair takes twice as long
  int pairs = 3;             ///< of limit and cell
  /// For all writers and pairs together, at most 8 million, so that floats count them; a run that
  /// would give more ends early.
  std::size_t max_samples = 2'000'000;
  /// For tests: called by each writer before each timed operation of the cell, outside of what a
  /// closed loop times. May sleep.
  std::function<void(int writer, std::int64_t operation)> before_operation = {};
};

struct CellResult {
  Distribution latency;  ///< of every operation of all writers and pairs, in us
  /// The reference's operations take this, in us: the bare fused loop (kPushPull: and the copy) on
  /// private memory. Rounds, which share an update, and writers that share a cache may beat it.
  Distribution limit;
  std::string limit_what;
  std::vector<double> pairs;  ///< p50 of the cell over p50 of the reference, of each pair
  double ratio = 0;           ///< p50 over p50 of all pairs: 2 takes twice as long as the reference
  double spread = 0;          ///< (largest - smallest) / median of `pairs`
  /// Gradients that all writers together handed in, and that were applied or averaged, per second:
  /// the median over the pairs.
  double updates_per_second = 0;
  double limit_updates_per_second = 0;  ///< the reference's
  /// Updates a second over those of the reference: the median of the pairs' shares; and (largest -
  /// smallest) / median.
  double share = 0, share_spread = 0;
  std::int64_t pushes = 0;  ///< in all timed runs, warm-ups included
  /// Updates of single elements that were lost, of pushes x elements: counted in the value (sgd,
  /// adam) or in the sum of squares (adagrad, ftrl), where every update adds 1.
  std::int64_t lost_updates = 0;
  std::int64_t busy_blocks = 0;        ///< found held by another writer, and come back to
  std::int64_t overlapped_blocks = 0;  ///< entered all the same, or left out, after three passes
  std::string note;                    ///< what else must be known; often empty
};

/// Errors: kInvalidArgument for a cell that makes no sense on this machine (CheckCell());
/// kResourceExhausted when memory is short; kFailedPrecondition when huge pages are not to be had;
/// kInternal for a wrong answer; kCancelled after Ctrl-C (NoteInterrupts()); kDeadlineExceeded.
Result<CellResult> MeasureCell(const Cell& cell, const LabOptions& options);

}  // namespace passel::lab
