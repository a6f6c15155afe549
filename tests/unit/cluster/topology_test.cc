// The topology of a machine as JSON: what is written is read back, and nothing wrong is read.

#include "cluster/topology.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/topology_json.h"
#include "support/recorded_topologies.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Recorded;
using testing::RecordedTopologies;

TEST(NumberListTest, IsWrittenInRangesAndReadBack) {
  EXPECT_EQ(FormatNumberList(std::vector{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(FormatNumberList(std::vector{3}), "3");
  EXPECT_EQ(FormatNumberList({}), "-");
  EXPECT_THAT(*ParseNumberList("0-2,5,7-8", 8), ElementsAre(0, 1, 2, 5, 7, 8));
  EXPECT_THAT(*ParseNumberList("1023", 1023), ElementsAre(1023));
  for (const char* bad : {"", ",", "1,", "-", "1-", "-1", "2-1", "1,1", "3,2", "0-1024", "a", "01",
                          "1 2", "0-3,2", "99999999999"}) {
    EXPECT_EQ(ParseNumberList(bad, 1023), std::nullopt) << bad;
  }
}

TEST(TopologyTest, ARecordedMachineHasWhatItsFileSays) {
  const Topology dgx = Recorded("dgx-h100");
  ASSERT_EQ(dgx.gpus.size(), 8u);
  EXPECT_EQ(dgx.gpus[4].pci_address, "0000:9d:00.0");
  EXPECT_EQ(dgx.gpus[4].numa_node, 1);
  EXPECT_EQ(dgx.gpus[4].compute_capability, 90);
  EXPECT_EQ(dgx.gpus[4].memory_bytes, 81559ull << 20);
  EXPECT_EQ(dgx.NumCores(), 112);
  EXPECT_EQ(dgx.NumProcessors(), 224);
  EXPECT_EQ(FormatNumberList(dgx.FindNode(1)->Processors()), "56-111,168-223");
  ASSERT_NE(dgx.FindLink(7, 2), nullptr);
  EXPECT_TRUE(dgx.FindLink(7, 2)->nvlink);
  EXPECT_EQ(dgx.FindLink(7, 2)->pcie_path, "SYS");
  EXPECT_EQ(dgx.FindLink(3, 3), nullptr);
  EXPECT_EQ(dgx.FindNode(2), nullptr);
  EXPECT_EQ(Recorded("h100-mig").gpus[0].mig_instances.size(), 7u);
  EXPECT_EQ(Recorded("rtx4090-pcie-2").gpus[1].numa_node, std::nullopt);
  EXPECT_EQ(Recorded("a100-vm-4").mps, MpsState::kUnknown);
  EXPECT_EQ(Recorded("a100-vm-4").processor_quota, 40);
}

TEST(TopologyTest, WhatIsWrittenIsReadBack) {
  for (const std::string& name : RecordedTopologies()) {
    const Topology topology = Recorded(name);
    const Result<Topology> again = ParseTopology("this machine", TopologyToJson(topology));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, topology) << name;
  }
}

// What a process of CUDA's tells of its first device, without NVML.
TEST(TopologyTest, WhatIsNotKnownIsLeftAway) {
  Topology topology = FlatTopology(std::vector{0, 1});
  topology.without_nvml = true;
  Gpu& gpu = topology.gpus.emplace_back();
  gpu.name = "A";
  gpu.compute_capability = 90;
  gpu.uuid = "GPU-a";
  const std::string whole = TopologyToJson(topology);
  EXPECT_THAT(whole, AllOf(HasSubstr("\"without_nvml\": true"), Not(HasSubstr("pci_address"))));
  EXPECT_EQ(*ParseTopology("this machine", whole), topology);
  EXPECT_THAT(DescribeTopology(topology),
              AllOf(HasSubstr("PCI not known"), HasSubstr("NVML (libnvidia-ml.so.1) is missing")));

  gpu.uuid.clear();
  const auto nameless = ParseTopology("this machine", TopologyToJson(topology));
  EXPECT_THAT(nameless.status().message(), HasSubstr("\"uuid\" is missing"));
  gpu.mig_enabled = true;
  gpu.mig_instances.push_back({"MIG-b", "A MIG 1g", 5});
  const auto instance = ParseTopology("this machine", TopologyToJson(topology));
  ASSERT_TRUE(instance.ok()) << instance.status().message();
  EXPECT_EQ(*instance, topology);
  EXPECT_THAT(DescribeTopology(topology), HasSubstr("UUID not known"));
}

TEST(TopologyTest, ADescriptionNamesEveryGpuInstanceAndNode) {
  const std::string text = DescribeTopology(Recorded("h100-mig"));
  EXPECT_THAT(text, AllOf(HasSubstr("2 GPUs, 2 NUMA nodes, 112 cores, 224 processors"),
                          HasSubstr("driver 580.65.06, CUDA 13.0, MPS stopped"),
                          HasSubstr("MIG with 7 instances"), HasSubstr("0:6: NVIDIA H100"),
                          HasSubstr("GPU 1: NVIDIA H100"),
                          HasSubstr("NUMA node 1: 56 cores, processors 56-111,168-223")));
  EXPECT_THAT(DescribeTopology(Recorded("dgx-h100")), HasSubstr("NVLink+pa"));
  EXPECT_THAT(DescribeTopology(Recorded("no-gpu")), HasSubstr("no GPU: no NVIDIA driver"));
  EXPECT_THAT(DescribeTopology(Recorded("a100-vm-4")),
              AllOf(HasSubstr("a CPU quota pays for 40"), HasSubstr("NUMA node not known")));
}

TEST(TopologyTest, AFlatMachineHasOneCoreForEachProcessor) {
  const Topology flat = FlatTopology(std::vector{2, 5});
  ASSERT_EQ(flat.numa_nodes.size(), 1u);
  EXPECT_THAT(flat.numa_nodes[0].cores, ElementsAre(ElementsAre(2), ElementsAre(5)));
  EXPECT_EQ(flat.processor_quota, 0);
}

// A small machine, with one text replaced by another.
struct Change {
  const char* name;
  const char* from;
  const char* to;
  const char* words;  // of the refusal
};

constexpr const char* kSmall = R"({
"passel_topology": 1, "mps": "stopped", "driver_version": "580.65.06",
"numa_nodes": [{"index": 0, "cores": ["0,4", "1,5"]}, {"index": 1, "cores": ["2", "3"]}],
"gpus": [{"uuid": "GPU-a", "name": "A", "memory_bytes": 1048576, "compute_capability": "8.0",
          "pci_address": "0000:01:00.0", "numa_node": 1},
         {"uuid": "GPU-b", "name": "B", "memory_bytes": 1048576, "compute_capability": "8.0",
          "pci_address": "0000:02:00.0", "mig_enabled": true,
          "mig_instances": [{"uuid": "MIG-c", "name": "C", "memory_bytes": 5}]}],
"links": [{"gpus": [0, 1], "pcie_path": "SYS", "nvlink": false, "peer_access": true,
           "peer_atomics": false}]})";

class BadTopologyTest : public ::testing::TestWithParam<Change> {};

TEST_P(BadTopologyTest, IsRefusedInOneSentenceThatNamesThePlace) {
  std::string text = kSmall;
  ASSERT_TRUE(ParseTopology("small.json", text).ok());
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  const Result<Topology> topology = ParseTopology("small.json", text);
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(topology.status().message(),
              AllOf(HasSubstr("small.json"), HasSubstr(GetParam().words)));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadTopologyTest,
    ::testing::Values(
        Change{"CutOff", "\"links\": [", "", "not JSON"},
        Change{"KeyTwice", "\"mps\": \"stopped\"", "\"passel_topology\": 1", "twice"},
        Change{"AnotherFormat", "topology\": 1", "topology\": 2", "reads format 1"},
        Change{"NoFormat", "\"passel_topology\": 1, ", "", "\"passel_topology\" is missing"},
        Change{"UnknownKey", "\"mps\"", "\"mpss\"", "did you mean \"mps\"?"},
        Change{"UnknownKeyOfAGpu", "\"name\": \"A\"", "\"nam\": \"A\"", "gpus[0]"},
        Change{"UnknownMps", "stopped", "on", "running, stopped or unknown"},
        Change{"NoNode",
               "[{\"index\": 0, \"cores\": [\"0,4\", \"1,5\"]}, {\"index\": 1, \"cores\": "
               "[\"2\", \"3\"]}]",
               "[]", "at least one"},
        Change{"NodesOutOfOrder", "\"index\": 1", "\"index\": 0", "ascending order"},
        Change{"NodeWithoutIndex", "\"index\": 1, ", "", "numa_nodes[1]: \"index\" is missing"},
        Change{"ProcessorTwice", "\"2\"", "\"4\"", "processor 4 is in two cores"},
        Change{"ProcessorTooHigh", "\"2\"", "\"1024\"", "0 to 1023"},
        Change{"CoreIsANumber", "\"2\"", "2", "a core is a text"},
        Change{"BadUuid", "GPU-a", "A-GPU", "gpus[0]: \"uuid\" is \"A-GPU\""},
        Change{"UuidWithANewline", "GPU-a", "GPU-\\n", "printable ASCII"},
        Change{"UuidThatWouldBeAnAssignment", "GPU-a", "GPU-a,GPU=b", "letters, digits and dashes"},
        Change{"UuidTwice", "GPU-b", "GPU-a", "GPU-a is there twice"},
        Change{"InstanceWithAGpusUuid", "MIG-c", "GPU-c", "mig_instances[0]"},
        Change{"NegativeMemory", "1048576", "-1", "0 to 1125899906842624, not -1"},
        Change{"MemoryThatIsNoInteger", "1048576", "1e6", "whole number"},
        Change{"HugeMemory", "1048576", "18446744073709551615", "0 to 1125899906842624"},
        Change{"CapabilityIsANumber", "\"8.0\"", "8.0", "must be a text"},
        Change{"CapabilityWithoutADot", "8.0", "80", "such as \"9.0\""},
        Change{"BadPciAddress", "0000:01:00.0", "../../etc", "pci_address"},
        Change{"UnknownNode", "\"numa_node\": 1", "\"numa_node\": 2", "not among \"numa_nodes\""},
        Change{"InstancesWithoutMig", "\"mig_enabled\": true", "\"mig_enabled\": false",
               "\"mig_enabled\" is not true"},
        Change{"MigIsAText", "true,\n", "\"yes\",\n", "true or false"},
        Change{"LinkToItself", "[0, 1]", "[1, 1]", "the lower first"},
        Change{"LinkDownwards", "[0, 1]", "[1, 0]", "the lower first"},
        Change{"LinkToNobody", "[0, 1]", "[0, 2]", "out of 2"},
        Change{"LinkOfThree", "[0, 1]", "[0, 1, 1]", "at most 2"},
        Change{"UnknownPath", "SYS", "NVL", "PIX, PXB, PHB, NODE or SYS"},
        Change{"AtomicsWithoutAccess", "\"peer_access\": true,\n           \"peer_atomics\": false",
               "\"peer_access\": false, \"peer_atomics\": true", "cannot be"},
        Change{"AReasonBesideGpus", "\"mps\": \"stopped\"", "\"no_gpu_reason\": \"none\"",
               "remove \"no_gpu_reason\""}),
    [](const auto& test) { return test.param.name; });

TEST(BadTopologyTest, NoGpuNeedsAReason) {
  const auto topology = ParseTopology(
      "t", R"({"passel_topology": 1, "numa_nodes": [{"index": 0, "cores": ["0"]}], "gpus": []})");
  EXPECT_THAT(topology.status().message(), HasSubstr("\"no_gpu_reason\""));
}

TEST(BadTopologyTest, AMachineHasAProcessor) {
  const auto topology = ParseTopology("t", R"({"passel_topology": 1, "no_gpu_reason": "none",
      "numa_nodes": [{"index": 0, "cores": []}], "gpus": []})");
  EXPECT_THAT(topology.status().message(), HasSubstr("no node has a core"));
}

TEST(BadTopologyTest, OtherThingsThanObjectsAreRefused) {
  for (const char* text :
       {"", "[]", "1", "\"x\"", "null", "{}", "nul", "{\"passel_topology\":1}"}) {
    EXPECT_EQ(ParseTopology("t", text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_THAT(ParseTopology("t", std::string(100000, '[')).status().message(),
              HasSubstr("nests deeper than 16"));
}

TEST(BadTopologyTest, SizesAreLimited) {
  EXPECT_EQ(ParseTopology("t", std::string(kMaxTopologyBytes + 1, ' ')).status().code(),
            Code::kResourceExhausted);
  std::string gpus;
  for (int i = 0; i <= kMaxGpus; ++i) gpus += i == 0 ? "{}" : ",{}";
  const auto many = ParseTopology(
      "t", R"({"passel_topology": 1, "numa_nodes": [{"index": 0, "cores": []}], "gpus": [)" + gpus +
               "]}");
  EXPECT_THAT(many.status().message(), HasSubstr("65 elements: it takes at most 64"));
  EXPECT_EQ(ReadTopology("/no/such/file.json").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace passel
