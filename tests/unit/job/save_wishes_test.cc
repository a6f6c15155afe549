// Who wishes for a checkpoint, and who answers.

#include "job/save_wishes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <thread>

namespace passel::job {
namespace {

std::future<Result<std::int64_t>> Wish(SaveWishes& wishes, double seconds = 30) {
  return std::async(std::launch::async, [&wishes, seconds] {
    return wishes.Await(Deadline::After(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds))));
  });
}

SaveWishes::Wish AwaitNumber(const SaveWishes& wishes, std::uint64_t number) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(30));
  while (wishes.Pending().number < number && !deadline.Expired()) std::this_thread::yield();
  return wishes.Pending();
}

TEST(SaveWishesTest, ASaveAnswersThoseThatWereThereWhenItBegan) {
  SaveWishes wishes;
  EXPECT_EQ(wishes.Pending().number, 0U);
  auto first = Wish(wishes);
  const SaveWishes::Wish seen = AwaitNumber(wishes, 1);
  ASSERT_EQ(seen.number, 1U);
  auto second = Wish(wishes);
  ASSERT_EQ(AwaitNumber(wishes, 2).number, 2U);
  wishes.Answer(seen.number, 70);
  const Result<std::int64_t> saved = first.get();
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(*saved, 70);
  EXPECT_EQ(wishes.Pending().number, 2U) << "the second waits for another";
  wishes.Answer(2, Unavailable("the disk is full"));
  EXPECT_THAT(second.get().status().message(), ::testing::HasSubstr("the disk is full"));
  EXPECT_EQ(wishes.Pending().number, 0U);
}

TEST(SaveWishesTest, WhoWaitsNoLongerWishesForNothing) {
  SaveWishes wishes;
  EXPECT_EQ(Wish(wishes, 0).get().status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(wishes.Pending().number, 0U);
}

TEST(SaveWishesTest, TheLastSaveAnswersWhoComesLater) {
  SaveWishes wishes;
  auto early = Wish(wishes);
  ASSERT_EQ(AwaitNumber(wishes, 1).number, 1U);
  wishes.Close(90);
  wishes.Close(Unavailable("ps/0 has ended"));
  for (const Result<std::int64_t>& saved : {early.get(), wishes.Await(Deadline::After({}))}) {
    ASSERT_TRUE(saved.ok());
    EXPECT_EQ(*saved, 90);
  }
}

}  // namespace
}  // namespace passel::job
