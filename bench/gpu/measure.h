// measure.h - how gpu_micro takes times: a median within a budget, a line for each row, and a
// watchdog that ends the program where a row does not end. No CUDA here.

#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpu_micro {

/// What one Median() may take, in us.
constexpr double kBudget = 0.5e6;
/// A row that takes longer than this ends the program; no row is begun when kWholeSeconds are over.
constexpr double kRowSeconds = 10;
constexpr double kWholeSeconds = 45;

/// Microseconds on the monotonic clock, the same in every process.
double Now();

/// The value that `part` (0 to 1) of `samples` lie below.
double Percentile(std::vector<double> samples, double part);

/// The median of `repeats` runs, or of as many as the budget allows, after up to a tenth as many to
/// warm up; each run does `inner` of what is timed.
double Median(int repeats, int inner, const std::function<void()>& run);

/// This machine does not offer it.
struct NotOffered : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The time that an earlier row left. NaN stands for none: then this row cannot be made either.
double Known(double time);

/// Prints a row as soon as it is measured; `predicted` may be null.
void Measure(const char* name, const char* predicted, const std::function<double()>& measure,
             const char* unit = "us");

/// Prints that `name` failed.
void PrintFailed(const char* name, const char* why);
/// How many rows failed.
int Failed();

/// From now on a row that exceeds its deadline is printed as FAILED, and the program ends with 1.
void StartWatchdog();

/// What the watchdog watches until the end of this object's life.
class Deadline {
 public:
  Deadline(const char* row, double seconds);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
};

}  // namespace gpu_micro
