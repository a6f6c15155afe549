// plans_under_test.h - the plans that an engine would build, without one.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/epilogue_choice.h"
#include "cuda/fake_device.h"
#include "cuda/step_plan.h"

namespace passel::cuda {

/// Epilogues that a device is asked for.
inline constexpr LargeGemm::Epilogue kAsked[] = {
    LargeGemm::Epilogue::kBiasReluMask, LargeGemm::Epilogue::kMask, LargeGemm::Epilogue::kMaskSums,
    LargeGemm::Epilogue::kSums};

/// `options` must outlive it. They are never run.
class Plans {
 public:
  explicit Plans(const StepEngineOptions& options) : options_(options), device_({}) {
    memory_.emplace(std::move(StepMemory::Create(device_, options)).value());
    blocks_.resize(options.memory.gradient_slots.size() * 2);
    for (std::size_t slot = 0; slot < options.memory.gradient_slots.size(); ++slot) {
      StepHostMemory host;
      blocks_[2 * slot].resize(StepBlockSize(options.batch_size));
      blocks_[2 * slot + 1].resize(sizeof(StepReportLine));
      host.block = reinterpret_cast<const StepBlock*>(blocks_[2 * slot].data());
      host.line = reinterpret_cast<StepReportLine*>(blocks_[2 * slot + 1].data());
      for (std::size_t s = 0; s < options.memory.shard_values.size(); ++s) {
        host.values.push_back(options.memory.shard_values[s].data());
        host.gradients.push_back(options.memory.gradient_slots[slot][s].data());
      }
      hosts_.push_back(std::move(host));
    }
  }
  std::vector<LayerEpilogues> Choose(const AskDevice& ask) {
    explanations.clear();
    auto chosen = ChooseEpilogues(options_, *memory_, hosts_, ask, [this](std::string_view text) {
      explanations.emplace_back(text);
    });
    EXPECT_TRUE(chosen.ok()) << chosen.status().message();
    return chosen.ok() ? std::move(chosen).value() : std::vector<LayerEpilogues>();
  }
  Plan Build(const std::vector<LayerEpilogues>& epilogues) {
    return BuildStepPlan(options_, *memory_, hosts_.front(), epilogues);
  }
  const StepMemory& memory() const { return *memory_; }
  const std::vector<StepHostMemory>& hosts() const { return hosts_; }

  std::vector<std::string> explanations;

 private:
  const StepEngineOptions& options_;
  FakeDevice device_;
  std::optional<StepMemory> memory_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<StepHostMemory> hosts_;
};

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
