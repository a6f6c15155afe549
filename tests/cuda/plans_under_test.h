// plans_under_test.h - the plans that an engine would build, without one.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fake_device.h"
#include "cuda/step_plan.h"

namespace passel::cuda {

/// The host memory of one gradient slot, all of it pinned; the values are those of the options.
class PinnedHost {
 public:
  PinnedHost(FakeDevice& device, const StepEngineOptions& options) : device_(device) {
    host.block = block_ = Pin<StepBlock>(StepBlockSize(options.batch_size));
    host.line = Pin<StepReportLine>(sizeof(StepReportLine));
    for (const auto& shard : options.memory.shard_values) {
      values.emplace_back(Pin<float>(shard.size_bytes()), shard.size());
      gradients.emplace_back(Pin<float>(shard.size_bytes()), shard.size());
      std::copy(shard.begin(), shard.end(), values.back().begin());
      host.values.push_back(values.back().data());
      host.gradients.push_back(gradients.back().data());
    }
  }
  void Order(std::uint64_t number, const std::vector<std::uint32_t>& indices) {
    block_->number = number;
    std::copy(indices.begin(), indices.end(), reinterpret_cast<std::uint32_t*>(block_ + 1));
  }
  /// Gives the step block back, whoever names it.
  void ReleaseBlock() { pinned_.front().reset(); }

  StepHostMemory host;
  std::vector<std::span<float>> values, gradients;  // [shard]

 private:
  template <typename T>
  T* Pin(std::size_t bytes) {
    pinned_.push_back(std::move(device_.AllocatePinned(bytes)).value());
    return static_cast<T*>(pinned_.back().get());
  }

  FakeDevice& device_;
  StepBlock* block_;
  std::vector<Device::Memory> pinned_;
};

/// The plan of a step. It is never run: the memory that it names is gone.
inline Plan PlanOf(const StepEngineOptions& options) {
  FakeDevice device({});
  const PinnedHost host(device, options);
  const auto memory = StepMemory::Create(device, options);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return memory.ok() ? BuildStepPlan(options, *memory, host.host) : Plan();
}

/// Forgets each edge of the plan that is `asked` for, in up to `seeds` orders of operations, until
/// `differs` says that it shows. Returns the edges that did, "from -> to".
inline std::vector<std::string> ExpectEveryEdgeIsFound(
    const Plan& plan, FakeDeviceOptions fake, std::uint64_t seeds,
    const std::function<bool(const FakeDeviceOptions&)>& differs,
    const std::function<bool(const Node& from, const Node& to)>& asked = {}) {
  std::vector<std::string> edges;
  fake.adversarial = true;
  for (int number = 0; number < static_cast<int>(plan.nodes().size()); ++number) {
    const Node& node = plan.nodes()[static_cast<std::size_t>(number)];
    for (const int before : node.after) {
      const Node& from = plan.nodes()[static_cast<std::size_t>(before)];
      if (asked && !asked(from, node)) continue;
      fake.forgotten_edges = {{before, number}};
      bool found = false;
      for (fake.seed = 0; fake.seed < seeds && !found; ++fake.seed) found = differs(fake);
      EXPECT_TRUE(found) << "without " << before << " -> " << number << " (" << from.name << " -> "
                         << node.name << ")";
      if (found) edges.push_back(from.name + " -> " + node.name);
    }
  }
  return edges;
}

}  // namespace passel::cuda
