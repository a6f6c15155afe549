// emulated_gpu.h - whole jobs on a recorded machine whose GPUs are emulated.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "support/program.h"
#include "support/recorded_topologies.h"

namespace passel::testing {

class EmulatedGpuTest : public ::testing::Test {
 protected:
  /// `topology`: of tests/data/topologies.
  explicit EmulatedGpuTest(const std::string& topology) {
    sandbox_.SetEnv("LD_LIBRARY_PATH", PASSEL_FAKE_NVML_DIR);
    sandbox_.SetEnv("PASSEL_FAKE_NVML", TopologyPath(topology));
    sandbox_.SetEnv("CUDA_MPS_PIPE_DIRECTORY", sandbox_.runtime());
    sandbox_.SetEnv("PASSEL_BACKEND_PATH", PASSEL_FAKE_GPU_PLUGIN);
  }

  std::string Report() { return sandbox_.dir().File("report.json"); }

  /// True once the job has made `steps` more than it has now; false after 20 s (scaled).
  bool Advances(std::int64_t steps) {
    const std::int64_t begin = sandbox_.GlobalStep();
    const Deadline deadline = Deadline::After(Scaled(20.0));
    while (!deadline.Expired()) {
      if (begin >= 0 && sandbox_.GlobalStep() >= begin + steps) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  Sandbox sandbox_;
};

}  // namespace passel::testing
