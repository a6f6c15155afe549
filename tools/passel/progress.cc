#include "tools/passel/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/clock.h"

namespace passel {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::string Duration(double seconds) {
  if (seconds < 0 || seconds > 1e8) return "?";
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

}  // namespace

Progress::Progress(std::int64_t train_steps)
    : train_steps_(train_steps), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { Finish(); }

void Progress::Update(const shm::JobStatus& status) {
  const std::int64_t now = MonotonicNs();
  if (now < next_ns_ || status.local_steps == 0) return;
  next_ns_ = now + (terminal_ ? kSecond / 4 : 2 * kSecond);
  recent_.push_back({now, status.local_steps, status.global_step});
  while (recent_.size() > 2 && now - recent_.front().ns > 5 * kSecond) recent_.pop_front();

  double loss = 0;
  double accuracy = 0;
  int running = 0;
  std::int64_t first_ns = now;
  for (const shm::WorkerStatus& w : status.workers) {
    if (w.first_step_ns != 0) first_ns = std::min(first_ns, w.first_step_ns);
    if (w.last_step_ns == 0) continue;
    loss += w.loss;
    accuracy += w.accuracy;
    ++running;
  }
  if (running > 0) {
    loss /= running;
    accuracy /= running;
  }
  const Sample& from = recent_.front();
  const bool fresh = recent_.size() > 1;
  const double seconds = 1e-9 * static_cast<double>(now - (fresh ? from.ns : first_ns));
  const double local = static_cast<double>(status.local_steps - (fresh ? from.local_steps : 0));
  const double global = static_cast<double>(status.global_step - (fresh ? from.global_step : 0));
  const double steps_per_second = seconds > 0 ? local / seconds : 0;
  const double left =
      global > 0 ? static_cast<double>(train_steps_ - status.global_step) * seconds / global : -1;
  std::string line = fmt::format(
      "step {}/{}  {:.0f} steps/s  loss {:.4f}  accuracy {:.3f}  staleness {}/{}  {} left",
      status.global_step, train_steps_, steps_per_second, loss, accuracy, status.staleness.p50,
      status.staleness.maximum, Duration(std::max(0.0, left)));
  if (terminal_) {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 &&
        line.size() >= size.ws_col) {
      line.resize(size.ws_col - 1u);  // a line that wraps cannot be drawn over
    }
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::Finish() {
  if (!line_open_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  line_open_ = false;
}

}  // namespace passel
