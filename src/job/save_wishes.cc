#include "job/save_wishes.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/wait_check.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"

namespace passel::job {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Who asks may have to meet others in between.
constexpr milliseconds kWishTurn{100};
// Of one question; a ps/0 that is stopped or cut off is asked again.
constexpr std::chrono::seconds kWishLimit{5}, kCheckedWishLimit{3};
constexpr milliseconds kAskWishAgain{100};
// Of a save that is given up at its deadline, for its own words to arrive.
constexpr std::chrono::seconds kWishSlack{1};
constexpr milliseconds kMostWishLimit = std::chrono::hours(24);
constexpr std::size_t kMostWishes = 64;

struct WishHow {
  const char* word;
  std::optional<AtEnd> at_end;
};
constexpr WishHow kHowToWish[] = {
    {"quiet", AtEnd::kNobodyTrains}, {"live", AtEnd::kOthersTrain}, {"met", std::nullopt}};

struct Question {
  WishedSave wish;
  milliseconds turn;
};

Result<Question> Parse(const Json& question) {
  WishedSave wish;
  PASSEL_ASSIGN_OR_RETURN(wish.number, Field<std::uint64_t>(question, "number"));
  PASSEL_ASSIGN_OR_RETURN(const auto word, Field<std::string>(question, "how"));
  PASSEL_ASSIGN_OR_RETURN(const auto limit, Field<std::int64_t>(question, "limit_ms"));
  PASSEL_ASSIGN_OR_RETURN(const auto turn, Field<std::int64_t>(question, "turn_ms"));
  const auto how =
      std::ranges::find_if(kHowToWish, [&](const WishHow& h) { return word == h.word; });
  if (wish.number == 0 || how == std::end(kHowToWish) || limit < 0 || turn < 0) {
    return DataLoss("that is no question for a checkpoint");
  }
  wish.at_end = how->at_end;
  wish.deadline = Deadline::After(std::min(milliseconds(limit), kMostWishLimit));
  return Question{wish, std::min(milliseconds(turn), kMostWishLimit)};
}

Json SaidOf(const Result<std::int64_t>& answer) {
  if (answer.ok()) return {{"ok", true}, {"step", *answer}};
  return {{"ok", true}, {"failed", ErrorJson(answer.status())}};
}

}  // namespace

const SaveWishes::Entry* SaveWishes::Find(std::uint64_t number) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& e) { return e.wish.number == number; });
  return found == entries_.end() ? nullptr : &*found;
}

Result<Json> SaveWishes::Ask(const Json& question) {
  PASSEL_ASSIGN_OR_RETURN(const Question asked, Parse(question));
  std::unique_lock lock(mutex_);
  if (!closed_ && Find(asked.wish.number) == nullptr) {
    // Who has asked for one that is over comes for its answer no longer than that.
    std::erase_if(entries_, [](const Entry& e) {
      return Deadline::At(e.wish.deadline.at_ns() + std::chrono::nanoseconds(kWishLimit).count())
          .Expired();
    });
    if (entries_.size() >= kMostWishes) {
      return ResourceExhausted(
          fmt::format("{} checkpoints are asked for already, the most", kMostWishes));
    }
    entries_.push_back({asked.wish, {}});
    if (tell_ && asked.wish.at_end) tell_();
    if (const Json* const going = question.Find("going"); going != nullptr) {
      PASSEL_ASSIGN_OR_RETURN(const auto shard, Field<int>(question, "going"));
      LogInfo("ps/{} is told to go: a checkpoint is saved before", shard);
    }
  }
  const auto answer = [&]() -> std::optional<Result<std::int64_t>> {
    if (const Entry* const entry = Find(asked.wish.number); entry != nullptr && entry->answer) {
      return entry->answer;
    }
    return closed_;
  };
  answered_.wait_for(lock, asked.turn, [&] { return answer().has_value(); });
  const auto said = answer();
  return said ? SaidOf(*said) : Json{{"ok", true}};
}

void SaveWishes::Tell(const void* whom, std::function<void()> of_wish) {
  const std::lock_guard lock(mutex_);
  told_ = whom;
  tell_ = std::move(of_wish);
}

void SaveWishes::Forget(const void* whom) {
  const std::lock_guard lock(mutex_);
  if (told_ == whom) tell_ = {};
}

std::optional<WishedSave> SaveWishes::Pending() const {
  const std::lock_guard lock(mutex_);
  if (closed_) return {};
  std::optional<WishedSave> first;
  for (const Entry& entry : entries_) {
    if (entry.answer || entry.wish.deadline.Expired()) continue;
    if (entry.wish.at_end) return entry.wish;
    if (!first) first = entry.wish;
  }
  return first;
}

void SaveWishes::Answer(std::uint64_t number, const Result<std::int64_t>& step) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.wish.number == number && !entry.answer) entry.answer = step;
  }
  answered_.notify_all();
}

void SaveWishes::Close(const Result<std::int64_t>& step) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = step;
  answered_.notify_all();
}

Json SaveQuestion(std::uint64_t number, std::optional<AtEnd> at_end, std::chrono::nanoseconds limit,
                  std::chrono::nanoseconds turn, std::optional<int> going) {
  const auto how =
      std::ranges::find_if(kHowToWish, [&](const WishHow& h) { return h.at_end == at_end; });
  Json question = {{"ask", "save"},
                   {"number", number},
                   {"how", how->word},
                   {"limit_ms", std::int64_t{duration_cast<milliseconds>(limit).count()}},
                   {"turn_ms", std::int64_t{duration_cast<milliseconds>(turn).count()}}};
  if (going) question["going"] = *going;
  return question;
}

Result<std::optional<std::int64_t>> SavedStep(const Json& answer) {
  if (answer.Find("step") != nullptr) {
    PASSEL_ASSIGN_OR_RETURN(const auto step, Field<std::int64_t>(answer, "step"));
    return std::optional(step);
  }
  const Json* const failed = answer.Find("failed");
  if (failed == nullptr) return std::optional<std::int64_t>();
  const Status why = ErrorOf(*failed);
  return why.ok() ? DataLoss("a ps said that a checkpoint failed, and not why") : why;
}

std::uint64_t NewWishNumber() {
  std::random_device random;
  return std::uint64_t{random()} << 20 | 1;  // never 0
}

Result<std::int64_t> AskForSave(const FarJob& job, std::optional<AtEnd> at_end,
                                std::chrono::nanoseconds ps_wait, Deadline deadline,
                                const std::function<Status()>& turn) {
  const std::uint64_t number = NewWishNumber();
  const Deadline end =
      Deadline::At(deadline.at_ns() + std::chrono::nanoseconds(kWishSlack).count());
  const std::chrono::nanoseconds most = WaitsAreChecked() ? kCheckedWishLimit : kWishLimit;
  Deadline back = Deadline::After(ps_wait);  // of a ps/0 that is gone
  for (;;) {
    PASSEL_RETURN_IF_ERROR(turn());
    const Result<Json> said = AskFar(
        job, 0, SaveQuestion(number, at_end, deadline.Remaining(), kWishTurn), end.Sooner(most));
    if (said.ok()) {
      PASSEL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> step, SavedStep(*said));
      if (step) return *step;
      back = Deadline::After(ps_wait);
    } else if (!IsMissing(said.status().code()) || back.Expired()) {
      return said.status();
    }
    if (end.Expired() || WaitIsOver()) break;
    if (!said.ok()) (void)Patience(end.Sooner(kAskWishAgain)).Again(kAskWishAgain);
  }
  return DeadlineExceeded(fmt::format(
      "{} has not saved the checkpoint in time: look at its log, and call passel_save() again",
      NameOfPs(job, 0)));
}

}  // namespace passel::job
