// Who wishes for a checkpoint, and who answers.

#include "job/save_wishes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <thread>

namespace passel::job {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kLong{30};

Json Question(std::uint64_t number, std::chrono::nanoseconds limit = kLong,
              std::chrono::nanoseconds turn = kLong) {
  return SaveQuestion(number, std::nullopt, limit, turn);
}

std::future<Result<std::optional<std::int64_t>>> Wish(SaveWishes& wishes, std::uint64_t number) {
  return std::async(std::launch::async, [&wishes, number]() -> Result<std::optional<std::int64_t>> {
    PASSEL_ASSIGN_OR_RETURN(const Json said, wishes.Ask(Question(number)));
    return SavedStep(said);
  });
}

std::optional<WishedSave> AwaitWish(const SaveWishes& wishes) {
  const Deadline deadline = Deadline::After(kLong);
  while (!wishes.Pending() && !deadline.Expired()) std::this_thread::yield();
  return wishes.Pending();
}

TEST(SaveWishesTest, EachGetsItsAnswerInTheOrderInWhichTheyCame) {
  SaveWishes wishes;
  EXPECT_FALSE(wishes.Pending());
  auto first = Wish(wishes, 7);
  ASSERT_TRUE(AwaitWish(wishes));
  auto second = Wish(wishes, 5);
  wishes.Answer(AwaitWish(wishes)->number, 70);
  const auto saved = first.get();
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_EQ(*saved, 70);
  ASSERT_TRUE(AwaitWish(wishes)) << "the second waits for another";
  EXPECT_EQ(AwaitWish(wishes)->number, 5U);
  wishes.Answer(5, Unavailable("the disk is full"));
  EXPECT_THAT(second.get().status().message(), HasSubstr("the disk is full"));
  EXPECT_FALSE(wishes.Pending());
}

// A save that has all meet would wait for the worker that waits for its own.
TEST(SaveWishesTest, WhoCannotMeetComesFirstAndIsTold) {
  SaveWishes wishes;
  int told = 0;
  wishes.Tell(&told, [&told] { ++told; });
  ASSERT_TRUE(wishes.Ask(Question(1, kLong, {})).ok());
  EXPECT_EQ(told, 0);
  ASSERT_TRUE(wishes.Ask(SaveQuestion(2, AtEnd::kNobodyTrains, kLong, {})).ok());
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(wishes.Pending());
  EXPECT_EQ(wishes.Pending()->number, 2U);
  EXPECT_EQ(wishes.Pending()->at_end, AtEnd::kNobodyTrains);
  wishes.Answer(2, 20);
  EXPECT_EQ(wishes.Pending()->number, 1U);
  wishes.Forget(&told);
  ASSERT_TRUE(wishes.Ask(SaveQuestion(3, AtEnd::kOthersTrain, kLong, {})).ok());
  EXPECT_EQ(told, 1);
}

// Asked again it is the same wish, and its answer stays; the first one counts.
TEST(SaveWishesTest, OneThatIsAskedAgainIsSavedOnce) {
  SaveWishes wishes;
  const Json turn = Question(3, kLong, {});
  for (int k = 0; k < 3; ++k) {
    const Result<Json> said = wishes.Ask(turn);
    ASSERT_TRUE(said.ok());
    const auto step = SavedStep(*said);
    ASSERT_TRUE(step.ok());
    EXPECT_FALSE(*step) << "not yet";
  }
  wishes.Answer(3, 11);
  wishes.Answer(3, 12);
  wishes.Answer(4, 13);
  EXPECT_FALSE(wishes.Pending());
  for (int k = 0; k < 3; ++k) EXPECT_EQ(**SavedStep(*wishes.Ask(turn)), 11);
}

TEST(SaveWishesTest, WhoseTimeIsOverWishesForNothing) {
  SaveWishes wishes;
  ASSERT_TRUE(wishes.Ask(Question(1, {}, {})).ok());
  EXPECT_FALSE(wishes.Pending());
}

TEST(SaveWishesTest, TheLastSaveAnswersWhoComesLater) {
  SaveWishes wishes;
  auto early = Wish(wishes, 1);
  ASSERT_TRUE(AwaitWish(wishes));
  wishes.Close(90);
  wishes.Close(Unavailable("ps/0 has ended"));
  EXPECT_FALSE(wishes.Pending());
  for (const auto& saved : {early.get(), Wish(wishes, 2).get()}) {
    ASSERT_TRUE(saved.ok());
    EXPECT_EQ(*saved, 90);
  }
}

TEST(SaveWishesTest, WhatIsNoSuchQuestionIsRefused) {
  SaveWishes wishes;
  for (const char* field : {"number", "how", "limit_ms", "turn_ms"}) {
    Json question = Question(1);
    question[field] = "x";
    EXPECT_FALSE(wishes.Ask(question).ok()) << field;
  }
  EXPECT_FALSE(wishes.Ask(Question(0)).ok());
  for (std::uint64_t number = 1; number <= 64; ++number) {
    ASSERT_TRUE(wishes.Ask(Question(number, kLong, {})).ok());
  }
  EXPECT_THAT(wishes.Ask(Question(65)).status().message(), HasSubstr("64 checkpoints"));
}

}  // namespace
}  // namespace passel::job
