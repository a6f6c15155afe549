// counting_workers.h - two workers that push -1 while what lies between them and their ps suffers:
// what is there in the end was acknowledged once, and all that was acknowledged is there.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"
#include "store/membership.h"

namespace passel::testing {

/// For ExpectEachPushOnce(): learning rate 1, and in `replicas` nobody waits for the other.
inline StorePlan CountingPlan(Mode mode) {
  StorePlan plan = TestPlan(mode, 1, 2, Sgd(1.0));
  if (mode == Mode::kReplicas) plan.mode.number = 1;
  return plan;
}

/// `suffer` is called with what waits until each worker has pushed again, and returns when all is
/// well. With the limits that a job has, if `host` has them.
inline void ExpectEachPushOnce(
    RemoteHost& host, Mode mode,
    const std::function<void(const std::function<void()>& await_pushes)>& suffer) {
  constexpr int kWorkers = 2;
  const WaitOptions engine = Engine(std::chrono::minutes(10));
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int k = 0; k < kWorkers; ++k) stores.push_back(OpenOn(host, k, engine));
  InitializeTo(*stores[0], 0);
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  // Workers of a round go the same number of steps; who is done is not waited for.
  std::atomic<int> limit{INT_MAX};
  std::atomic<int> most{0};
  std::atomic<int> pushed[kWorkers] = {};
  std::atomic<bool> failed{false};
  int applied[kWorkers] = {};
  std::vector<std::thread> workers;
  for (int k = 0; k < kWorkers; ++k) {
    workers.emplace_back([&, k] {
      Version last = 0;
      for (; pushed[k] < limit; ++pushed[k]) {
        int seen = most;
        while (seen < pushed[k] + 1 && !most.compare_exchange_weak(seen, pushed[k] + 1)) {
        }
        const auto outcome = PushConstant(*stores[static_cast<std::size_t>(k)], -1);
        failed = failed || !outcome.ok();
        ASSERT_TRUE(outcome.ok()) << "worker " << k << ": " << outcome.status().ToString();
        if (outcome->applied) {
          ASSERT_GT(outcome->version, last) << "worker " << k << " was told twice of one update";
          last = outcome->version;
          ++applied[k];
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ASSERT_TRUE(stores[static_cast<std::size_t>(k)]->Leave().ok());
    });
  }
  suffer([&] {
    for (int k = 0; k < kWorkers; ++k) {
      const int before = pushed[k];
      const Deadline deadline = Deadline::After(kLong);
      while (pushed[k] == before && !failed && !deadline.Expired()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_FALSE(deadline.Expired()) << "worker " << k << " hangs";
    }
  });
  limit = most + 100;  // which nobody has begun
  for (std::thread& worker : workers) worker.join();
  if (::testing::Test::HasFatalFailure()) return;
  // A worker that was away for too long was dead for its rounds, and went on as another life.
  bool one_life = true;
  for (int k = 0; k < kWorkers; ++k) one_life &= StateOf(host.Memory()[0], k).epoch == 1;
  stores.clear();
  const auto reader = OpenOn(host, 0, engine);
  ASSERT_NE(reader, nullptr);
  ASSERT_TRUE(reader->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const auto view = PullLatest(*reader);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  const auto updates = static_cast<int>(view->version());
  ExpectAll(*reader, static_cast<float>(updates));
  const int sum = applied[0] + applied[1];
  if (mode == Mode::kReplicas || (mode == Mode::kBarrier && !one_life)) {
    // Late ones do not count, and a round may count both.
    EXPECT_LE(std::max(applied[0], applied[1]), updates);
    EXPECT_LE(updates, sum);
    return;
  }
  EXPECT_EQ(updates, mode == Mode::kBarrier ? applied[0] : sum);
  for (int k = 0; k < kWorkers; ++k) EXPECT_EQ(applied[k], pushed[k]);
}

}  // namespace passel::testing
