// The plugin of the emulated GPU, as a worker opens it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

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
  static Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }
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
      const ReferenceResult wanted = world.Reference(batch);
      ASSERT_TRUE((*engine)->Start(batch, i % 3).ok());
      bool finite = false;
      const auto result = (*engine)->Finish(Soon(), &finite);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_TRUE(finite);
      EXPECT_NEAR(result->loss, wanted.loss, 1e-5 * wanted.loss);
      const auto got = world.Variables(world.Slot(i % 3));
      for (std::size_t v = 0; v < got.size(); ++v) {
        EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), 1e-5) << "variable " << v;
      }
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

TEST_F(FakePluginTest, ARefusedEpilogueIsDoneWithout) {
  const auto describe = [](const char* fake) -> std::string {
    auto accelerator = Open(fake);
    if (!accelerator.ok()) return accelerator.status().message();
    StepWorld world({513, 513, 513, 3}, 3, Placement::kOneShard, 33);
    const auto engine = (*accelerator)->CreateStepEngine(world.options);
    return engine.ok() ? (*engine)->Describe() : engine.status().message();
  };
  EXPECT_THAT(describe(""), HasSubstr("(layer 0: RELU_AUX_BIAS, DRELU_BGRAD; layer 1: BGRADA)"));
  EXPECT_THAT(describe("refuse_epilogue=DRELU_BGRAD refuse_epilogue=BGRADA"),
              HasSubstr("(layer 0: RELU_AUX_BIAS, DRELU; layer 1: none)"));
  EXPECT_THAT(describe("refuse_epilogue=BIAS"), HasSubstr("means nothing"));
}

}  // namespace
}  // namespace passel::cuda
