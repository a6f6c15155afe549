// program.h - runs the built program as users do, and finds out what it leaves behind.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/subprocess.h"
#include "support/temp_dir.h"
#include "support/test_seed.h"

namespace passel::testing {

/// Liveness bounds are for an idle machine and a release build. On a crowded one they stretch with
/// the load, up to 8 times; PASSEL_TEST_TIME_SCALE stretches them too (4 for a sanitizer build,
/// say).
std::chrono::milliseconds Scaled(std::chrono::milliseconds time);
std::chrono::milliseconds Scaled(double seconds);

using test::TempDir;

std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

/// 6000 training and 1000 test images of generated digits, written once per build folder.
const std::string& Digits();
/// "mnist" or "fashion-mnist": ../shared/data/NAME beside the checkout, if it is there.
std::optional<std::string> SharedDataDir(const std::string& name);

/// One running `passel` with its output in files.
class Program {
 public:
  pid_t pid() const { return process_->pid(); }
  bool Running();
  /// Its end, waited for up to `seconds` (scaled); nullopt if it still runs then.
  std::optional<ExitState> Wait(double seconds = 60);
  void Signal(int signal);  ///< to it alone
  std::string Out() const;  ///< what it has written so far
  std::string Err() const;
  /// Waits until standard error or output contains `text`; false after `seconds` (scaled).
  bool WaitFor(const std::string& text, double seconds = 20);

 private:
  friend class Sandbox;
  std::optional<Subprocess> process_;
  std::string out_, err_;  // paths
};

struct Outcome {
  ExitState exit;
  std::string out, err;
  /// Lines of standard error that report an error: sentences of level E, and those that are no log
  /// line, progress or warning.
  std::vector<std::string> errors;
  /// 0..255, or 1000 + the signal that killed it; -1: it did not end.
  int code = -1;
};

/// `flags` and what is added to them.
std::vector<std::string> With(std::vector<std::string> flags, const std::vector<std::string>& more);

/// The only error of a run that ended with `code`; checks that it is the only one.
std::string OnlyError(const Outcome& outcome, int code = 2);

/// A place in which programs run: files, environment and job ids of its own, so that tests can run
/// side by side and each sees only its own leftovers.
class Sandbox {
 public:
  Sandbox();
  /// Kills what still runs.
  ~Sandbox();

  const std::string& job() const { return job_; }  ///< a fresh job id
  TempDir& dir() { return dir_; }
  const std::string& runtime() const { return runtime_.path(); }  ///< XDG_RUNTIME_DIR
  void SetEnv(const std::string& name, const std::string& value) { env_[name] = value; }

  /// Starts `passel arguments...`.
  Program Start(const std::vector<std::string>& arguments);
  /// `command` instead of the program: argv as given.
  Program StartCommand(const std::vector<std::string>& command);
  /// Runs it to its end.
  Outcome Run(const std::vector<std::string>& arguments, double seconds = 60);
  Outcome Finish(Program& program, double seconds = 60);

  /// "train" with --data_dir and --job_id, and what is given.
  std::vector<std::string> Train(const std::vector<std::string>& more) const;
  /// "task" of a job by hand: `job` of `ps` ps and `workers` workers.
  std::vector<std::string> Task(const std::string& name, int index, int ps, int workers,
                                const std::vector<std::string>& more = {}) const;

  /// Processes started here, directly or not, that are still there: pid to command line.
  std::map<pid_t, std::string> Processes() const;
  /// One task of the job that runs now: "ps", 0. 0 if there is none.
  pid_t TaskPid(const std::string& name, int index) const;
  /// Waits until that task runs (and is another process than `other_than`); 0 after 10 s (scaled).
  pid_t AwaitTask(const std::string& name, int index, pid_t other_than = 0) const;
  /// Whatever is left: processes, abstract sockets, files in /dev/shm, files in the runtime folder
  /// and unexpected temporary files in dir(). One line each; empty if all is clean. Waits up to
  /// `seconds` (scaled) for it to become so.
  std::string Leftovers(double seconds = 2) const;

  /// The JSON of `ctl status --json`; null if it has none.
  nlohmann::json Status();
  /// The job's global step; -1 while nobody answers or there are no variables.
  std::int64_t GlobalStep();
  /// Waits until it is `step`; false after `seconds` (scaled).
  bool AwaitStep(std::int64_t step, double seconds = 20);
  /// Waits for `steps` more of them.
  bool Advances(std::int64_t steps, double seconds = 10);
  /// Interrupts a job or a task: it must end within `seconds` (scaled), with 130, and leave
  /// nothing.
  Outcome Interrupt(Program& program, double seconds = 4);
  /// The exit code of `passel eval` of a saved model.
  int Eval(const std::string& model);

 private:
  std::string LeftoversNow() const;
  TempDir dir_;
  TempDir runtime_;
  std::string job_;
  std::string mark_;
  std::map<std::string, std::string> env_;
  std::set<std::string> dev_shm_;
  int started_ = 0;
};

nlohmann::json ReadJson(const std::string& path);

}  // namespace passel::testing
