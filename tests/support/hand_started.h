// hand_started.h - a job whose tasks are started by hand, each a process of its own.

#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/program.h"

namespace passel::testing {

inline const std::vector<std::string> kEndless = {"--train_steps=100000000", "--start_wait=20"};

/// A job of `ps` ps and `workers` workers: "ps/0" and so on.
class HandStarted {
 public:
  HandStarted(int ps, int workers, std::vector<std::string> flags)
      : ps_(ps), workers_(workers), flags_(std::move(flags)) {}

  Sandbox& sandbox() { return sandbox_; }
  Program& operator[](const std::string& task) { return tasks_.at(task); }
  /// Its command line.
  std::vector<std::string> Task(const std::string& task,
                                const std::vector<std::string>& more = {}) const {
    const std::size_t slash = task.find('/');
    return sandbox_.Task(task.substr(0, slash), std::stoi(task.substr(slash + 1)), ps_, workers_,
                         With(flags_, more));
  }
  /// Its next life, if it had one.
  Program& Start(const std::string& task, const std::string& failpoint = "",
                 const std::vector<std::string>& more = {}) {
    sandbox_.SetEnv("PASSEL_FAILPOINT", failpoint);
    return tasks_.insert_or_assign(task, sandbox_.Start(Task(task, more))).first->second;
  }
  void StartAll() {
    for (int i = 0; i < ps_; ++i) Start("ps/" + std::to_string(i));
    for (int i = 0; i < workers_; ++i) Start("worker/" + std::to_string(i));
  }
  void Kill(const std::string& task) {
    (*this)[task].Signal(SIGKILL);
    (*this)[task].Wait();
  }
  Outcome Finish(const std::string& task, double seconds = 15) {
    return sandbox_.Finish((*this)[task], seconds);
  }
  /// All end with `code` by themselves, and leave nothing behind.
  void ExpectEnd(int code = 0) {
    for (auto& [task, program] : tasks_) {
      EXPECT_EQ(sandbox_.Finish(program, 20).code, code) << task << program.Err() << program.Out();
    }
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
  /// What `passel ctl stop` is answered; ends what runs.
  void AskToStop() { EXPECT_EQ(sandbox_.Run({"ctl", "stop", sandbox_.job()}).code, 0); }
  /// Ends it by `passel ctl stop`: what runs of these ends with 130.
  void Stop(const std::vector<std::string>& running) {
    AskToStop();
    for (const std::string& task : running) EXPECT_EQ(Finish(task).code, 130) << task;
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
  /// The only error of a task that ends with `code`.
  std::string OnlyErrorOf(const std::string& task, int code = 2) {
    return OnlyError(Finish(task), code);
  }
  bool Advances(std::int64_t steps, double seconds = 10) {
    return sandbox_.Advances(steps, seconds);
  }

 private:
  const int ps_, workers_;
  const std::vector<std::string> flags_;
  Sandbox sandbox_;
  std::map<std::string, Program> tasks_;
};

}  // namespace passel::testing
