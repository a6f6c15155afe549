// gpu_fixture.h - a test on the device that the plugin opens: a GPU, or the emulated one. Where it
// opens none the test is left out, with the reason; with PASSEL_GPU_REQUIRED set it fails.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/deadline.h"
#include "compute/accelerator_loader.h"

namespace passel::cuda {

/// For whatever takes milliseconds unless something is broken.
inline Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

/// Whether to take little time: under a sanitizer, or on an emulated GPU.
inline bool Small() { return std::getenv("PASSEL_GPU_SMALL") != nullptr; }

class GpuFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenAccelerator({});
    const bool required = std::getenv("PASSEL_GPU_REQUIRED") != nullptr;
    if (!opened.ok() && opened.status().code() == Code::kNotFound && !required) {
      GTEST_SKIP() << opened.status().message();
    }
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    accelerator_ = std::move(opened).value();
  }

  std::unique_ptr<Accelerator> accelerator_;
};

}  // namespace passel::cuda
