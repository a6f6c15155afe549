#include "tools/passel/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "base/clock.h"
#include "train/worker_loop.h"

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

Progress::Progress(std::int64_t train_steps, std::int64_t local_steps, bool others_write)
    : train_steps_(train_steps),
      local_steps_(local_steps),
      terminal_(::isatty(STDERR_FILENO) == 1 && !others_write) {}

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
  // Seconds until one of the limits is reached.
  double left = std::numeric_limits<double>::infinity();
  const auto reach = [&](std::int64_t limit, std::int64_t now_at, double advanced) {
    if (limit == kNoStepLimit) return;
    const double rest = static_cast<double>(std::max<std::int64_t>(0, limit - now_at));
    left = std::min(left, rest == 0 ? 0 : advanced > 0 ? rest * seconds / advanced : 1e9);
  };
  reach(train_steps_, status.global_step, global);
  reach(local_steps_, static_cast<std::int64_t>(status.local_steps), local);
  // Of several workers each may add one more.
  const std::string goal =
      train_steps_ != kNoStepLimit
          ? fmt::format("step {}/{}", std::min(status.global_step, train_steps_), train_steps_)
          : fmt::format("local step {}/{}", status.local_steps, local_steps_);
  std::string line =
      fmt::format("{}  {:.0f} steps/s  loss {:.4f}  accuracy {:.3f}  staleness {}/{}  {} left",
                  goal, steps_per_second, loss, accuracy, status.staleness.p50,
                  status.staleness.maximum, Duration(left));
  if (status.modes.size() > 1) {
    const PastMode& mode = status.modes.back();
    line += fmt::format("  mode {} since {}", mode.setting.ToString(), mode.since);
  }
  if (status.wish) line += fmt::format("  changing to {}", status.wish->ToString());
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

void Progress::Evaluating(std::size_t done, std::size_t total) {
  const std::int64_t now = MonotonicNs();
  if (evaluating_since_ns_ == 0) {
    evaluating_since_ns_ = now;
    next_ns_ = now + (terminal_ ? kSecond / 4 : 2 * kSecond);
  }
  if (now < next_ns_) return;
  next_ns_ = terminal_ ? now + kSecond / 4 : std::numeric_limits<std::int64_t>::max();
  const double seconds = 1e-9 * static_cast<double>(now - evaluating_since_ns_);
  const double left =
      done == 0 ? -1 : seconds * static_cast<double>(total - done) / static_cast<double>(done);
  const std::string line =
      fmt::format("evaluating {}/{} test images  {} left", done, total, Duration(left));
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  line_open_ = terminal_;
  std::fflush(stderr);
}

void Progress::Finish() {
  if (!line_open_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  line_open_ = false;
}

}  // namespace passel
