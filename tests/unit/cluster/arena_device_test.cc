// Which GPUs may share parameters, and what each worker of such a job sees.

#include "cluster/arena_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cluster/launch_plan.h"
#include "support/recorded_topologies.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Recorded;

std::vector<ComputeDevice> Devices(const Topology& topology, const std::string& gpus) {
  const auto choice = ChooseDevices(topology, gpus, {});
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  return choice.ok() ? choice->devices : std::vector<ComputeDevice>();
}
std::string ArenaRefusal(const Topology& topology, const std::string& gpus) {
  const Status status = CheckArenaDevices(topology, Devices(topology, gpus), 6);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message().find(". "), std::string::npos);
  return status.message();
}
// Another machine's link.
Topology WithLink(Topology topology, int one, int other, void (*change)(GpuLink&)) {
  for (GpuLink& link : topology.links) {
    if (link.first == one && link.second == other) change(link);
  }
  return topology;
}

TEST(ArenaDeviceTest, OneGpuAloneOrNvlinkToTheFirstWillDo) {
  EXPECT_TRUE(
      CheckArenaDevices(Recorded("rtx4090-pcie-2"), Devices(Recorded("rtx4090-pcie-2"), "1"), 2)
          .ok());
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_TRUE(CheckArenaDevices(dgx, Devices(dgx, "all"), 8).ok());
  const Topology bridges = Recorded("a100-bridge-4");
  EXPECT_TRUE(CheckArenaDevices(bridges, Devices(bridges, "3,2"), 2).ok());
  // What two workers' GPUs have between them is nobody's concern.
  const Topology star =
      WithLink(dgx, 1, 2, [](GpuLink& link) { link.nvlink = link.peer_access = false; });
  EXPECT_TRUE(CheckArenaDevices(star, Devices(star, "0,1,2"), 3).ok());
}

TEST(ArenaDeviceTest, BothGpusAndWhatIsMissingAreNamed) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(ArenaRefusal(Recorded("rtx4090-pcie-2"), "all"),
              AllOf(HasSubstr("GPU 1 (GPU-"), HasSubstr("has no NVLink, but a PCIe path (PHB), to"),
                    HasSubstr("GPU 0 (GPU-"), HasSubstr("--gpus 0 --workers_per_gpu 6")));
  EXPECT_THAT(ArenaRefusal(Recorded("a100-bridge-4"), "1,0,2"),
              AllOf(HasSubstr("GPU 2 (GPU-"), HasSubstr("(SYS), to GPU 1 (GPU-")));
  EXPECT_THAT(
      ArenaRefusal(WithLink(dgx, 0, 3, [](GpuLink& link) { link.peer_atomics = false; }), "0,3"),
      HasSubstr("cannot do atomic operations on the memory of GPU 0"));
  EXPECT_THAT(
      ArenaRefusal(WithLink(dgx, 0, 3, [](GpuLink& link) { link.peer_access = false; }), "3,0"),
      HasSubstr("cannot access the memory of GPU 3"));
  EXPECT_THAT(ArenaRefusal(WithLink(dgx, 0, 3,
                                    [](GpuLink& link) {
                                      link.nvlink = false;
                                      link.pcie_path.clear();
                                    }),
                           "0,3"),
              HasSubstr("has no NVLink to GPU 0"));
  Topology unknown = dgx;
  unknown.links.clear();
  EXPECT_THAT(ArenaRefusal(unknown, "0,3"), HasSubstr("has no link that is known to GPU 0"));
  EXPECT_THAT(ArenaRefusal(Recorded("h100-mig"), "1,0:2"), HasSubstr("is a MIG instance"));
}

TEST(ArenaDeviceTest, TheObstacleIsAlsoSaidInAFewWords) {
  const auto obstacle = [](const std::string& machine, const std::string& gpus) {
    const Topology topology = Recorded(machine);
    return ArenaObstacle(topology, Devices(topology, gpus));
  };
  EXPECT_EQ(obstacle("dgx-h100", "all"), "");
  EXPECT_EQ(obstacle("rtx4090-pcie-2", "1"), "");
  EXPECT_EQ(obstacle("rtx4090-pcie-2", "all"),
            "GPU 1 has no NVLink, but a PCIe path (PHB), to GPU 0");
  EXPECT_EQ(obstacle("a100-bridge-4", "1,0,2"),
            "GPU 2 has no NVLink, but a PCIe path (SYS), to GPU 1");
  EXPECT_EQ(obstacle("h100-mig", "1,0:2"), "GPU 0:2 is a MIG instance");
}

TEST(ArenaDeviceTest, AWorkerSeesItsOwnGpuFirstAndThenThatOfTheArena) {
  const Topology dgx = Recorded("dgx-h100");
  LaunchRequest request;
  request.workers = 4;
  request.devices = Devices(dgx, "5,1");
  request.arena_on_device = true;
  const auto plan = PlanLaunch(dgx, request);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (const int worker : {0, 2}) {
    EXPECT_THAT(plan->Find("worker", worker)->environment,
                Contains("CUDA_VISIBLE_DEVICES=" + dgx.gpus[5].uuid));
  }
  for (const int worker : {1, 3}) {
    EXPECT_THAT(plan->Find("worker", worker)->environment,
                Contains("CUDA_VISIBLE_DEVICES=" + dgx.gpus[1].uuid + "," + dgx.gpus[5].uuid));
    EXPECT_THAT(TopologyLine(dgx, *plan, *plan->Find("worker", worker)),
                HasSubstr("parameters in the memory of GPU 5"));
  }
  EXPECT_THAT(plan->Find("ps", 0)->environment, Contains("CUDA_VISIBLE_DEVICES="));
}

}  // namespace
}  // namespace passel
