// step_engine.h - loss and gradient of whole batches, computed somewhere else than by the caller.
//
// A StepEngine holds the training images and a copy of the parameters where it computes (a GPU).
// One step is: copy the values in, gather the batch, forward, loss, backward, copy the gradient
// out. The caller keeps values and gradients in host memory that was named once, at creation, so
// that a step is a fixed list of operations on fixed addresses:
//
//   shard_values[s]   ──copy──►  mirror[s]  ─► layers ─►  gradient mirror[s]  ──copy──► slots[k][s]
//   (host, changing)             (engine)                  (engine)                   (host)
//
// With the parameters in an arena on the device a step may also make the update of plain SGD, in
// the products that would give its gradient: StartUpdate().
//
// Threads    One thread at a time.
// Errors     Returned, never thrown. After kUnavailable or kInternal the engine is lost: the task
//            ends and is started again; nothing recovers a GPU context.
// Waits      Only Finish() and the destructor block; Finish() never beyond its deadline.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "compute/backend.h"
#include "compute/row_parts.h"

namespace passel {

/// Dense layers, ReLU between them, softmax cross-entropy behind the last.
struct NetworkShape {
  struct Layer {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
  };
  std::vector<Layer> layers;  ///< at least one; the outputs of one are the inputs of the next
  bool clip = true;           ///< CrossEntropyOptions::clip
  bool mean = false;          ///< loss and gradient are divided by the size of the batch
};

/// Where each variable lies. Variable 2 l is the weights of layer l, (inputs, outputs), and 2 l + 1
/// its bias, (outputs).
struct NetworkMemory {
  struct Part {
    int shard = 0;
    std::size_t offset = 0;  ///< floats from the shard's first
    std::size_t first_row = 0;
    std::size_t rows = 0;
  };
  std::vector<std::vector<Part>> variables;  ///< [2 layers], each by first_row and complete

  /// Values of each shard: shard_floats[s] of them, padding included. Others change them while they
  /// are copied; a float is never torn.
  std::vector<std::span<const float>> shard_values;
  /// Memory for gradients, [slots][shards], each as long as the values. A step writes all of one
  /// slot; what lies between variables becomes 0. Its pages, and the values', are registered with
  /// the driver for as long as there is an engine.
  std::vector<std::vector<std::span<float>>> gradient_slots;
};

class DeviceArena;  // compute/device_arena.h

/// How GEMMs of the device's library treat their float32 operands.
enum class MathMode : std::uint8_t { kFloat32, kTf32, kBfloat16 };

struct StepEngineOptions {
  NetworkShape network;
  NetworkMemory memory;
  /// Not null: steps read the values of this arena, of the same accelerator, and leave gradients in
  /// its slots; those of `memory` get the gradients that are not finite, and nothing else.
  /// REQUIRES: the same shards and slots as `memory`.
  DeviceArena* arena = nullptr;
  /// Prepare for StartUpdate() too, where that can be.
  bool updates = false;
  Examples train;              ///< host memory; copied in once
  std::size_t batch_size = 0;  ///< of every step
  MathMode math = MathMode::kFloat32;
  /// false: no product is the device's library's, as where it is missing.
  bool library = true;
  /// false: each operation is queued by itself, for comparison and for debugging.
  bool graph = true;
};

/// What a step that updates left out, since it was not finite: values never take that.
struct LeftOut {
  std::uint64_t elements = 0;
  std::size_t variable = 0;  ///< the first of them is in this one, of NetworkMemory::variables
};

class StepEngine {
 public:
  virtual ~StepEngine() = default;
  StepEngine() = default;
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  /// Steps that may be started and not finished: as many as there are gradient slots.
  virtual int max_in_flight() const = 0;

  /// Queues one step on the values as they are when it runs, with the gradient into `slot`. Copies
  /// `indices`. REQUIRES: batch_size indices below train.rows; fewer than max_in_flight() steps
  /// under way, none of them into this slot.
  virtual Status Start(std::span<const std::uint32_t> indices, int slot) = 0;

  /// True if steps can make the update themselves: the arena is on the device, and for workers on
  /// it alone, `updates` was asked for, and our own kernels compute all layers. Optional; by
  /// default they cannot.
  virtual bool can_update() const { return false; }
  /// As Start(), but the step adds -rate times its gradient to the values of the arena, each
  /// element atomically, and leaves no gradient: plain SGD, beside any number of others who do the
  /// same. Nothing is added for a loss that is not finite. REQUIRES: can_update(); as Start().
  virtual Status StartUpdate(std::span<const std::uint32_t> indices, int slot, float rate) {
    static_cast<void>(indices), static_cast<void>(slot), static_cast<void>(rate);
    return FailedPrecondition("this engine makes no updates");
  }
  /// What the step that Finish() returned last left out, if it was one of StartUpdate().
  virtual LeftOut left_out() const { return {}; }

  /// Waits for the oldest step. After OK its gradient is in its slot (memory order: acquire), here
  /// or in the arena; or its update is in the values, for every process.
  /// `*finite` is false if an element of the gradient or the loss is NaN or infinite.
  /// Errors: kDeadlineExceeded (call again); kUnavailable, kInternal from the device, with the
  /// operation named.
  virtual Result<BatchResult> Finish(Deadline deadline, bool* finite) = 0;

  /// For a log line: how it computes ("fused kernels, one graph of 11 nodes, DMA from the arena").
  virtual std::string Describe() const = 0;
};

}  // namespace passel
