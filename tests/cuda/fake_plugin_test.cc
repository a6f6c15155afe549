// The plugin of the emulated GPU, as a worker opens it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "compute/accelerator_loader.h"
#include "cuda/step_world.h"

namespace passel::cuda {
namespace {

using testing::HasSubstr;

class FakePluginTest : public testing::Test {
 protected:
  static Result<std::unique_ptr<Accelerator>> Open(const char* fake,
                                                   const AcceleratorOptions& options = {}) {
    setenv("PASSEL_BACKEND_PATH", PASSEL_FAKE_GPU_PLUGIN, 1);
    setenv("PASSEL_FAKE_GPU", fake, 1);
    return OpenAccelerator(options);
  }
};

TEST_F(FakePluginTest, StepsThroughThePluginAreRight) {
  for (const char* fake : {"", "adversarial seed=3", "refuse_registration"}) {
    SCOPED_TRACE(fake);
    auto accelerator = Open(fake, {"GPU-1234", 1});
    ASSERT_TRUE(accelerator.ok()) << accelerator.status().message();
    EXPECT_EQ((*accelerator)->info().uuid, "GPU-1234");
    StepWorld world({17, 13, 5}, 6, Placement::kRoundRobin, 31);
    auto engine = (*accelerator)->CreateStepEngine(world.options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    for (int i = 0; i < 5; ++i) {
      const auto batch = world.RandomBatch();
      ExpectNear(world, RunStep(**engine, world, batch, i % 3), world.Reference(batch));
    }
  }
}

TEST_F(FakePluginTest, WhatItIsToldToDoWrongItDoes) {
  EXPECT_EQ(Open("none").status().code(), Code::kNotFound);
  EXPECT_THAT(Open("sed=3").status().message(), HasSubstr("'sed=3'"));
  EXPECT_THAT(Open("fail_at=3").status().message(), HasSubstr("'fail_at=3'"));
  EXPECT_THAT(Open("memory=").status().message(), HasSubstr("'memory='"));
  StepWorld world({17, 13, 5}, 6, Placement::kRoundRobin, 31);
  {
    auto accelerator = Open("memory=500");
    ASSERT_TRUE(accelerator.ok());
    EXPECT_EQ((*accelerator)->CreateStepEngine(world.options).status().code(),
              Code::kResourceExhausted);
  }
  {
    auto accelerator = Open("", {"", 3e-8});
    ASSERT_TRUE(accelerator.ok());
    EXPECT_EQ((*accelerator)->CreateStepEngine(world.options).status().code(),
              Code::kResourceExhausted);
  }
  auto accelerator = Open("fail_at=0,3");
  ASSERT_TRUE(accelerator.ok());
  auto engine = (*accelerator)->CreateStepEngine(world.options);
  ASSERT_TRUE(engine.ok());
  ASSERT_TRUE((*engine)->Start(world.RandomBatch(), 0).ok());
  bool finite = false;
  const auto result = (*engine)->Finish(Soon(), &finite);
  EXPECT_EQ(result.status().code(), Code::kUnavailable);
  EXPECT_THAT(result.status().message(), HasSubstr("operation 'gather'"));
}

// As CUDA has it: the first in the list is the process's own.
TEST_F(FakePluginTest, SeesTheGpusThatTheEnvironmentLeavesIt) {
  const auto uuid = [&](const char* visible, const char* fake) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    const auto accelerator = Open(fake);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return accelerator.ok() ? (*accelerator)->info().uuid : accelerator.status().message();
  };
  EXPECT_EQ(uuid("1,0", "devices=2"), "GPU-fa4e0001-0000-0000-0000-000000000000");
  EXPECT_EQ(uuid("GPU-1234,GPU-5678", ""), "GPU-1234");
  EXPECT_THAT(uuid("1,0", "devices=1"), HasSubstr("leaves no fake GPU"));
  EXPECT_THAT(uuid("", ""), HasSubstr("leaves no fake GPU"));
}

TEST_F(FakePluginTest, ArenaIsSharedWithAnotherGpuIfThePeerFactsAllowIt) {
  DeviceArenaShape shape;
  shape.shards = {{64, 32}};
  shape.id = 5;
  shape.several_gpus = true;
  const auto home = Open("", {"GPU-1234", 1});
  ASSERT_TRUE(home.ok());
  const auto made = (*home)->CreateArena(shape);
  ASSERT_TRUE(made.ok()) << made.status().message();
  shape.home = "GPU-1234";
  setenv("CUDA_VISIBLE_DEVICES", "GPU-5678,GPU-1234", 1);
  for (const char* fake : {"", "peer_atomics=0", "peer_access=0"}) {
    const auto peer = Open(fake);
    ASSERT_TRUE(peer.ok());
    const auto arena = (*peer)->ImportArena((*made)->fd(), shape);
    EXPECT_EQ(arena.status().code(), *fake == '\0' ? Code::kOk : Code::kFailedPrecondition)
        << fake << arena.status().message();
  }
  setenv("CUDA_VISIBLE_DEVICES", "GPU-5678", 1);
  const auto blind = Open("");
  ASSERT_TRUE(blind.ok());
  EXPECT_THAT((*blind)->ImportArena((*made)->fd(), shape).status().message(),
              HasSubstr("GPU-5678 does not see GPU GPU-1234"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace passel::cuda
