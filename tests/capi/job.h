// job.h - jobs of tests/capi/least_squares.c: alone, or as workers of a real ps.

#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "capi/fit.h"
#include "support/program.h"

namespace passel::testing {

inline constexpr long kEndless = 1'000'000'000;  // steps

// Some ps of the program passel, and workers in C.
class Job {
 public:
  Job(int workers, std::vector<std::string> settings, int ps = 1)
      : workers_(workers), ps_count_(ps), settings_(std::move(settings)) {}

  void StartPs(const std::vector<std::string>& flags = {}) {
    for (int i = 0; i < ps_count_; ++i) {
      ps_.insert_or_assign(i, sandbox_.Start(sandbox_.Task("ps", i, ps_count_, workers_,
                                                           With({"--start_wait=30"}, flags))));
    }
  }
  void Set(const std::string& setting) { settings_.push_back(setting); }
  Program& StartWorker(int index, long steps, int features = kFeatures) {
    // The addresses of Sandbox::Task().
    std::vector<std::string> command = {PASSEL_LEAST_SQUARES,
                                        std::to_string(steps),
                                        std::to_string(features),
                                        Out(index),
                                        "job_id=" + sandbox_.job(),
                                        "optimizer=sgd",
                                        "learning_rate=0.1",
                                        "start_wait=30",
                                        "task_index=" + std::to_string(index)};
    for (const std::string& flag : sandbox_.Task("worker", index, ps_count_, workers_)) {
      if (flag.starts_with("--ps_hosts=") || flag.starts_with("--worker_hosts=")) {
        command.push_back(flag.substr(2));
      }
    }
    return workers_running_.insert_or_assign(index, sandbox_.StartCommand(With(command, settings_)))
        .first->second;
  }
  Outcome FinishWorker(int index) { return sandbox_.Finish(workers_running_.at(index), 30); }
  void ExpectDone(int index) {
    const Outcome outcome = FinishWorker(index);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  void ExpectPsEnds(int code) {
    for (auto& [index, program] : ps_) {
      const Outcome outcome = sandbox_.Finish(program, 30);
      EXPECT_EQ(outcome.code, code) << "ps/" << index << ": " << outcome.err;
    }
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
  void KillPs() {
    for (auto& [index, program] : ps_) program.Signal(SIGKILL);
    for (auto& [index, program] : ps_) program.Wait();
  }
  void Kill(int index) {
    workers_running_.at(index).Signal(SIGKILL);
    workers_running_.at(index).Wait();
  }
  std::string Out(int index) { return sandbox_.dir().path() + "/fit" + std::to_string(index); }
  Sandbox& sandbox() { return sandbox_; }

 private:
  const int workers_, ps_count_;
  std::vector<std::string> settings_;
  Sandbox sandbox_;
  std::map<int, Program> ps_;
  std::map<int, Program> workers_running_;
};

}  // namespace passel::testing
