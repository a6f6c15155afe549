#include "base/runnable_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/deadline.h"

namespace passel {
namespace {

TEST(RunnableThreads, AreTheFourthFieldBeforeItsSlash) {
  EXPECT_EQ(RunnableIn("0.20 0.18 0.12 3/80 11206\n"), 3);
  EXPECT_EQ(RunnableIn("12.01 0.18 0.12 170/2000 11206"), 170);
  for (const char* line : {"", "0.20", "0.20 0.18 0.12", "0.20 0.18 0.12 3", "0.20 0.18 0.12 /80 1",
                           "0.20 0.18 0.12 x/80 1", "0.20 0.18 0.12 99999999999/80 1"}) {
    EXPECT_EQ(RunnableIn(line), std::nullopt) << line;
  }
}

TEST(RunnableThreads, AreSeenToOutnumberTheCores) {
  std::atomic<bool> quit{false};
  std::vector<std::jthread> busy;
  for (unsigned i = 0; i < std::thread::hardware_concurrency() + 2; ++i) {
    busy.emplace_back([&quit] {
      while (!quit.load(std::memory_order_relaxed)) {
      }
    });
  }
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  bool seen = false;
  while (!seen && !deadline.Expired()) {
    seen = ThreadsOutnumberCores();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  quit = true;
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace passel
