// other_parts.h - the ps of other hosts, as ps/0 reaches them to save: each is asked to copy and to
// write its own part (job/shard_saver.h), all at the same time.
//
// An order is sent to all, then the answers of all are awaited. After an error nothing is asked
// until Forget().
//
// Threads    One at a time.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"
#include "fabric/control/control_connection.h"
#include "fabric/pipe.h"
#include "job/shard_saver.h"
#include "job/task.h"

namespace passel::job {

/// Whether the lists have ps on several hosts: then each writes its own part.
bool EachPsWritesItsPart(const Task& task);

class OtherParts {
 public:
  /// Called while answers are awaited, at least every 100 ms. Errors: end the wait.
  using Between = std::function<Status()>;

  /// REQUIRES: `task`, which outlives it, is ps/0, and EachPsWritesItsPart().
  explicit OtherParts(const Task& task);

  /// A save begins: of the values of that Initialize(), ShardState::cohort.
  Status OrderBegin(PartCopy how, std::uint64_t cohort);
  Status OrderCopy() { return Order({{"ask", "save_copy"}}, {}); }
  /// `order`: ToJson(PartOrder), whose folder and part they fill in.
  Status OrderWrite(const std::string& order, bool exact);
  /// What all have answered. Errors: of the first one that failed, naming it: kUnavailable,
  /// kDeadlineExceeded, those of ShardSaver::Answer() and of `between`.
  Result<std::vector<Json>> Await(const Between& between, Deadline deadline);
  /// As Await(), of OrderBegin() and OrderCopy().
  Result<std::vector<PartState>> AwaitStates(const Between& between, Deadline deadline);

  /// A save that was begun, and not written, ends with all, and is no more on the disk of any that
  /// can be reached in that time.
  void Forget(Deadline deadline);
  /// The job has ended, and nothing more is asked of anybody.
  void Dismiss(Deadline deadline);

 private:
  struct Ps {
    std::string name;  // "ps/1 at b:2222"
    std::shared_ptr<fabric::ControlLine> line;
    std::unique_ptr<fabric::Pipe> pipe;
  };
  Status Order(const Json& question, std::string_view bytes);
  void TellAll(const char* what, Deadline deadline);

  std::vector<Ps> others_;
  bool begun_ = false, writing_ = false;
};

}  // namespace passel::job
