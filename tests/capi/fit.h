// fit.h - what tests/capi/least_squares.c fits, and what it should find.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.h"

namespace passel::testing {

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

}  // namespace passel::testing
