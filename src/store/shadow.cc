#include "store/shadow.h"

#include <algorithm>

#include "base/atomic_word.h"
#include "base/clock.h"

namespace passel {

void PublishShadow(const ShardMemory& lead, std::int64_t before, std::int64_t after) {
  DeviceState& device = lead.state->device;
  // Each a release: who sees one of them sees these values or later ones.
  device.shadow_step.store(before, std::memory_order_release);
  device.shadow_last_step.store(after, std::memory_order_release);
  device.shadow_ns.store(MonotonicNs(), std::memory_order_release);
}

void ShadowBrokeOff(const ShardMemory& lead, std::int64_t after) {
  lead.state->device.shadow_last_step.store(after, std::memory_order_release);
}

void WishForShadow(const ShardMemory& lead, std::int64_t step) {
  RaiseTo(lead.state->device.shadow_wanted, step);
}

bool ShadowIsWanted(const ShardMemory& lead) {
  // Relaxed: a wish that is seen late is fulfilled late. The claim orders who renews.
  const DeviceState& device = lead.state->device;
  return device.shadow_step.load(std::memory_order_relaxed) <
         device.shadow_wanted.load(std::memory_order_relaxed);
}

std::int64_t ShadowStep(const ShardMemory& lead) {
  return lead.state->device.shadow_step.load(std::memory_order_acquire);
}

ShadowReader::ShadowReader(const ShardMemory& lead)
    : lead_(lead),
      at_ns_(lead.state->device.shadow_ns.load(std::memory_order_acquire)),
      step_(lead.state->device.shadow_step.load(std::memory_order_acquire)) {}

ShadowSteps ShadowReader::Steps(std::int64_t global_step) const {
  EndOfCopy();
  const DeviceState& device = lead_.state->device;
  ShadowSteps steps;
  steps.first = step_;
  // The claim before the rest: whoever has let go of it has said before how late the values are.
  const bool renewed = lead_.blocks[0].claim.load(std::memory_order_acquire) != 0 ||
                       device.shadow_ns.load(std::memory_order_acquire) != at_ns_;
  const std::int64_t last = device.shadow_last_step.load(std::memory_order_acquire);
  // The copy may hold any of what was written meanwhile, and of what is being written.
  steps.last = std::max(steps.first, renewed ? std::max(last, global_step) : last);
  steps.age_ns = at_ns_ == 0 ? 0 : MonotonicNs() - at_ns_;
  return steps;
}

}  // namespace passel
