// step_plan.h - the operations of one training step, and the device memory that they work on.
//
//   host                     device
//   step block   ──copy──►   step block ──► gather ──► inputs[0] ──► forward 0 .. L-1 ──► logits
//   values       ──copy──►   variables  ───────────────────────────────┴─────────┐          │
//   gradient     ◄──copy──   gradients  ◄── backward L-1 .. 0 ◄── deltas ◄── cross-entropy ◄┘
//   report line  ◄──report── parts of the loss, counters of what is not finite
//
// With an arena in device memory (StepEngineOptions::arena) the values are read where they are,
// unless a variable lies there in parts or the arena is another GPU's (DeviceArena::remote()): then
// they are copied first. Gradients stay in the arena's slots. Or the step
// makes the update of plain SGD itself (StepEngineOptions::updates):
//
//   step block, loss ──► gate ──► rate ──► backward L-1 .. 0 ── add -rate x' dy ──► values
//
// without a gradient anywhere. Layer by layer: who reads the values of one (forward, backward to
// its inputs, a copy) is done before they are added to.
//
// Memcpy operations read host memory when they run, so a step block may be written again only after
// the report line holds the step's number: every gradient slot has a step block, a report line and
// a plan of its own. Device memory is shared by all of them, since launches run one after another.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compute/step_engine.h"
#include "cuda/device.h"
#include "cuda/plan.h"

namespace passel::cuda {

/// What the host tells a step: this header, then uint32 indices[batch].
struct alignas(64) StepBlock {
  std::uint64_t number = 0;  ///< of the step, from 1; comes back in StepReportLine::number
  float rate = 0;            ///< learning rate, of a step that updates
};
static_assert(sizeof(StepBlock) == 64);

/// In bytes.
inline std::size_t StepBlockSize(std::size_t batch) {
  return sizeof(StepBlock) + batch * sizeof(std::uint32_t);
}

/// Host memory of one plan, all of it pinned or registered.
struct StepHostMemory {
  const StepBlock* block = nullptr;
  std::vector<const float*> values;  ///< [shard]
  std::vector<float*> gradients;     ///< [shard]
  /// [shard], where an arena in device memory takes the gradients; then `values` and `gradients`
  /// are empty. A step that updates needs none of the three.
  std::vector<float*> device_gradients;
  StepReportLine* line = nullptr;
};

/// OK if a StepEngine can compute this. Errors: kInvalidArgument for sizes beyond the limits and
/// for a label outside the classes. Parts that do not cover their variable, or that lie outside
/// their shard, are a bug of the caller and stop the program.
Status ValidateStepOptions(const StepEngineOptions& options);

/// Everything that the steps of an engine need on the device.
class StepMemory {
 public:
  /// Copies the data set in. REQUIRES: ValidateStepOptions(options).ok().
  /// Errors: kResourceExhausted and others, from the device.
  static Result<StepMemory> Create(Device& device, const StepEngineOptions& options);

  /// Gives nothing back, ever: for a device that does not come to an end.
  void Abandon();

 private:
  friend class StepPlanBuilder;
  StepMemory() = default;
  template <typename T>
  Result<T*> Allocate(Device& device, std::size_t count);

  // A copy of values from the host, or from an arena on the device: `floats` of them, from `offset`
  // of the shard's first.
  struct ValueCopy {
    int shard = 0;
    std::size_t offset = 0;
    float* to = nullptr;
    std::size_t floats = 0;
  };
  Status PlaceValues(Device& device, const StepEngineOptions& options);

  std::vector<Device::Memory> owned_;

  std::uint8_t* pixels_ = nullptr;       // (rows, inputs)
  std::uint8_t* labels_ = nullptr;       // (rows)
  std::byte* block_ = nullptr;           // StepBlockSize(batch)
  std::vector<const float*> variables_;  // each whole and contiguous; maybe an arena's own
  std::vector<ValueCopy> value_copies_;  // that fill them
  std::vector<float*>
      gradients_;  // [shard] or, with an arena, empty; like the shard, zero between variables
  std::vector<float*> activations_;       // [layer]: its input (batch, inputs); last the logits
  std::vector<float*> deltas_;            // [layer]: gradient of its input, from layer 1
  std::uint8_t* batch_labels_ = nullptr;  // (batch)
  LossPart* loss_parts_ = nullptr;
  std::uint32_t loss_part_count_ = 0;
  // Elements of the gradient that are not finite: a counter for each part of each variable, in
  // their order. 0 between two steps.
  std::uint32_t* nonfinite_ = nullptr;
  std::uint32_t nonfinite_count_ = 0;
  float* rate_ = nullptr;  // what the gate lets through; null unless steps update
};

/// True if steps can make the update as well: the values are in an arena on the device, which
/// workers on other GPUs do not use, and our own kernels compute all layers.
bool CanUpdateInStep(const StepEngineOptions& options);

enum class StepKind {
  kGradient,  ///< leaves its gradient
  kUpdate,    ///< adds -rate times it to the values
};

/// One step. `memory` and what `host` names must outlive every run of the plan.
Plan BuildStepPlan(const StepEngineOptions& options, const StepMemory& memory,
                   const StepHostMemory& host);

/// One that updates. REQUIRES: CanUpdateInStep(options), options.updates.
Plan BuildUpdatePlan(const StepEngineOptions& options, const StepMemory& memory,
                     const StepHostMemory& host);

}  // namespace passel::cuda
