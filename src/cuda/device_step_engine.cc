#include "cuda/device_step_engine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/device_arena.h"
#include "cuda/layer_products.h"
#include "cuda/sign.h"
#include "cuda/step_plan.h"

namespace passel::cuda {
namespace {

constexpr std::chrono::seconds kCopyLimit{60};

// Floats that another process may be changing: each whole, none kept back.
void CopyShared(float* to, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    // Relaxed: a pull promises whole floats and nothing about their order.
    const auto bits =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(from + i), __ATOMIC_RELAXED);
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

struct Pages {
  std::uintptr_t begin, end;
};

// The pages that these bytes lie in, none of them twice.
std::vector<Pages> PagesOf(const std::vector<Bytes>& ranges) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  std::vector<Pages> pages;
  for (const Bytes& range : ranges) {
    if (range.size == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
    pages.push_back({begin / page * page, (begin + range.size + page - 1) / page * page});
  }
  std::sort(pages.begin(), pages.end(),
            [](const Pages& a, const Pages& b) { return a.begin < b.begin; });
  std::vector<Pages> merged;
  for (const Pages& p : pages) {
    if (!merged.empty() && p.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, p.end);
    } else {
      merged.push_back(p);
    }
  }
  return merged;
}

class DeviceStepEngine final : public StepEngine {
 public:
  DeviceStepEngine(Device& device, const StepEngineOptions& options,
                   const DeviceStepEngineHooks& hooks, StepMemory memory)
      : device_(device),
        options_(options),
        hooks_(hooks),
        updates_(options.updates && CanUpdateInStep(options)),
        memory_(std::move(memory)) {}

  ~DeviceStepEngine() override {
    // Also when every step is finished: the last operation of a launch ends after its sign.
    if (number_ == 0 || !lost_.ok()) return;
    const Status done = device_.Synchronize(Deadline::After(kTearDownLimit));
    if (done.code() == Code::kDeadlineExceeded) Abandon();
  }

  Status Prepare() {
    if (options_.arena == nullptr) RegisterArena();
    for (std::size_t i = 0; i < options_.memory.gradient_slots.size(); ++i) {
      slots_.emplace_back();
      PASSEL_ASSIGN_OR_RETURN(const StepHostMemory host, HostMemory(i));
      PASSEL_RETURN_IF_ERROR(PrepareSlot(i, host));
    }
    return {};
  }

  int max_in_flight() const override { return static_cast<int>(slots_.size()); }

  Status Start(std::span<const std::uint32_t> indices, int slot) override {
    return StartStep(indices, slot, StepKind::kGradient, 0);
  }

  bool can_update() const override { return updates_; }
  Status StartUpdate(std::span<const std::uint32_t> indices, int slot, float rate) override {
    PASSEL_CHECK(updates_, "steps that update were prepared");
    return StartStep(indices, slot, StepKind::kUpdate, rate);
  }
  LeftOut left_out() const override { return left_out_; }

  Result<BatchResult> Finish(Deadline deadline, bool* finite) override {
    PASSEL_CHECK(!under_way_.empty(), "a step is under way");
    PASSEL_RETURN_IF_ERROR(lost_);
    const Step step = under_way_.front();
    Slot& s = slots_[static_cast<std::size_t>(step.slot)];
    PASSEL_RETURN_IF_ERROR(WaitFor(s, step.number, deadline));
    under_way_.pop_front();
    if (staged_) {
      for (std::size_t i = 0; i < s.gradients.size(); ++i) {
        const auto& to = options_.memory.gradient_slots[static_cast<std::size_t>(step.slot)][i];
        if (!to.empty()) std::memcpy(to.data(), s.gradients[i], to.size_bytes());
      }
    }
    const double loss = s.line->loss;
    *finite = s.line->nonfinite == 0 && std::isfinite(loss);
    if (step.kind == StepKind::kUpdate) {
      left_out_ = {s.line->nonfinite, VariableOf(s.line->where)};
    } else if (options_.arena != nullptr && s.line->nonfinite != 0) {
      PASSEL_RETURN_IF_ERROR(ShowGradient(step.slot));
    }
    return BatchResult{
        options_.network.mean ? loss / static_cast<double>(options_.batch_size) : loss,
        static_cast<std::size_t>(s.line->correct)};
  }

  std::string Describe() const override {
    return fmt::format(
        "fused kernels{}{}, {} of {} operations, {}", DescribeLibrary(options_),
        DescribeMath(options_), options_.graph ? "one graph" : "one stream", operations_,
        options_.arena != nullptr && options_.arena->remote()
            ? "values fetched from the memory of another GPU"
        : updates_ ? fmt::format("values and gradients in the memory of the GPU; with the update "
                                 "fused into a step {} operations",
                                 update_operations_)
        : options_.arena != nullptr
            ? "values and gradients in the memory of the GPU; updates are kernels of their own"
        : staged_ ? "values and gradients copied through pinned memory"
                  : "DMA from and to the arena");
  }

 private:
  // Pinned memory and the executables of one gradient slot.
  struct Slot {
    std::vector<Device::Memory> owned;
    StepBlock* block = nullptr;
    StepReportLine* line = nullptr;
    std::vector<float*> values;     // [shard], where staged
    std::vector<float*> gradients;  // [shard], where staged
    std::unique_ptr<Device::Executable> executable;
    std::unique_ptr<Device::Executable> update;  // of StepKind::kUpdate, where that can be
  };
  struct Step {
    int slot = 0;
    std::uint64_t number = 0;
    StepKind kind = StepKind::kGradient;
  };

  Status StartStep(std::span<const std::uint32_t> indices, int slot, StepKind kind, float rate) {
    PASSEL_CHECK(indices.size() == options_.batch_size, "a batch has the size it was planned for");
    PASSEL_CHECK(slot >= 0 && slot < max_in_flight(), "a slot that was named at creation");
    PASSEL_CHECK(std::none_of(under_way_.begin(), under_way_.end(),
                              [slot](const Step& step) { return step.slot == slot; }),
                 "the step in this slot is finished");
    PASSEL_CHECK(*std::max_element(indices.begin(), indices.end()) < options_.train.rows,
                 "an index lies inside the training set");
    PASSEL_RETURN_IF_ERROR(lost_);
    Slot& s = slots_[static_cast<std::size_t>(slot)];
    s.block->number = ++number_;
    s.block->rate = rate;
    std::memcpy(reinterpret_cast<std::byte*>(s.block) + sizeof(StepBlock), indices.data(),
                indices.size_bytes());
    if (staged_) {
      for (std::size_t i = 0; i < s.values.size(); ++i) {
        const auto& values = options_.memory.shard_values[i];
        CopyShared(s.values[i], values.data(), values.size());
      }
    }
    const Status launched = device_.Launch(kind == StepKind::kUpdate ? *s.update : *s.executable);
    if (!launched.ok()) return Lose(launched);
    under_way_.push_back({slot, number_, kind});
    return {};
  }

  // The variable of `part`, which counts the parts of all variables one behind the other. Behind
  // them all, where nothing was found, it is the first.
  std::size_t VariableOf(std::uint64_t part) const {
    const auto& variables = options_.memory.variables;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (part < variables[v].size()) return v;
      part -= variables[v].size();
    }
    return 0;
  }

  // All or nothing.
  void RegisterArena() {
    std::vector<Bytes> ranges;
    for (const auto& values : options_.memory.shard_values) {
      ranges.push_back({values.data(), values.size_bytes()});
    }
    for (const auto& slot : options_.memory.gradient_slots) {
      for (const auto& part : slot) ranges.push_back({part.data(), part.size_bytes()});
    }
    for (const Pages& pages : PagesOf(ranges)) {
      auto registration =
          device_.Register(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin);
      if (!registration.ok()) {
        registrations_.clear();
        staged_ = true;
        if (hooks_.warn) {
          hooks_.warn(
              fmt::format("the memory of the arena cannot be registered with {} ({}): "
                          "values and gradients are copied once more, through pinned memory",
                          device_.info().name, registration.status().message()));
        }
        return;
      }
      registrations_.push_back(std::move(registration).value());
    }
  }

  // Shows the host a gradient that is not finite, so that it finds out where.
  Status ShowGradient(int slot) {
    const Deadline deadline = Deadline::After(kCopyLimit);  // the next step may be under way
    const auto& to = options_.memory.gradient_slots[static_cast<std::size_t>(slot)];
    for (std::size_t s = 0; s < to.size(); ++s) {
      if (to[s].empty()) continue;
      const Status read =
          options_.arena->ReadGradient(static_cast<int>(s), slot, to[s].data(), deadline);
      if (!read.ok()) return read.code() == Code::kDeadlineExceeded ? read : Lose(read);
    }
    return {};
  }

  template <typename T>
  Result<T*> Pinned(Slot& slot, std::size_t bytes) {
    PASSEL_ASSIGN_OR_RETURN(Device::Memory memory,
                            device_.AllocatePinned(std::max<std::size_t>(bytes, 1)));
    T* data = static_cast<T*>(memory.get());
    slot.owned.push_back(std::move(memory));
    return data;
  }

  // The host memory of a slot, and which of it is the slot's own.
  Result<StepHostMemory> HostMemory(std::size_t index) {
    Slot& slot = slots_[index];
    StepHostMemory host;
    PASSEL_ASSIGN_OR_RETURN(slot.block,
                            Pinned<StepBlock>(slot, StepBlockSize(options_.batch_size)));
    PASSEL_ASSIGN_OR_RETURN(slot.line, Pinned<StepReportLine>(slot, sizeof(StepReportLine)));
    host.block = slot.block;
    host.line = slot.line;
    const auto& values = options_.memory.shard_values;
    for (std::size_t s = 0; s < values.size(); ++s) {
      if (options_.arena != nullptr) {
        host.device_gradients.push_back(
            options_.arena->gradient(static_cast<int>(s), static_cast<int>(index)));
      } else if (staged_) {
        PASSEL_ASSIGN_OR_RETURN(float* in, Pinned<float>(slot, values[s].size_bytes()));
        PASSEL_ASSIGN_OR_RETURN(float* out, Pinned<float>(slot, values[s].size_bytes()));
        slot.values.push_back(in);
        slot.gradients.push_back(out);
        host.values.push_back(in);
        host.gradients.push_back(out);
      } else {
        host.values.push_back(values[s].data());
        host.gradients.push_back(options_.memory.gradient_slots[index][s].data());
      }
    }
    return host;
  }

  Status PrepareSlot(std::size_t index, const StepHostMemory& host) {
    const Plan plan = BuildStepPlan(options_, memory_, host);
    operations_ = plan.nodes().size();
    PASSEL_ASSIGN_OR_RETURN(
        slots_[index].executable,
        device_.Prepare(plan, options_.graph ? Device::How::kGraph : Device::How::kOneByOne));
    if (!updates_) return {};
    const Plan update = BuildUpdatePlan(options_, memory_, host);
    update_operations_ = update.nodes().size();
    PASSEL_ASSIGN_OR_RETURN(
        slots_[index].update,
        device_.Prepare(update, options_.graph ? Device::How::kGraph : Device::How::kOneByOne));
    return {};
  }

  Status WaitFor(const Slot& slot, std::uint64_t number, Deadline deadline) {
    const Status signed_off =
        AwaitSign(device_, &slot.line->number, number,
                  fmt::format("step {} of this worker", number), hooks_.looks_per_health, deadline);
    if (signed_off.ok() || signed_off.code() == Code::kDeadlineExceeded) return signed_off;
    return Lose(signed_off);
  }

  Status Lose(const Status& why) {
    lost_ = why;
    return lost_;
  }

  // The device may still write to all of it. The process is about to end.
  void Abandon() {
    for (Slot& slot : slots_) {
      static_cast<void>(slot.executable.release());
      static_cast<void>(slot.update.release());
      for (Device::Memory& memory : slot.owned) static_cast<void>(memory.release());
    }
    for (Device::Memory& registration : registrations_) static_cast<void>(registration.release());
    memory_.Abandon();
    if (hooks_.warn) {
      hooks_.warn(fmt::format("{} does not finish its last step: its memory is left to the driver",
                              device_.info().name));
    }
  }

  Device& device_;
  const StepEngineOptions options_;
  const DeviceStepEngineHooks hooks_;
  const bool updates_;  // there are steps of StepKind::kUpdate
  bool staged_ = false;
  std::size_t operations_ = 0, update_operations_ = 0;

  // Given back from the last to the first: executables before what they name.
  StepMemory memory_;
  std::vector<Device::Memory> registrations_;
  std::deque<Slot> slots_;

  std::deque<Step> under_way_;
  std::uint64_t number_ = 0;
  LeftOut left_out_;
  Status lost_;
};

}  // namespace

Result<std::unique_ptr<StepEngine>> CreateDeviceStepEngine(Device& device,
                                                           const StepEngineOptions& options,
                                                           const DeviceStepEngineHooks& hooks) {
  PASSEL_RETURN_IF_ERROR(ValidateStepOptions(options));
  StepEngineOptions chosen = options;
  PASSEL_RETURN_IF_ERROR(DoWithoutMissingLibrary(device, &chosen, hooks.warn));
  const std::string rounded_less = FloatThoughNotAsked(chosen);
  if (!rounded_less.empty() && hooks.warn) hooks.warn(rounded_less);
  PASSEL_ASSIGN_OR_RETURN(StepMemory memory, StepMemory::Create(device, chosen));
  auto engine = std::make_unique<DeviceStepEngine>(device, chosen, hooks, std::move(memory));
  PASSEL_RETURN_IF_ERROR(engine->Prepare());
  return std::unique_ptr<StepEngine>(std::move(engine));
}

}  // namespace passel::cuda
