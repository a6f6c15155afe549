// What a profiler sees of workers that compute on a GPU, which is emulated here: a launch and a
// wait in the place of the CPU's passes, and the same three ranges for every step whether steps
// overlap or not.

#include "nvtx/nvtx_job.h"
#include "support/recorded_topologies.h"

namespace passel::testing {
namespace {

class NvtxGpuTest : public ::testing::Test {
 protected:
  NvtxGpuTest() {
    job_.sandbox.SetEnv("LD_LIBRARY_PATH", PASSEL_FAKE_NVML_DIR);
    job_.sandbox.SetEnv("PASSEL_FAKE_NVML", TopologyPath("rtx4090-pcie-2"));
    job_.sandbox.SetEnv("PASSEL_BACKEND_PATH", PASSEL_FAKE_GPU_PLUGIN);
  }

  Recording Record(std::vector<std::string> flags, int code = 0) {
    for (const char* flag : {"--device=cuda", "--hidden_units=8", "--batch_size=16"}) {
      flags.emplace_back(flag);
    }
    return job_.Record(std::move(flags), code, 0, 120);
  }

  std::int64_t LocalSteps(int worker) {
    return job_.Report()["workers"][static_cast<std::size_t>(worker)]["local_steps"];
  }

  RecordedJob job_;
};

// How many ranges of this name have each payload.
std::map<std::int64_t, int> ByPayload(const Thread& thread, const std::string& name) {
  std::map<std::int64_t, int> counts;
  for (const Node& node : thread.Named(name)) ++counts[node.call.payload];
  return counts;
}

// 1 to `last`, each once.
std::map<std::int64_t, int> EachOnce(std::int64_t last) {
  std::map<std::int64_t, int> counts;
  for (std::int64_t i = 1; i <= last; ++i) counts[i] = 1;
  return counts;
}

// Whatever lies in a range of these names is of the same step as the range.
void CheckNesting(const Thread& worker) {
  for (const auto& [outer, inner] : std::map<std::string, std::string>{
           {"pull", "launch"}, {"compute", "await_device"}, {"push", "apply"}}) {
    for (const Node& node : worker.Named(outer)) {
      SCOPED_TRACE(fmt::format("{} {} of {}", outer, node.call.payload, worker.name));
      EXPECT_EQ(worker.Children(node), inner);
      if (outer == "push") continue;  // the payload of apply is the number of the update
      for (const int child : node.children) {
        EXPECT_EQ(worker.ranges[static_cast<std::size_t>(child)].call.payload, node.call.payload);
      }
    }
  }
}

TEST_F(NvtxGpuTest, EveryStepIsOnePullOneComputeAndOnePush) {
  const Recording recording = Record({"--train_steps=120"});
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    const std::int64_t steps = LocalSteps(w);
    ASSERT_GE(steps, 1);
    for (const char* name : {"pull", "launch", "compute", "await_device", "push"}) {
      EXPECT_EQ(ByPayload(worker, name), EachOnce(steps)) << name << " of worker/" << w;
    }
    const std::vector<Node> ranges = worker.Named("step");
    ASSERT_EQ(static_cast<std::int64_t>(ranges.size()), steps);
    for (const Node& step : ranges) {
      EXPECT_EQ(worker.Children(step), "pull compute push");
      for (const int child : step.children) {
        EXPECT_EQ(worker.ranges[static_cast<std::size_t>(child)].call.payload, step.call.payload);
      }
    }
    CheckNesting(worker);
    for (const char* of_a_cpu : {"gather", "forward", "backward"}) {
      for (const Node& node : worker.Named(of_a_cpu)) {
        ASSERT_NE(node.parent, -1);
        EXPECT_EQ(worker.ranges[static_cast<std::size_t>(node.parent)].call.message, "evaluate")
            << "the passes of a step are the GPU's";
      }
    }
  }
  EXPECT_TRUE(recording.Calls("mark").empty());
}

TEST_F(NvtxGpuTest, StepsThatOverlapArePulledOneAhead) {
  const Recording recording = Record({"--train_steps=120", "--workers=1", "--overlap"});
  const Thread worker = OnlyThread(recording, "worker/0");
  const std::int64_t steps = LocalSteps(0);
  // The last one pulled is never handed out.
  EXPECT_EQ(ByPayload(worker, "pull"), EachOnce(steps + 1));
  EXPECT_EQ(ByPayload(worker, "launch"), EachOnce(steps + 1));
  for (const char* name : {"step", "compute", "await_device", "push"}) {
    EXPECT_EQ(ByPayload(worker, name), EachOnce(steps)) << name;
  }
  for (const Node& step : worker.Named("step")) {
    const std::int64_t number = step.call.payload;
    EXPECT_EQ(worker.Children(step), number == 1 ? "pull pull compute push" : "pull compute push");
    std::vector<std::int64_t> payloads;
    for (const int child : step.children) {
      payloads.push_back(worker.ranges[static_cast<std::size_t>(child)].call.payload);
    }
    EXPECT_EQ(payloads, number == 1 ? (std::vector<std::int64_t>{1, 2, 1, 1})
                                    : (std::vector<std::int64_t>{number + 1, number, number}));
  }
  CheckNesting(worker);
}

TEST_F(NvtxGpuTest, RoundsWaitAsOnACpu) {
  const Recording recording = Record({"--train_steps=60", "--mode=barrier"});
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    EXPECT_EQ(ByPayload(worker, "launch"), EachOnce(60));
    for (const Node& step : worker.Named("step")) {
      if (step.call.payload > 60) continue;  // found that the job was over
      EXPECT_EQ(worker.Children(step), "pull compute push wait");
    }
  }
}

// Parameters in the memory of the GPU: the same ranges, and each renewal of their shadow.
TEST_F(NvtxGpuTest, ShadowOfTheParametersIsRenewedBetweenSteps) {
  const Recording recording = Record({"--workers=2", "--train_steps=120", "--num_gpus=1",
                                      "--arena=device", "--shadow_interval=0.01"});
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    for (const Node& step : worker.Named("step")) {
      EXPECT_EQ(worker.Children(step), "pull compute push");
    }
    CheckNesting(worker);
    const std::vector<Node> renewals = worker.Named("shadow");
    ASSERT_GE(renewals.size(), 1u) << "at its end at least";
    for (const Node& node : renewals) {
      EXPECT_EQ(node.parent, -1);
      EXPECT_EQ(node.call.category, Categories(recording).at("checkpoint"));
    }
    EXPECT_GE(renewals.back().call.payload, 119);
  }
}

// The push of a step that makes its update itself begins before it and ends behind it: its range is
// what is left to do then, and there is no update of its own.
TEST_F(NvtxGpuTest, StepsThatUpdateHaveAPushWithoutAnUpdateInIt) {
  const Recording recording = Record({"--workers=2", "--train_steps=120", "--num_gpus=1",
                                      "--arena=device", "--optimizer=sgd", "--mode=ssp"});
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    for (const char* name : {"pull", "launch", "compute", "await_device", "push"}) {
      EXPECT_EQ(ByPayload(worker, name), EachOnce(LocalSteps(w))) << name << " of worker/" << w;
    }
    for (const Node& step : worker.Named("step")) {
      EXPECT_EQ(worker.Children(step), "pull compute push wait");
      for (const int child : step.children) {
        EXPECT_EQ(worker.ranges[static_cast<std::size_t>(child)].call.payload, step.call.payload);
      }
    }
    for (const Node& push : worker.Named("push")) EXPECT_EQ(worker.Children(push), "");
    EXPECT_TRUE(worker.Named("apply").empty());
  }
  EXPECT_TRUE(recording.Calls("mark").empty());
}

// A push is a launch of its own there: step k is launch 2 k - 2, its push 2 k - 1.
TEST_F(NvtxGpuTest, PushThatFailsOnAGpuIsMarkedOnceWithItsStep) {
  job_.sandbox.SetEnv("PASSEL_FAKE_GPU", "fail_at=41,1");
  const Recording recording = Record(
      {"--workers=1", "--train_steps=100000", "--num_gpus=1", "--arena=device", "--max_restarts=0"},
      1);
  ASSERT_EQ(recording.Marks("device_failed").size(), 1u);
  EXPECT_EQ(recording.Marks("device_failed")[0].payload, 21);
  EXPECT_EQ(OnlyThread(recording, "worker/0").open, 0);
}

// Launches are counted from 0, steps from 1.
TEST_F(NvtxGpuTest, AFailingGpuIsMarkedOnceWithItsStep) {
  job_.sandbox.SetEnv("PASSEL_FAKE_GPU", "fail_at=20,3");
  const Recording recording = Record({"--workers=1", "--train_steps=100000"}, 1);
  ASSERT_EQ(recording.Marks("device_failed").size(), 1u);
  const Call mark = recording.Marks("device_failed")[0];
  EXPECT_EQ(mark.category, Categories(recording).at("fault"));
  EXPECT_EQ(mark.payload, 21);
  const Thread worker = OnlyThread(recording, "worker/0");
  EXPECT_EQ(worker.open, 0);
  EXPECT_EQ(ByPayload(worker, "push"), EachOnce(20));
}

// The step after the one that failed may be where it is noticed, and the one before it may be lost
// with it.
TEST_F(NvtxGpuTest, AFailingGpuIsMarkedOnceWhenStepsOverlap) {
  job_.sandbox.SetEnv("PASSEL_FAKE_GPU", "fail_at=20,3");
  const Recording recording = Record({"--workers=1", "--train_steps=100000", "--overlap"}, 1);
  ASSERT_EQ(recording.Marks("device_failed").size(), 1u);
  EXPECT_GE(recording.Marks("device_failed")[0].payload, 20);
  EXPECT_LE(recording.Marks("device_failed")[0].payload, 22);
  const Thread worker = OnlyThread(recording, "worker/0");
  EXPECT_EQ(worker.open, 0);
  EXPECT_LE(worker.Named("push").size(), 20u);
  EXPECT_GE(worker.Named("push").size(), 19u);
}

}  // namespace
}  // namespace passel::testing
