// Which GPUs --gpus and CUDA_VISIBLE_DEVICES name.

#include "cluster/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/recorded_topologies.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Recorded;

CudaEnvironment Visible(const char* devices, const char* order = "") {
  return {std::string(devices), order};
}

// Their indices.
std::vector<std::string> Chosen(const Topology& topology, std::string_view spec,
                                const CudaEnvironment& environment = {}) {
  const Result<DeviceChoice> choice = ChooseDevices(topology, spec, environment);
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  std::vector<std::string> indices;
  if (!choice.ok()) return indices;
  for (const ComputeDevice& device : choice->devices) indices.push_back(device.Index());
  return indices;
}

std::string Refusal(const Topology& topology, std::string_view spec,
                    const CudaEnvironment& environment = {}) {
  const Result<DeviceChoice> choice = ChooseDevices(topology, spec, environment);
  EXPECT_FALSE(choice.ok()) << spec;
  return choice.status().message();
}

TEST(DeviceRequestTest, HasFourForms) {
  using Kind = DeviceRequest::Kind;
  EXPECT_EQ(ParseDeviceRequest("auto")->kind, Kind::kAuto);
  EXPECT_EQ(ParseDeviceRequest("cpu")->kind, Kind::kCpu);
  EXPECT_EQ(ParseDeviceRequest("cuda")->kind, Kind::kCuda);
  EXPECT_EQ(ParseDeviceRequest("cuda")->uuid, "");
  EXPECT_EQ(ParseDeviceRequest("cuda:GPU-12ab")->uuid, "GPU-12ab");
  EXPECT_EQ(ParseDeviceRequest("cuda:MIG-12ab")->uuid, "MIG-12ab");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:0", "cuda:gpu-1", "CPU", "auto:GPU-1"}) {
    EXPECT_THAT(ParseDeviceRequest(bad).status().message(), HasSubstr("cuda:UUID")) << bad;
  }
}

TEST(GpuChoiceTest, AllIsEveryGpuInOrder) {
  EXPECT_THAT(Chosen(Recorded("dgx-h100"), "all"),
              ElementsAre("0", "1", "2", "3", "4", "5", "6", "7"));
  EXPECT_THAT(Chosen(Recorded("rtx4090-pcie-2"), "all"), ElementsAre("0", "1"));
}

// What is known then is what the list has left.
TEST(GpuChoiceTest, WithoutNvmlVisibleDevicesCountNoMore) {
  Topology topology = Recorded("rtx4090-pcie-2");
  topology.gpus.resize(1);
  topology.links.clear();
  EXPECT_THAT(Refusal(topology, "all", Visible("1")), HasSubstr("leaves none"));
  topology.without_nvml = true;
  for (const char* visible : {"1", "7,3", "GPU-00000000", ""}) {
    EXPECT_THAT(Chosen(topology, "all", Visible(visible)), ElementsAre("0")) << visible;
    EXPECT_THAT(Chosen(topology, "0", Visible(visible)), ElementsAre("0")) << visible;
  }
  EXPECT_THAT(Refusal(topology, "1", Visible("1")), HasSubstr("has GPUs 0"));
}

TEST(GpuChoiceTest, AListIsTakenInItsOrder) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Chosen(dgx, "5,1"), ElementsAre("5", "1"));
  EXPECT_THAT(Chosen(dgx, " 5 , 1 "), ElementsAre("5", "1"));
  EXPECT_THAT(Chosen(dgx, dgx.gpus[3].uuid + ",0"), ElementsAre("3", "0"));
  EXPECT_THAT(Chosen(dgx, dgx.gpus[3].uuid.substr(0, 8)), ElementsAre("3"));
}

TEST(GpuChoiceTest, ADeviceIsNamedByItsWholeUuid) {
  const Topology dgx = Recorded("dgx-h100");
  const auto choice = ChooseDevices(dgx, dgx.gpus[2].uuid.substr(0, 9), {});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->devices[0].uuid, dgx.gpus[2].uuid);
  EXPECT_EQ(choice->devices[0].memory_bytes, dgx.gpus[2].memory_bytes);
}

TEST(GpuChoiceTest, InstancesStandForAGpuThatIsSplit) {
  const Topology mig = Recorded("h100-mig");
  EXPECT_THAT(Chosen(mig, "all"),
              ElementsAre("0:0", "0:1", "0:2", "0:3", "0:4", "0:5", "0:6", "1"));
  EXPECT_THAT(Chosen(mig, "0:6,1,0:0"), ElementsAre("0:6", "1", "0:0"));
  EXPECT_THAT(Chosen(mig, mig.gpus[0].mig_instances[4].uuid), ElementsAre("0:4"));
  const std::string parent = Refusal(mig, "0");
  EXPECT_THAT(parent, AllOf(HasSubstr("GPU 0"), HasSubstr("split by MIG"), HasSubstr("0:0 to 0:6"),
                            HasSubstr("7 instances")));
  EXPECT_EQ(Refusal(mig, mig.gpus[0].uuid), parent);
  EXPECT_THAT(Refusal(mig, "0:7"), AllOf(HasSubstr("instance 7"), HasSubstr("0:0 to 0:6")));
  EXPECT_THAT(Refusal(mig, "1:0"), HasSubstr("which has none: name the GPU itself"));
}

TEST(GpuChoiceTest, ASplitGpuWithoutInstancesRunsNothing) {
  Topology mig = Recorded("h100-mig");
  mig.gpus[0].mig_instances.clear();
  const auto all = ChooseDevices(mig, "all", {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->devices.size(), 1u);
  ASSERT_EQ(all->warnings.size(), 1u);
  EXPECT_THAT(all->warnings[0], HasSubstr("GPU 0 is left out"));
  EXPECT_THAT(Refusal(mig, "0"), HasSubstr("no instance"));
  mig.gpus.pop_back();
  EXPECT_THAT(Refusal(mig, "all"), HasSubstr("no GPU that can compute"));
}

TEST(GpuChoiceTest, WhatIsNotThereIsNamedWithWhatIs) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Refusal(dgx, "8"), AllOf(HasSubstr("GPU 8"), HasSubstr("0 to 7")));
  EXPECT_THAT(Refusal(dgx, "GPU-ffffffff-none"), HasSubstr("no GPU or MIG instance"));
  EXPECT_THAT(Refusal(dgx, "MIG-0"), HasSubstr("no GPU or MIG instance"));
  EXPECT_THAT(Refusal(dgx, "GPU-"), HasSubstr("8 devices"));
  for (const char* text : {"", ",", "0,", "-1", "first", "0-3", "1:", ":1", "0x1", "gpu:0", "ALL",
                           "all,0", "99999999999"}) {
    EXPECT_THAT(Refusal(dgx, text), HasSubstr("--gpus takes all, or a list")) << text;
  }
}

TEST(GpuChoiceTest, ADeviceIsNamedOnce) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Refusal(dgx, "0,2,0"),
              AllOf(HasSubstr("GPU 0"), HasSubstr("twice"), HasSubstr("--workers_per_gpu 2")));
  EXPECT_THAT(Refusal(dgx, "2," + dgx.gpus[2].uuid), HasSubstr("GPU 2"));
}

TEST(GpuChoiceTest, WithoutAGpuTheReasonIsGiven) {
  const std::string text = Refusal(Recorded("no-gpu"), "all");
  EXPECT_THAT(text, AllOf(HasSubstr("--gpus all needs a GPU"), HasSubstr("no NVIDIA driver"),
                          HasSubstr("--device cpu")));
  EXPECT_EQ(ChooseDevices(Recorded("no-gpu"), "0", {}).status().code(), Code::kNotFound);
}

TEST(GpuChoiceTest, AGpuThatIsTooOldIsLeftOutOfAllAndRefusedByName) {
  Topology dgx = Recorded("dgx-h100");
  dgx.gpus[1].compute_capability = 70;
  const auto all = ChooseDevices(dgx, "all", {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->devices.size(), 7u);
  ASSERT_EQ(all->warnings.size(), 1u);
  EXPECT_THAT(all->warnings[0], HasSubstr("GPU 1 is left out"));
  EXPECT_THAT(Refusal(dgx, "1"), AllOf(HasSubstr("7.0"), HasSubstr("7.5"), HasSubstr("GPU 1")));
  for (Gpu& gpu : dgx.gpus) gpu.compute_capability = 61;
  EXPECT_THAT(Refusal(dgx, "all"), HasSubstr("6.1"));
}

TEST(VisibleDevicesTest, LimitWhatAllIs) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Chosen(dgx, "all", Visible("2,3")), ElementsAre("2", "3"));
  EXPECT_THAT(Chosen(dgx, "all", Visible("3,2,3")), ElementsAre("3", "2"));
  EXPECT_THAT(Chosen(dgx, "all", Visible(dgx.gpus[6].uuid.c_str())), ElementsAre("6"));
  // CUDA ends the list at the first element that names nothing.
  EXPECT_THAT(Chosen(dgx, "all", Visible("0,-1,1")), ElementsAre("0"));
  EXPECT_THAT(Chosen(dgx, "all", Visible("0,9,1")), ElementsAre("0"));
  EXPECT_THAT(Chosen(dgx, "all", Visible("0,GPU-none,1")), ElementsAre("0"));
}

TEST(VisibleDevicesTest, LimitWhatMayBeNamed) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Chosen(dgx, "3", Visible("2,3")), ElementsAre("3"));
  EXPECT_THAT(Refusal(dgx, "4", Visible("2,3")),
              AllOf(HasSubstr("GPU 4"), HasSubstr("CUDA_VISIBLE_DEVICES=\"2,3\"")));
}

TEST(VisibleDevicesTest, MayLeaveNone) {
  for (const char* none : {"", "-1", "NoDevFiles"}) {
    EXPECT_THAT(Refusal(Recorded("dgx-h100"), "all", Visible(none)),
                HasSubstr("leaves none of the 8"))
        << none;
  }
}

TEST(VisibleDevicesTest, HoldTheInstancesOfASplitGpu) {
  const Topology mig = Recorded("h100-mig");
  EXPECT_EQ(Chosen(mig, "all", Visible("0")).size(), 7u);
  EXPECT_EQ(Chosen(mig, "all", Visible(mig.gpus[0].uuid.c_str())).size(), 7u);
  EXPECT_THAT(Chosen(mig, "all", Visible(mig.gpus[0].mig_instances[2].uuid.c_str())),
              ElementsAre("0:2"));
}

// Fastest first, says CUDA, unless it is told otherwise; who is fastest is not known here.
TEST(VisibleDevicesTest, IndicesOfUnlikeGpusNeedAnOrder) {
  Topology dgx = Recorded("dgx-h100");
  dgx.gpus[0].name = "NVIDIA A2";
  EXPECT_THAT(Refusal(dgx, "all", Visible("1")), HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_THAT(Chosen(dgx, "all", Visible("1", "PCI_BUS_ID")), ElementsAre("1"));
  EXPECT_THAT(Chosen(dgx, "all", Visible(dgx.gpus[1].uuid.c_str())), ElementsAre("1"));
}

TEST(VisibleDevicesTest, NothingIsWarnedOfWhenAllIsWell) {
  EXPECT_THAT(ChooseDevices(Recorded("dgx-h100"), "all", {})->warnings, IsEmpty());
}

}  // namespace
}  // namespace passel
