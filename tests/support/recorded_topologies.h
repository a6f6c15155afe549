// recorded_topologies.h - the machines of tests/data/topologies.

#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cluster/topology_json.h"

namespace passel::testing {

inline const std::vector<std::string>& RecordedTopologies() {
  static const std::vector<std::string> names = {"dgx-h100", "a100-pcie-4", "rtx4090-pcie-2",
                                                 "h100-mig", "a100-vm-4",   "a100-bridge-4",
                                                 "no-gpu"};
  return names;
}

inline std::string TopologyPath(const std::string& name) {
  return std::string(PASSEL_SOURCE_DIR) + "/tests/data/topologies/" + name + ".json";
}

inline Topology Recorded(const std::string& name) {
  Result<Topology> topology = ReadTopology(TopologyPath(name));
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  if (!topology.ok()) return {};
  topology->origin = "this machine";
  return std::move(*topology);
}

}  // namespace passel::testing
