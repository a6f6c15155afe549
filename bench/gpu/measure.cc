// measure.cc - medians, rows and the watchdog over them.

#include "bench/gpu/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

namespace gpu_micro {
namespace {

// Fewer samples than this give no median.
constexpr std::size_t kLeastSamples = 3;

struct Watched {
  std::mutex mutex;
  std::string row;  // empty: nothing is under way
  double seconds = 0;
  double end = 0;
};

// Never destroyed, since the watchdog runs until the process ends.
Watched& Watch() {
  static Watched* const watched = new Watched;
  return *watched;
}

int g_failed = 0;
const double g_begin = Now();

}  // namespace

double Now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Percentile(std::vector<double> samples, double part) {
  if (samples.empty()) throw std::runtime_error("there is no sample");
  const auto last = static_cast<double>(samples.size() - 1);
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(last * part);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

double Median(int repeats, int inner, const std::function<void()>& run) {
  const double warm_end = Now() + kBudget / 10;
  run();
  for (int i = 0; i < repeats / 10 && Now() < warm_end; ++i) run();
  std::vector<double> samples;
  samples.reserve(static_cast<std::size_t>(repeats));
  const double end = Now() + kBudget;
  for (int i = 0; i < repeats; ++i) {
    const double begin = Now();
    if (begin > end && samples.size() >= kLeastSamples) break;
    run();
    samples.push_back((Now() - begin) / inner);
  }
  return Percentile(std::move(samples), 0.5);
}

double Known(double time) {
  if (std::isnan(time)) throw NotOffered("what it is made of was not measured");
  return time;
}

void PrintFailed(const char* name, const char* why) {
  std::printf("FAILED %s: %s\n", name, why);
  std::fflush(stdout);
  ++g_failed;
}

int Failed() { return g_failed; }

void Measure(const char* name, const char* predicted, const std::function<double()>& measure,
             const char* unit) {
  if (Now() - g_begin > kWholeSeconds * 1e6) {
    std::printf("SKIPPED %s: the rows before it took all the time there is\n", name);
    std::fflush(stdout);
    return;
  }
  try {
    double value = 0;
    {
      const Deadline deadline(name, kRowSeconds);
      value = measure();
    }
    std::printf("RESULT %s: %.*f %s", name, value < 10 ? 3 : 1, value, unit);
    if (predicted != nullptr) std::printf(" (predicted %s)", predicted);
    std::printf("\n");
  } catch (const NotOffered& reason) {
    std::printf("SKIPPED %s: %s\n", name, reason.what());
  } catch (const std::exception& error) {
    PrintFailed(name, error.what());
  }
  std::fflush(stdout);
}

void StartWatchdog() {
  std::thread([] {
    Watched& watched = Watch();
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::lock_guard lock(watched.mutex);
      if (watched.row.empty() || Now() < watched.end) continue;
      std::printf("FAILED %s: not done after %.0f s; what would come behind it is not measured\n",
                  watched.row.c_str(), watched.seconds);
      std::fflush(stdout);
      _exit(1);  // exit() would wait for the GPU
    }
  }).detach();
}

Deadline::Deadline(const char* row, double seconds) {
  Watched& watched = Watch();
  const std::lock_guard lock(watched.mutex);
  watched.row = row;
  watched.seconds = seconds;
  watched.end = Now() + seconds * 1e6;
}

Deadline::~Deadline() {
  Watched& watched = Watch();
  const std::lock_guard lock(watched.mutex);
  watched.row.clear();
}

}  // namespace gpu_micro
