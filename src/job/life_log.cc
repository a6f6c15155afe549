#include "job/life_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace passel::job {
namespace {

// Of the lines of the one that died first, in a sentence and in a summary; of those of the one that
// ended the job a summary has all.
constexpr std::size_t kLinesInASentence = 3;
constexpr std::size_t kLinesInASummary = 10;
// Deaths after the first that a summary has a line for.
constexpr std::size_t kDeathsInASummary = 10;

constexpr std::size_t kChangesInASummary = 5;

template <typename T>
std::span<const T> Last(const std::vector<T>& all, std::size_t most) {
  return std::span(all).last(std::min(most, all.size()));
}

std::string When(const TaskDeath& death, const char* died) {
  return fmt::format("{} {}, after {:.1f} s: it {}", death.task, died, death.at_s, death.cause);
}

// "; its last lines:", and these.
std::string Lines(std::span<const std::string> lines) {
  if (lines.empty()) return "\n";
  std::string text = "; its last lines:\n";
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

}  // namespace

void LifeLog::Add(TaskStart start) {
  if (start.life > 1) {
    const auto before = std::find_if(deaths_.rbegin(), deaths_.rend(),
                                     [&](const TaskDeath& d) { return d.task == start.task; });
    if (before != deaths_.rend() && before->life == start.life - 1) before->restarted = true;
    ps_restarts_ += start.task.starts_with("ps/");
  }
  if (starts_.size() < kMostStarts) starts_.push_back(std::move(start));
}

void LifeLog::Add(TaskDeath death) {
  ++num_deaths_;
  last_ = death;
  if (deaths_.size() >= kMostDeaths) return;
  if (deaths_.size() >= kMostWithLines) death.last_lines.clear();
  deaths_.push_back(std::move(death));
}

void LifeLog::LastDeathEndedJob() {
  if (!ended_job_) ended_job_ = last_;
}

void LifeLog::Add(TaskLeave leave) {
  if (leaves_.size() < kMostLeaves) leaves_.push_back(std::move(leave));
}

void LifeLog::Add(ScaleChange change) {
  if (changes_.size() < kMostLeaves) changes_.push_back(change);
}

std::string LifeLog::FirstDeath() const {
  if (deaths_.empty()) return "";
  const TaskDeath& first = deaths_.front();
  std::string text = When(first, "died first");
  if (first.restarted) return text;
  const char* before = "; its last lines: ";
  for (const std::string& line : Last(first.last_lines, kLinesInASentence)) {
    text += before + line;
    before = " | ";
  }
  return text;
}

std::string LifeLog::InWords(bool tells_survived) const {
  std::string text;
  for (const ScaleChange& change : Last(changes_, kChangesInASummary)) {
    text +=
        fmt::format("{} {} after {:.1f} s", text.empty() ? "number of workers changed to" : ", to",
                    change.workers, change.at_s);
  }
  if (!text.empty()) text += "\n";
  if (deaths_.empty()) return text;
  const auto ended_job = [&](const TaskDeath& death) {
    return ended_job_ && death.task == ended_job_->task && death.life == ended_job_->life;
  };
  const std::size_t told = std::min(deaths_.size(), 1 + kDeathsInASummary);
  std::int64_t left = num_deaths_ - static_cast<std::int64_t>(told);
  bool first = true, last_is_told = false;
  for (const TaskDeath& death : std::span(deaths_).first(told)) {
    last_is_told |= ended_job(death);
    if (!ended_job(death)) {
      const bool lines = first && !ended_job_ && (tells_survived || !death.restarted);
      text += When(death, first ? "died first" : "died");
      if (death.restarted && !lines) text += "; it was started again";
      text += Lines(Last(death.last_lines, lines ? kLinesInASummary : 0));
    }
    first = false;
  }
  if (ended_job_ && !last_is_told) --left;
  if (left > 0) text += fmt::format("and {} more deaths\n", left);
  if (!ended_job_) return text;
  const bool is_first = ended_job(deaths_.front());
  text += When(*ended_job_, is_first ? "died first" : "died and ended the job");
  return text + Lines(ended_job_->last_lines);
}

void LifeLog::Describe(Json* report) const {
  (*report)["ps_restarts"] = ps_restarts_;
  Json& starts = (*report)["starts"] = Json::MakeList();
  for (const TaskStart& s : starts_) {
    starts.Add({{"task", s.task}, {"life", s.life}, {"at_s", s.at_s}});
  }
  Json deaths = Json::MakeList();
  for (const TaskDeath& d : deaths_) {
    deaths.Add({{"task", d.task},
                {"life", d.life},
                {"at_s", d.at_s},
                {"cause", d.cause},
                {"exit_code", d.exit.signalled ? Json() : Json(d.exit.code)},
                {"signal", d.exit.signalled ? Json(d.exit.code) : Json()},
                {"last_lines", d.last_lines},
                {"restarted", d.restarted}});
  }
  (*report)["deaths"] = deaths;
  Json& leaves = (*report)["leaves"] = Json::MakeList();
  for (const TaskLeave& l : leaves_) {
    leaves.Add({{"task", l.task}, {"life", l.life}, {"at_s", l.at_s}});
  }
  Json& scaled = (*report)["scaled"] = Json::MakeList();
  for (const ScaleChange& c : changes_) {
    scaled.Add({{"workers", c.workers}, {"at_s", c.at_s}});
  }
}

}  // namespace passel::job
