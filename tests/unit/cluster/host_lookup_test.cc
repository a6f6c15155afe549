#include "cluster/host_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace passel {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

TEST(HostLookup, NumbersAreAskedOfNobody) {
  const HostResolver nobody = [](const HostPort&) -> Result<std::vector<TcpAddress>> {
    ADD_FAILURE() << "asked";
    return Unavailable("");
  };
  for (const char* text : {"10.1.2.3:2222", "[::1]:2222", "[fe80::12]:1"}) {
    const auto found = LookUp(*ParseHostPort(text), Soon(), nobody);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ((*found)[0].ToString(), text);
  }
}

TEST(HostLookup, NamesAreAskedOfTheSystem) {
  const auto found = LookUp({"localhost", 2222}, Soon());
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  for (const TcpAddress& address : *found) {
    EXPECT_TRUE(address.loopback()) << address.ToString();
    EXPECT_EQ(address.port(), 2222);
  }
  const auto none = LookUp({"a..b", 2222}, Soon());
  EXPECT_EQ(none.status().code(), Code::kUnavailable);
  EXPECT_THAT(none.status().message(), HasSubstr("a..b"));
}

TEST(HostLookup, ServiceThatDoesNotAnswerIsGivenUpAndAskedOnlySoOften) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    int inside = 0;
  };
  const auto gate = std::make_shared<Gate>();
  const HostResolver slow = [gate](const HostPort&) -> Result<std::vector<TcpAddress>> {
    std::unique_lock lock(gate->mutex);
    ++gate->inside;
    gate->changed.wait(lock, [&] { return gate->open; });
    --gate->inside;
    gate->changed.notify_all();
    return std::vector<TcpAddress>{TcpAddress::Loopback(1)};
  };
  for (int i = 0; i < kMaxLookups; ++i) {
    const auto late = LookUp({"slow", 1}, Deadline::After(milliseconds(1)), slow);
    EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(late.status().message(), HasSubstr("slow"));
  }
  EXPECT_EQ(LookUp({"slow", 1}, Soon(), slow).status().code(), Code::kResourceExhausted);
  {
    std::unique_lock lock(gate->mutex);
    gate->open = true;
    gate->changed.notify_all();
    gate->changed.wait(lock, [&] { return gate->inside == 0; });
  }
  Result<std::vector<TcpAddress>> again = Unavailable("");
  for (const Deadline deadline = Soon(); !again.ok() && !deadline.Expired();) {
    again = LookUp({"slow", 1}, Soon(), slow);
  }
  EXPECT_TRUE(again.ok()) << again.status().ToString();
}

}  // namespace
}  // namespace passel
