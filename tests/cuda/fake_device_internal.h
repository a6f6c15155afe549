// fake_device_internal.h - what the two halves of the FakeDevice share: memory, and runs of plans.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/fake_device.h"

namespace passel::cuda {

inline std::uintptr_t Address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

inline bool Overlap(const void* a, std::size_t a_size, const void* b, std::size_t b_size) {
  return Address(a) < Address(b) + b_size && Address(b) < Address(a) + a_size;
}

// From memory that other processes may be writing to: whole floats, as a DMA engine reads them.
void CopyRacing(void* to, const void* from, std::size_t bytes);

class FakeDevice::FakeExecutable final : public Executable {
 public:
  FakeExecutable(FakeDevice& owner, const Plan& plan, How how)
      : owner_(owner), plan_(plan), how_(how) {}
  ~FakeExecutable() override {
    const std::unique_lock lock(owner_.mutex_);
    for (const Launched& run : owner_.queue_) {
      if (run.executable == this && owner_.error_.ok()) {  // after an error nothing runs
        owner_.Violation("an executable was destroyed while a launch of it was under way");
        owner_.queue_.clear();
        break;
      }
    }
    owner_.executables_.erase(this);
  }

  const std::vector<Node>& nodes() const { return plan_.nodes(); }
  How how() const { return how_; }
  bool Names(const void* begin, std::size_t size) const {
    for (const Node& node : nodes()) {
      for (const auto* ranges : {&node.reads, &node.writes}) {
        for (const Bytes& r : *ranges) {
          if (Overlap(r.begin, r.size, begin, size)) return true;
        }
      }
    }
    return false;
  }

 private:
  FakeDevice& owner_;
  const Plan plan_;
  const How how_;
};

}  // namespace passel::cuda
