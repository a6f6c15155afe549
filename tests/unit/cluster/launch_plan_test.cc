// Where tasks run. Whole plans of the recorded machines are in tests/data/topologies/golden.

#include "cluster/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/recorded_topologies.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Recorded;

LaunchRequest OnGpus(const Topology& topology, std::string_view spec, int workers) {
  LaunchRequest request;
  request.workers = workers;
  const Result<DeviceChoice> choice = ChooseDevices(topology, spec, {});
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  if (choice.ok()) request.devices = choice->devices;
  return request;
}

LaunchPlan Planned(const Topology& topology, const LaunchRequest& request) {
  Result<LaunchPlan> plan = PlanLaunch(topology, request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(*plan) : LaunchPlan();
}

std::string LaunchRefusal(const Topology& topology, const LaunchRequest& request) {
  const Result<LaunchPlan> plan = PlanLaunch(topology, request);
  EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
  return plan.status().message();
}

std::vector<int> Gpus(const LaunchPlan& plan) {
  std::vector<int> gpus;
  for (const TaskPlan& task : plan.tasks) {
    if (task.job == "worker") gpus.push_back(task.device ? task.device->gpu : -1);
  }
  return gpus;
}

TEST(BindingTest, HasNames) {
  for (const Binding binding : {Binding::kAuto, Binding::kNone, Binding::kNuma, Binding::kCore}) {
    EXPECT_EQ(ParseBinding(BindingName(binding)), binding);
  }
  EXPECT_EQ(ParseBinding("cores"), Binding::kCore);
  EXPECT_EQ(ParseBinding("socket"), std::nullopt);
}

TEST(LaunchPlanTest, WorkersTakeTheDevicesInTurn) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Gpus(Planned(dgx, OnGpus(dgx, "3,1", 5))), ElementsAre(3, 1, 3, 1, 3));
  EXPECT_THAT(Gpus(Planned(dgx, OnGpus(dgx, "all", 2))), ElementsAre(0, 1));
}

TEST(LaunchPlanTest, EveryTaskHasAPlaceAndThePsAndEvaluatorSeeNoGpu) {
  const Topology dgx = Recorded("dgx-h100");
  LaunchRequest request = OnGpus(dgx, "0,1", 2);
  request.ps = 2;
  request.evaluator = true;
  const LaunchPlan plan = Planned(dgx, request);
  ASSERT_EQ(plan.tasks.size(), 5u);
  for (const auto& [job, index] : {std::pair("ps", 0), {"ps", 1}, {"evaluator", 0}}) {
    const TaskPlan* const task = plan.Find(job, index);
    ASSERT_NE(task, nullptr);
    EXPECT_FALSE(task->device);
    EXPECT_THAT(task->environment, ElementsAre("CUDA_VISIBLE_DEVICES="));
  }
  EXPECT_THAT(
      plan.Find("worker", 1)->environment,
      ElementsAre("CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + dgx.gpus[1].uuid));
  EXPECT_EQ(plan.Find("worker", 2), nullptr);
}

TEST(LaunchPlanTest, CpuWorkersSeeTheEnvironmentAsItIs) {
  LaunchRequest request;
  request.workers = 3;
  const LaunchPlan plan = Planned(FlatTopology(std::vector{0, 1, 2, 3}), request);
  EXPECT_EQ(plan.binding, Binding::kCore);
  for (const TaskPlan& task : plan.tasks) EXPECT_THAT(task.environment, IsEmpty());
  EXPECT_THAT(plan.Find("worker", 2)->processors, ElementsAre(2));
  EXPECT_THAT(plan.Find("ps", 0)->processors, IsEmpty());
}

TEST(LaunchPlanTest, CpuWorkersAreNotBoundWhereThereAreTooFewProcessors) {
  LaunchRequest request;
  request.workers = 5;
  const Topology flat = FlatTopology(std::vector{0, 1, 2, 3});
  const LaunchPlan plan = Planned(flat, request);
  EXPECT_EQ(plan.binding, Binding::kNone);
  for (const TaskPlan& task : plan.tasks) EXPECT_THAT(task.processors, IsEmpty());
  request.workers = 2;
  request.threads_per_worker = 2;
  EXPECT_THAT(Planned(flat, request).Find("worker", 1)->processors, ElementsAre(2, 3));
  request.threads_per_worker = 3;
  EXPECT_EQ(Planned(flat, request).binding, Binding::kNone);
}

TEST(LaunchPlanTest, CpuWorkersGetACoreEachBeforeTheyShareOne) {
  LaunchRequest request;
  request.workers = 9;  // of 8 cores with two threads each
  const LaunchPlan plan = Planned(Recorded("no-gpu"), request);
  EXPECT_THAT(plan.Find("worker", 7)->processors, ElementsAre(7));
  EXPECT_THAT(plan.Find("worker", 8)->processors, ElementsAre(8));  // the second of core 0
}

TEST(LaunchPlanTest, CpuWorkersSpreadOverTheNodes) {
  LaunchRequest request;
  request.workers = 3;
  request.binding = Binding::kNuma;
  const LaunchPlan plan = Planned(Recorded("dgx-h100"), request);
  EXPECT_EQ(plan.Find("worker", 0)->numa_node, 0);
  EXPECT_EQ(plan.Find("worker", 1)->numa_node, 1);
  EXPECT_EQ(plan.Find("worker", 2)->numa_node, 0);
  EXPECT_EQ(FormatNumberList(plan.Find("worker", 1)->processors), "56-111,168-223");
  EXPECT_THAT(plan.Find("ps", 0)->processors, IsEmpty());
}

TEST(LaunchPlanTest, ThePsIsNearWorkersThatShareANode) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_EQ(Planned(dgx, OnGpus(dgx, "4,7", 2)).Find("ps", 0)->numa_node, 1);
  EXPECT_EQ(Planned(dgx, OnGpus(dgx, "3,4", 2)).Find("ps", 0)->numa_node, std::nullopt);
}

TEST(LaunchPlanTest, NobodyIsBoundMoreThanAsked) {
  const Topology dgx = Recorded("dgx-h100");
  LaunchRequest request = OnGpus(dgx, "all", 8);
  request.binding = Binding::kNone;
  for (const TaskPlan& task : Planned(dgx, request).tasks) {
    EXPECT_THAT(task.processors, IsEmpty());
  }
  // One node, or a node that is not known: nothing to gain.
  for (const char* name : {"rtx4090-pcie-2", "a100-vm-4"}) {
    const Topology machine = Recorded(name);
    EXPECT_EQ(Planned(machine, OnGpus(machine, "all", 2)).binding, Binding::kNone) << name;
  }
}

TEST(LaunchPlanTest, CoresOfGpuWorkersAreWholeNearAndTheirOwn) {
  const Topology dgx = Recorded("dgx-h100");
  LaunchRequest request = OnGpus(dgx, "all", 16);
  request.binding = Binding::kCore;
  const LaunchPlan plan = Planned(dgx, request);
  EXPECT_THAT(plan.Find("worker", 0)->processors, ElementsAre(0, 112));
  EXPECT_THAT(plan.Find("worker", 4)->processors, ElementsAre(56, 168));
  EXPECT_THAT(plan.Find("worker", 8)->processors, ElementsAre(4, 116));  // GPU 0 again
  std::set<int> used;
  for (const TaskPlan& task : plan.tasks) {
    for (const int processor : task.processors) {
      EXPECT_TRUE(used.insert(processor).second) << task.Name();
    }
  }
  EXPECT_EQ(used.size(), 32u);
}

TEST(LaunchPlanTest, TooFewCoresAreNamed) {
  Topology dgx = Recorded("dgx-h100");
  dgx.numa_nodes[1].cores.resize(2);  // a container's share
  LaunchRequest request = OnGpus(dgx, "all", 8);
  request.binding = Binding::kCore;
  EXPECT_THAT(LaunchRefusal(dgx, request),
              AllOf(HasSubstr("needs 4 cores"), HasSubstr("NUMA node 1"), HasSubstr("has 2"),
                    HasSubstr("--bind numa")));
  LaunchRequest cpu;
  cpu.workers = 17;
  cpu.binding = Binding::kCore;
  EXPECT_THAT(LaunchRefusal(Recorded("no-gpu"), cpu),
              AllOf(HasSubstr("needs 17"), HasSubstr("16 processors"), HasSubstr("--bind none")));
  // 48 cores, of which the quota pays for 40.
  const Topology vm = Recorded("a100-vm-4");
  LaunchRequest many = OnGpus(vm, "all", 41);
  many.binding = Binding::kCore;
  EXPECT_THAT(LaunchRefusal(vm, many),
              AllOf(HasSubstr("41"), HasSubstr("40"), HasSubstr("CPU quota")));
}

TEST(LaunchPlanTest, NumaNeedsANodeWithProcessors) {
  const Topology vm = Recorded("a100-vm-4");
  LaunchRequest request = OnGpus(vm, "all", 4);
  request.binding = Binding::kNuma;
  EXPECT_THAT(LaunchRefusal(vm, request),
              AllOf(HasSubstr("NUMA node of GPU 0"), HasSubstr("--bind none")));
  Topology dgx = Recorded("dgx-h100");
  dgx.numa_nodes[1].cores.clear();
  request = OnGpus(dgx, "4", 1);
  request.binding = Binding::kNuma;
  EXPECT_THAT(LaunchRefusal(dgx, request), AllOf(HasSubstr("NUMA node 1"), HasSubstr("GPU 4")));
  request.binding = Binding::kAuto;
  EXPECT_EQ(Planned(dgx, request).binding, Binding::kNone);
}

TEST(LaunchPlanTest, AShareOfTheMemoryIsALimit) {
  const Topology machine = Recorded("a100-pcie-4");  // 40960 MiB each, MPS runs
  LaunchRequest request = OnGpus(machine, "all", 8);
  request.memory_fraction = 0.5;
  const LaunchPlan plan = Planned(machine, request);
  EXPECT_EQ(plan.Find("worker", 7)->memory_limit, 20480ull << 20);
  EXPECT_THAT(plan.Find("worker", 7)->environment,
              Contains("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M"));
  EXPECT_EQ(plan.Find("ps", 0)->memory_limit, 0u);
  request.memory_fraction = 0.51;
  EXPECT_THAT(LaunchRefusal(machine, request),
              AllOf(HasSubstr("0.51"), HasSubstr("2 workers on GPU 0"), HasSubstr("1.02"),
                    HasSubstr("at most 0.5")));
  request = OnGpus(machine, "all", 12);
  request.memory_fraction = 1.0 / 3;
  EXPECT_EQ(Planned(machine, request).warnings.size(), 0u);
  request = OnGpus(machine, "0", 1);
  request.memory_fraction = 1e-9;
  EXPECT_THAT(LaunchRefusal(machine, request), HasSubstr("less than 1 MiB"));
}

TEST(LaunchPlanTest, WithoutMpsTheLimitIsLeftToTheWorker) {
  const Topology dgx = Recorded("dgx-h100");
  LaunchRequest request = OnGpus(dgx, "all", 8);
  request.memory_fraction = 0.5;
  EXPECT_THAT(Planned(dgx, request).Find("worker", 0)->environment,
              Not(Contains(HasSubstr("MEM_LIMIT"))));
}

TEST(LaunchPlanTest, SharingAGpuWithoutMpsIsAdvisedAgainst) {
  const Topology dgx = Recorded("dgx-h100");
  EXPECT_THAT(Planned(dgx, OnGpus(dgx, "all", 8)).warnings, IsEmpty());
  EXPECT_THAT(Planned(dgx, OnGpus(dgx, "1,2", 3)).warnings,
              ElementsAre(AllOf(HasSubstr("2 workers share GPU 1"), HasSubstr("MPS is not running"),
                                HasSubstr("nvidia-cuda-mps-control -d"))));
  // Nobody is told to start what would then be refused.
  LaunchRequest without = OnGpus(dgx, "1,2", 3);
  without.without_mps = true;
  EXPECT_THAT(Planned(dgx, without).warnings, IsEmpty());
  const Topology running = Recorded("a100-pcie-4");
  EXPECT_THAT(Planned(running, OnGpus(running, "all", 8)).warnings, IsEmpty());
  // Each on an instance of its own.
  const Topology mig = Recorded("h100-mig");
  EXPECT_THAT(Planned(mig, OnGpus(mig, "all", 8)).warnings, IsEmpty());
}

TEST(TopologyLineTest, NamesThePeersThatTheJobUses) {
  const Topology dgx = Recorded("dgx-h100");
  const LaunchPlan plan = Planned(dgx, OnGpus(dgx, "0,1,2,5", 4));
  EXPECT_THAT(TopologyLine(dgx, plan, *plan.Find("worker", 1)), HasSubstr("NVLink to GPU 0,2,5"));
  const Topology pcie = Recorded("a100-pcie-4");
  const LaunchPlan two = Planned(pcie, OnGpus(pcie, "0,1", 2));
  EXPECT_THAT(TopologyLine(pcie, two, *two.Find("worker", 0)),
              HasSubstr("PCIe peer access to GPU 1"));
  const Topology cards = Recorded("rtx4090-pcie-2");
  const LaunchPlan none = Planned(cards, OnGpus(cards, "all", 2));
  EXPECT_THAT(TopologyLine(cards, none, *none.Find("worker", 0)),
              AllOf(Not(HasSubstr("peer")), Not(HasSubstr("NVLink"))));
}

TEST(TopologyLineTest, SaysNothingOfAPciAddressThatIsNotKnown) {
  Topology cards = Recorded("rtx4090-pcie-2");
  cards.gpus[1].pci_address.clear();
  const LaunchPlan plan = Planned(cards, OnGpus(cards, "all", 2));
  EXPECT_THAT(TopologyLine(cards, plan, *plan.Find("worker", 0)), HasSubstr(", PCI 0000:01:00.0)"));
  EXPECT_THAT(TopologyLine(cards, plan, *plan.Find("worker", 1)),
              HasSubstr(cards.gpus[1].uuid + "), bound"));
}

}  // namespace
}  // namespace passel
