// nvtx_job.h - runs jobs under the recorder.

#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nvtx/recording.h"
#include "support/program.h"

namespace passel::testing {

/// A sandbox whose programs are recorded.
class RecordedJob {
 public:
  RecordedJob() {
    sandbox.SetEnv("NVTX_INJECTION64_PATH", PASSEL_NVTX_RECORDER);
    sandbox.SetEnv("PASSEL_NVTX_RECORD", path());
  }
  std::string path() { return sandbox.dir().File("record"); }
  std::string report_path() { return sandbox.dir().File("report"); }
  Recording Read() { return Recording(path()); }
  nlohmann::json Report() { return ReadJson(report_path()); }

  /// `passel train --report` with these flags, to its end.
  Outcome Train(std::vector<std::string> flags, double seconds = 60) {
    flags.push_back("--report=" + report_path());
    return sandbox.Run(sandbox.Train(flags), seconds);
  }

  /// What Train() with these flags leaves, well-formed. It must end with `code`, and may have
  /// killed `killed` processes.
  Recording Record(std::vector<std::string> flags, int code = 0, int killed = 0,
                   double seconds = 60);

  Sandbox sandbox;
};

enum class EventKind : std::uint8_t { kRange, kSpan, kMark };

/// An entry of base/nvtx_events.inc.
struct TableEntry {
  std::string name;
  EventKind kind;
  std::string category, who, payload, what;
};
const std::vector<TableEntry>& EventTable();

/// What holds in every record, whatever the job was: each thread's pushes and pops match, nothing
/// but the processes that were killed left ranges open, names and categories were registered
/// before the first range of their process, each once, and every event has its table's kind and
/// category.
void CheckWellFormed(const Recording& recording, int processes_killed = 0);

/// Waits until every worker of the running job has made `steps` local steps; false after 20 s
/// (scaled). A worker that gets a signal before that may end at once, with its ranges open.
bool AllTrain(Sandbox& sandbox, std::int64_t steps);

/// The one thread of this name.
Thread OnlyThread(const Recording& recording, const std::string& name);

/// Numbers of the categories by name, of one process (they are the same in all).
std::map<std::string, std::uint32_t> Categories(const Recording& recording);

}  // namespace passel::testing
