// The step engine on a device that runs beside it, on a thread of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "cuda/engine_under_test.h"

namespace passel::cuda {
namespace {

// With a device that really runs beside the host, and values that others change: for
// ThreadSanitizer above all.
TEST(DeviceStepEngine, ADeviceBesideTheHostGivesTheSame) {
  for (const bool adversarial : {false, true}) {
    StepWorld world({17, 9, 4}, 8, Placement::kRoundRobin, 28);
    FakeDeviceOptions fake;
    fake.adversarial = adversarial;
    fake.progress = FakeDeviceOptions::Progress::kOnAThread;
    const auto made = Make(world.options, fake);
    std::vector<std::vector<std::uint32_t>> batches;
    std::deque<ReferenceResult> wanted;
    int finished = 0;
    for (int i = 0; i < 60; ++i) {
      batches.push_back(world.RandomBatch());
      wanted.push_back(world.Reference(batches.back()));
      world.PoisonSlot(i % 3);
      ASSERT_TRUE(made->engine->Start(batches.back(), i % 3).ok());
      if (i - finished == 2) {
        ExpectNear(world, FinishStep(*made->engine, world, finished % 3), wanted.front());
        wanted.pop_front();
        ++finished;
      }
    }
    // Two are still under way, and now the values change.
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      while (!stop) {
        for (float& v : world.values(0)) {
          std::atomic_ref<float>(v).store(0.5f, std::memory_order_relaxed);
        }
      }
    });
    for (; finished < 60; ++finished) FinishStep(*made->engine, world, finished % 3);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(RunStep(*made->engine, world, world.RandomBatch(), i % 3).finite);
    }
    stop = true;
    writer.join();
    made->ExpectACleanEnd();
  }
}

}  // namespace
}  // namespace passel::cuda
