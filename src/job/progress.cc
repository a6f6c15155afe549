#include "job/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kUsualColumns = 80;

std::string Duration(double seconds) {
  if (seconds < 0 || seconds > 1e8) return "?";
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

}  // namespace

Progress::Progress(std::int64_t train_steps, std::int64_t local_steps, bool workers_evaluate)
    : train_steps_(train_steps),
      local_steps_(local_steps),
      workers_evaluate_(workers_evaluate),
      terminal_(::isatty(STDERR_FILENO) == 1 && GetLogFormat() == LogFormat::kText) {}

Progress::~Progress() { Finish(); }

void Progress::Update(const JobStatus& status) {
  const std::int64_t now = MonotonicNs();
  curve_.Add(status, now);
  const std::int64_t first_ns = FirstStepNs(status);
  if (now < next_ns_ || first_ns == 0 || status.LocalStepsHere() == 0) return;
  next_ns_ = now + (terminal_ ? kSecond / 4 : 2 * kSecond);
  recent_.push_back({now, status.local_steps, status.global_step});
  while (recent_.size() > 2 && now - recent_.front().ns > 5 * kSecond) recent_.pop_front();

  const BatchResults batches = LatestBatches(status);
  const Sample& from = recent_.front();
  const bool fresh = recent_.size() > 1;
  const double seconds = 1e-9 * static_cast<double>(now - (fresh ? from.ns : first_ns));
  // Fewer than before: the job has gone back to a checkpoint.
  const auto since = [&](auto now_at, auto then, auto here) {
    return static_cast<double>(fresh ? now_at : here) - static_cast<double>(fresh ? then : 0);
  };
  const double local = since(status.local_steps, from.local_steps, status.LocalStepsHere());
  const double global = since(status.global_step, from.global_step, status.GlobalStepsHere());
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
  // The job of a program with its own model and loop.
  const bool endless = train_steps_ == kNoStepLimit && local_steps_ == kNoStepLimit;
  // Each of several workers may add one more.
  const std::string goal =
      endless ? fmt::format("step {}", status.global_step)
      : train_steps_ != kNoStepLimit
          ? fmt::format("step {}/{}", std::min(status.global_step, train_steps_), train_steps_)
          : fmt::format("local step {}/{}", status.local_steps, local_steps_);
  std::vector<std::pair<int, std::string>> parts = {
      {1, goal},
      {4, fmt::format("{:.0f} steps/s", steps_per_second)},
      {6, fmt::format("staleness {}/{}", status.staleness.p50, status.staleness.maximum)},
      {0, workers_evaluate_ && left == 0 ? "workers are evaluating" : Duration(left) + " left"}};
  // A program with its own loop says how far it goes.
  if (endless) parts.pop_back();
  const std::vector<Metric> metrics = MeanMetrics(status);
  std::vector<std::pair<int, std::string>> results;  // the program's own, or those of passel
  for (const Metric& m : metrics)
    results.emplace_back(3, fmt::format("{} {}", m.name, InWords(m, 4)));
  if (metrics.empty() && !endless) {
    results = {{2, fmt::format("loss {:.4f}", batches.loss)},
               {3, fmt::format("accuracy {:.3f}", batches.accuracy)}};
  }
  parts.insert(parts.begin() + 2, results.begin(), results.end());
  if (status.modes.size() > 1) {
    const PastMode& mode = status.modes.back();
    parts.emplace_back(7, fmt::format("mode {} since {}", mode.setting.ToString(), mode.since));
  }
  if (status.wish) parts.emplace_back(5, "changing to " + status.wish->ToString());
  Show(parts);
}

void Progress::Show(const std::vector<std::pair<int, std::string>>& parts) const {
  if (!terminal_) {
    const std::string line = FitParts(parts, std::string::npos);
    if (GetLogFormat() == LogFormat::kJson) {
      LogInfo("{}", line);
    } else {
      Write(Stream::kErr, line + "\n");
    }
    return;
  }
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // A line that reached the last column would wrap, and could not be drawn over.
  ShowLiveLine(FitParts(parts, known ? size.ws_col - 1u : kUsualColumns - 1));
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
  Show({{1, fmt::format("evaluating {}/{}", done, total)},
        {2, "test images"},
        {0, Duration(left) + " left"}});
}

void Progress::Finish() { EndLiveLine(); }

std::string FitParts(const std::vector<std::pair<int, std::string>>& parts, std::size_t columns) {
  constexpr std::string_view kBetween = "  ";
  std::vector<std::size_t> by_rank(parts.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [&](std::size_t a, std::size_t b) { return parts[a].first < parts[b].first; });
  std::vector<bool> chosen(parts.size());
  std::size_t used = 0;
  for (const std::size_t i : by_rank) {
    const std::size_t size = parts[i].second.size() + (used == 0 ? 0 : kBetween.size());
    if (used != 0 && size > columns - used) break;
    chosen[i] = true;
    used += size;
    if (used >= columns) break;
  }
  std::string line;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!chosen[i]) continue;
    if (!line.empty()) line += kBetween;
    line += parts[i].second;
  }
  if (line.size() > columns) line.resize(columns);
  return line;
}

}  // namespace passel::job
