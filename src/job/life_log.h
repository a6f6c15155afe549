// life_log.h - the lives of a job's tasks: when each began, and which ended before they should.
//
// Thread safety: one thread at a time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/subprocess.h"

namespace passel::job {

struct TaskStart {
  std::string task;  ///< "worker/1"
  int life = 1;
  double at_s = 0;  ///< since the program was started
};

/// The end of a life that nobody in the job had asked for.
struct TaskDeath {
  std::string task;
  int life = 1;
  double at_s = 0;    ///< since the program was started
  std::string cause;  ///< "was killed by SIGKILL (9)"
  ExitState exit;
  std::vector<std::string> last_lines = {};  ///< that it printed, oldest first
  bool restarted = false;                    ///< another life of it followed
};

/// The end of a life that was scaled away.
struct TaskLeave {
  std::string task;
  int life = 1;
  double at_s = 0;  ///< since the program was started
};

/// Somebody wanted so many workers from then on.
struct ScaleChange {
  int workers = 0;
  double at_s = 0;  ///< since the program was started
};

/// In order of time, and bounded, however long a job goes on dying: of later lives only how many
/// there were is known.
class LifeLog {
 public:
  static constexpr std::size_t kMostStarts = 2000, kMostDeaths = 1000, kMostLeaves = 1000;
  static constexpr std::size_t kMostWithLines = 100;

  void Add(TaskStart start);
  void Add(TaskDeath death);
  /// The death that was added last ended the job. The first one that does counts.
  void LastDeathEndedJob();
  void Add(TaskLeave leave);
  void Add(ScaleChange change);

  const std::vector<TaskStart>& starts() const { return starts_; }
  const std::vector<TaskDeath>& deaths() const { return deaths_; }
  /// Those that deaths() has no room for are counted.
  std::int64_t num_deaths() const { return num_deaths_; }
  int ps_restarts() const { return ps_restarts_; }

  /// "worker/1 died first, after 3.2 s: it was killed by SIGKILL (9); its last lines: a | b",
  /// without lines if another life of it followed. Empty if nobody did.
  std::string FirstDeath() const;
  /// For a person, in several lines: how the number of workers was changed; the deaths; at the end
  /// the one that ended the job, with its last lines. If none did, the first death has its lines;
  /// if another life of it followed, only if the job `tells_survived` ones. Empty if there was none
  /// of that.
  std::string InWords(bool tells_survived) const;
  /// Adds "ps_restarts", "starts", "deaths", "leaves" and "scaled".
  void Describe(Json* report) const;

 private:
  std::vector<TaskStart> starts_;
  std::vector<TaskDeath> deaths_;
  std::vector<TaskLeave> leaves_;
  std::vector<ScaleChange> changes_;
  std::int64_t num_deaths_ = 0;
  std::optional<TaskDeath> last_, ended_job_;  // with their lines, also of those without a place
  int ps_restarts_ = 0;
};

}  // namespace passel::job
