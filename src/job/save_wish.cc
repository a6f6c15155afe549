#include "job/save_wish.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "base/wait_check.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"

namespace passel::job {
namespace {

// Who asks may have to meet others in between.
constexpr std::chrono::milliseconds kWishTurn{100};
// Of one question; a ps/0 that is stopped or cut off is asked again.
constexpr std::chrono::seconds kWishLimit{5}, kCheckedWishLimit{3};
constexpr std::chrono::milliseconds kAskWishAgain{100};
// Of a save that is given up at its deadline, for its own words to arrive.
constexpr std::chrono::seconds kWishSlack{1};
constexpr std::chrono::hours kMostWishLimit{24};

struct WishHow {
  const char* word;
  std::optional<AtEnd> at_end;
};
constexpr WishHow kHowToWish[] = {
    {"quiet", AtEnd::kNobodyTrains}, {"live", AtEnd::kOthersTrain}, {"met", std::nullopt}};

std::uint64_t NewWishNumber() {
  std::random_device random;
  return std::uint64_t{random()} << 20 | 1;  // never 0
}

}  // namespace

Result<Json> SaveWish::Ask(const Json& question) {
  WishedSave wish;
  PASSEL_ASSIGN_OR_RETURN(wish.number, Field<std::uint64_t>(question, "number"));
  PASSEL_ASSIGN_OR_RETURN(const auto word, Field<std::string>(question, "how"));
  PASSEL_ASSIGN_OR_RETURN(const auto limit, Field<std::int64_t>(question, "limit_ms"));
  const auto how =
      std::ranges::find_if(kHowToWish, [&](const WishHow& h) { return word == h.word; });
  if (wish.number == 0 || how == std::end(kHowToWish) || limit < 0) {
    return DataLoss("that is no question for a checkpoint");
  }
  wish.at_end = how->at_end;
  wish.deadline = Deadline::After(
      std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(limit), kMostWishLimit));
  std::unique_lock lock(mutex_);
  if (wish_.number != wish.number) {
    wish_ = wish;
    answer_.reset();
    if (tell_) tell_();
  }
  answered_.wait_for(lock, kWishTurn, [&] { return wish_.number != wish.number || answer_; });
  if (wish_.number != wish.number) return Aborted("another checkpoint was asked for since");
  Json said = {{"ok", true}};
  if (!answer_) return said;
  if (answer_->ok()) {
    said["step"] = **answer_;
  } else {
    said["failed"] = ErrorJson(answer_->status());
  }
  return said;
}

void SaveWish::Tell(const void* whom, std::function<void()> of_wish) {
  const std::lock_guard lock(mutex_);
  told_ = whom;
  tell_ = std::move(of_wish);
}

void SaveWish::Forget(const void* whom) {
  const std::lock_guard lock(mutex_);
  if (told_ == whom) tell_ = {};
}

std::optional<WishedSave> SaveWish::Pending() const {
  const std::lock_guard lock(mutex_);
  if (wish_.number == 0 || answer_) return {};
  return wish_;
}

void SaveWish::Answer(std::uint64_t number, Result<std::int64_t> step) {
  const std::lock_guard lock(mutex_);
  if (wish_.number != number) return;
  answer_ = std::move(step);
  answered_.notify_all();
}

Result<std::int64_t> AskForSave(const FarJob& job, std::optional<AtEnd> at_end,
                                std::chrono::nanoseconds ps_wait, Deadline deadline,
                                const std::function<Status()>& turn) {
  const auto how =
      std::ranges::find_if(kHowToWish, [&](const WishHow& h) { return h.at_end == at_end; });
  const std::uint64_t number = NewWishNumber();
  const Deadline end =
      Deadline::At(deadline.at_ns() + std::chrono::nanoseconds(kWishSlack).count());
  const std::chrono::nanoseconds most = WaitsAreChecked() ? kCheckedWishLimit : kWishLimit;
  Deadline back = Deadline::After(ps_wait);  // of a ps/0 that is gone
  for (;;) {
    PASSEL_RETURN_IF_ERROR(turn());
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline.Remaining()).count();
    const Result<Json> said = AskFar(
        job, 0,
        {{"ask", "save"}, {"number", number}, {"how", how->word}, {"limit_ms", std::int64_t{left}}},
        end.Sooner(most));
    if (said.ok()) {
      if (said->Find("step") != nullptr) return Field<std::int64_t>(*said, "step");
      if (const Json* failed = said->Find("failed"); failed != nullptr) {
        const Status why = ErrorOf(*failed);
        return why.ok() ? DataLoss("a ps said that a checkpoint failed, and not why") : why;
      }
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
