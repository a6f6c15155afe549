// emulated_gpu.h - whole jobs on a recorded machine whose GPUs are emulated.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

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

  /// A job with these flags, and those of the `defaults` that are not among them.
  std::vector<std::string> JobOf(const std::vector<std::string>& flags,
                                 const std::vector<std::string>& defaults) {
    std::vector<std::string> all;
    for (const std::string& flag : defaults) {
      const std::string name = flag.substr(0, flag.find('=') + 1);
      if (std::none_of(flags.begin(), flags.end(),
                       [&](const std::string& other) { return other.starts_with(name); })) {
        all.push_back(flag);
      }
    }
    all.insert(all.end(), flags.begin(), flags.end());
    return sandbox_.Train(all);
  }
  Outcome RunJob(const std::vector<std::string>& command) { return sandbox_.Run(command, 120); }
  /// Of a small network, with a report.
  Outcome RunSmall(const std::vector<std::string>& flags) {
    return RunJob(JobOf(flags, {"--hidden_units=16", "--batch_size=32", "--report=" + Report()}));
  }

  std::string Report() { return sandbox_.dir().File("report.json"); }

  /// True once the job has made `steps` more than it has now; false after 20 s (scaled).
  bool Advances(std::int64_t steps) {
    const std::int64_t begin = sandbox_.GlobalStep();
    return begin >= 0 && AwaitTrue([&] { return sandbox_.GlobalStep() >= begin + steps; });
  }
  /// The same, for whatever the status of the job's arena is to be.
  bool ArenaComesTo(const std::function<bool(const nlohmann::json& arena)>& is_true) {
    return AwaitTrue([&] {
      const auto status = sandbox_.Status();
      return status.contains("arena") && is_true(status.at("arena"));
    });
  }
  static bool AwaitTrue(const std::function<bool()>& is_true) {
    const Deadline deadline = Deadline::After(Scaled(20.0));
    while (!is_true()) {
      if (deadline.Expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  void Interrupt(Program& train) {
    train.Signal(SIGINT);
    EXPECT_EQ(sandbox_.Finish(train, 20).code, 130) << train.Err();
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }

  /// A worker that dies while it holds claims in the memory of the GPU: the others take them over.
  /// `command` adds these flags to those of the job.
  void ExpectClaimsTakenOver(
      const std::function<std::vector<std::string>(const std::vector<std::string>&)>& command) {
    for (const char* mode : {"locked", "hogwild"}) {
      sandbox_.SetEnv("PASSEL_FAILPOINT",
                      std::string("gpu.claimed:40:kill:") + sandbox_.dir().File(mode));
      Program train = sandbox_.Start(
          command({std::string("--mode=") + mode, "--optimizer=momentum", "--learning_rate=0.002",
                   "--train_steps=100000000", "--max_restarts=3"}));
      ASSERT_TRUE(train.WaitFor("was killed by SIGKILL")) << train.Err();
      EXPECT_TRUE(Advances(200)) << train.Err();
      std::uint64_t taken_over = 0;
      const auto status = sandbox_.Status();
      for (const auto& worker : status.at("arena").at("workers")) {
        taken_over += worker.at("taken_over_blocks").get<std::uint64_t>();
      }
      EXPECT_GE(taken_over, 1u) << mode;
      Interrupt(train);
    }
  }

  Sandbox sandbox_;
};

}  // namespace passel::testing
