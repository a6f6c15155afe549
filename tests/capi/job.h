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

#include "support/program.h"

namespace passel::testing {

inline constexpr long kEndless = 1'000'000'000;  // steps
inline constexpr int kRows = 64, kFeatures = 3;

// The numbers of least_squares.c.
inline float Input(int row, int feature) {
  return static_cast<float>((row * 7 + feature * 13) % 11) / 5.5F - 1.0F;
}
inline float Target(int row) {
  float sum = 0.25F;
  for (int f = 0; f < kFeatures; ++f) {
    sum += Input(row, f) * (0.5F * static_cast<float>(f) - 1.0F);
  }
  return sum;
}

// w and b after so many steps of gradient descent, in double precision: each step takes the mean of
// the gradients of `workers`.
inline std::vector<double> Descent(int steps, double rate, int workers) {
  std::vector<double> w(kFeatures + 1, 0.5);
  w[kFeatures] = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> gradient(kFeatures + 1);
    for (int row = 0; row < kRows; ++row) {
      const double rows = (kRows - row % workers + workers - 1) / workers;  // of its worker
      double error = w[kFeatures] - Target(row);
      for (int f = 0; f < kFeatures; ++f) error += w[f] * Input(row, f);
      for (int f = 0; f < kFeatures; ++f) gradient[f] += error * Input(row, f) / rows / workers;
      gradient[kFeatures] += error / rows / workers;
    }
    for (int i = 0; i <= kFeatures; ++i) w[i] -= rate * gradient[i];
  }
  return w;
}
inline const std::vector<double> kSolution = {-1.0, -0.5, 0.0, 0.25};

struct Fit {
  std::vector<double> values;
  std::int64_t global_step = -1;
  std::string mode;
};
inline Fit ReadFit(const std::string& path) {
  std::istringstream text(ReadText(path));
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  Fit fit;
  if (words.size() < 2) return fit;
  fit.mode = words.back();
  fit.global_step = std::stoll(words[words.size() - 2]);
  for (std::size_t i = 0; i + 2 < words.size(); ++i) fit.values.push_back(std::stod(words[i]));
  return fit;
}

inline void ExpectNear(const std::vector<double>& values, const std::vector<double>& wanted,
                       double tolerance) {
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], tolerance) << i;
}

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
