// plans_under_test.h - the plans that an engine would build, without one.

#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
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

}  // namespace passel::cuda
