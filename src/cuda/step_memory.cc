// Where everything of a step lies: the first half of step_plan.h.

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "compute/device_arena.h"
#include "cuda/kernels.h"
#include "cuda/layer_products.h"
#include "cuda/step_layout.h"
#include "cuda/step_plan.h"

namespace passel::cuda {
namespace {

constexpr std::size_t kMostBatch = std::size_t{1} << 24;
constexpr std::size_t kMostWidth = std::size_t{1} << 24;

std::size_t Rows(const StepEngineOptions& options, std::size_t variable) {
  const NetworkShape::Layer& layer = options.network.layers[variable / 2];
  return variable % 2 == 0 ? layer.inputs : layer.outputs;
}
std::size_t Cols(const StepEngineOptions& options, std::size_t variable) {
  return variable % 2 == 0 ? options.network.layers[variable / 2].outputs : 1;
}

// Variables are cut into parts, some of which may be empty: this one is not.
bool HasRows(const NetworkMemory::Part& part) { return part.rows != 0; }

void CheckMemory(const StepEngineOptions& options) {
  const NetworkMemory& memory = options.memory;
  PASSEL_CHECK(memory.variables.size() == 2 * options.network.layers.size(),
               "every layer has weights and a bias");
  PASSEL_CHECK(!memory.gradient_slots.empty(), "a gradient needs a slot");
  PASSEL_CHECK(
      options.arena == nullptr ||
          memory.gradient_slots.size() <= static_cast<std::size_t>(options.arena->gradient_slots()),
      "every slot has its place in the arena");
  for (const auto& slot : memory.gradient_slots) {
    PASSEL_CHECK(slot.size() == memory.shard_values.size(), "a slot has a part for each shard");
    for (std::size_t s = 0; s < slot.size(); ++s) {
      PASSEL_CHECK(slot[s].size() == memory.shard_values[s].size(),
                   "a gradient is as long as its values");
    }
  }
  for (std::size_t v = 0; v < memory.variables.size(); ++v) {
    std::size_t next = 0;
    for (const NetworkMemory::Part& part : memory.variables[v]) {
      PASSEL_CHECK(part.first_row == next, "the parts of a variable follow one another");
      PASSEL_CHECK(static_cast<std::size_t>(part.shard) < memory.shard_values.size(),
                   "a part lies in a shard that exists");
      const std::size_t end = part.offset + part.rows * Cols(options, v);
      PASSEL_CHECK(end <= memory.shard_values[static_cast<std::size_t>(part.shard)].size(),
                   "a part lies inside its shard");
      next += part.rows;
    }
    PASSEL_CHECK(next == Rows(options, v), "the parts of a variable cover it");
  }
}

}  // namespace

Status ValidateStepOptions(const StepEngineOptions& options) {
  const auto& layers = options.network.layers;
  PASSEL_CHECK(!layers.empty(), "a network has a layer");
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t width = std::max(layers[l].inputs, layers[l].outputs);
    if (layers[l].inputs < 1 || layers[l].outputs < 1 || width > kMostWidth) {
      return InvalidArgument(
          fmt::format("layer {} has {} inputs and {} outputs: a GPU computes 1 to {} of each", l,
                      layers[l].inputs, layers[l].outputs, kMostWidth));
    }
    PASSEL_CHECK(l == 0 || layers[l].inputs == layers[l - 1].outputs,
                 "the outputs of a layer are the inputs of the next");
  }
  const std::size_t classes = layers.back().outputs;
  if (classes > CrossEntropyKernel::kMostClasses) {
    return InvalidArgument(
        fmt::format("the model has {} classes: labels are one byte, so at most {}", classes,
                    CrossEntropyKernel::kMostClasses));
  }
  if (options.batch_size < 1 || options.batch_size > kMostBatch) {
    return InvalidArgument(fmt::format("the batch size is {}: on a GPU it must be from 1 to {}",
                                       options.batch_size, kMostBatch));
  }
  if (options.train.rows < 1 || options.train.rows > std::numeric_limits<std::uint32_t>::max()) {
    return InvalidArgument(fmt::format("the training set has {} images: a GPU takes 1 to {}",
                                       options.train.rows,
                                       std::numeric_limits<std::uint32_t>::max()));
  }
  const std::uint8_t* labels = options.train.labels;
  const std::uint8_t* largest = std::max_element(labels, labels + options.train.rows);
  if (*largest >= classes) {
    return InvalidArgument(
        fmt::format("training image {} has label {}: the model has {} classes, 0 to {}",
                    largest - labels, *largest, classes, classes - 1));
  }
  CheckMemory(options);
  return {};
}

bool CanUpdateInStep(const StepEngineOptions& options) {
  if (options.arena == nullptr || options.arena->several_gpus()) return false;
  for (std::size_t l = 0; l < options.network.layers.size(); ++l) {
    if (LibraryComputes(options, l)) return false;
  }
  return true;
}

template <typename T>
Result<T*> StepMemory::Allocate(Device& device, std::size_t count) {
  const std::size_t bytes = std::max<std::size_t>(count, 1) * sizeof(T);
  PASSEL_ASSIGN_OR_RETURN(Device::Memory memory, device.Allocate(bytes));
  T* data = static_cast<T*>(memory.get());
  owned_.push_back(std::move(memory));
  return data;
}

// A whole variable lies where it lies in a copy of its shard, so that all whole variables of a
// shard come in one copy, with the padding between them. A variable in several parts has memory of
// its own, where its parts are put together.
Status StepMemory::PlaceValues(Device& device, const StepEngineOptions& options) {
  const NetworkMemory& memory = options.memory;
  struct Piece {
    std::size_t offset, floats;
    float* to;
    bool whole;
  };
  std::vector<std::vector<Piece>> pieces(memory.shard_values.size());
  std::vector<const float*> images(memory.shard_values.size());  // where a shard's variables lie
  // What another GPU holds is not read over and over: a step has its copy, as of host memory.
  if (options.arena != nullptr && !options.arena->remote()) {
    for (std::size_t s = 0; s < images.size(); ++s) {
      images[s] = options.arena->values(static_cast<int>(s));
    }
  }
  std::vector<float*> copies(images.size());  // of these, those that are filled before each step
  for (std::size_t v = 0; v < memory.variables.size(); ++v) {
    const auto& parts = memory.variables[v];
    const std::size_t cols = Cols(options, v);
    const bool whole = std::count_if(parts.begin(), parts.end(), HasRows) == 1;
    float* own = nullptr;
    const float* found = nullptr;
    if (!whole) {
      PASSEL_ASSIGN_OR_RETURN(own, Allocate<float>(device, Rows(options, v) * cols));
    }
    for (const NetworkMemory::Part& part : parts) {
      if (part.rows == 0) continue;
      const auto s = static_cast<std::size_t>(part.shard);
      if (whole && images[s] == nullptr) {
        PASSEL_ASSIGN_OR_RETURN(copies[s], Allocate<float>(device, memory.shard_values[s].size()));
        images[s] = copies[s];
      }
      if (whole) found = images[s] + part.offset;
      if (whole && copies[s] == nullptr) continue;  // read in place
      float* to = whole ? copies[s] + part.offset : own + part.first_row * cols;
      pieces[s].push_back({part.offset, part.rows * cols, to, whole});
    }
    variables_.push_back(whole ? found : own);
  }
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    std::sort(pieces[s].begin(), pieces[s].end(),
              [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
    bool last_whole = false;
    for (const Piece& piece : pieces[s]) {
      if (last_whole && piece.whole) {
        ValueCopy& run = value_copies_.back();
        run.floats = piece.offset + piece.floats - run.offset;
      } else {
        value_copies_.push_back({static_cast<int>(s), piece.offset, piece.to, piece.floats});
      }
      last_whole = piece.whole;
    }
  }
  return {};
}

Result<StepMemory> StepMemory::Create(Device& device, const StepEngineOptions& options) {
  StepMemory memory;
  const auto& layers = options.network.layers;
  const std::size_t batch = options.batch_size;
  const std::size_t pixels = options.train.rows * layers.front().inputs;
  PASSEL_ASSIGN_OR_RETURN(memory.pixels_, memory.Allocate<std::uint8_t>(device, pixels));
  PASSEL_ASSIGN_OR_RETURN(memory.labels_,
                          memory.Allocate<std::uint8_t>(device, options.train.rows));
  PASSEL_ASSIGN_OR_RETURN(memory.block_, memory.Allocate<std::byte>(device, StepBlockSize(batch)));
  PASSEL_RETURN_IF_ERROR(memory.PlaceValues(device, options));
  for (const auto& values : options.memory.shard_values) {
    if (options.arena == nullptr) {
      PASSEL_ASSIGN_OR_RETURN(float* gradient, memory.Allocate<float>(device, values.size()));
      memory.gradients_.push_back(gradient);
    }
  }
  for (const auto& parts : options.memory.variables) {
    memory.nonfinite_count_ += static_cast<std::uint32_t>(parts.size());
  }
  for (std::size_t l = 0; l <= layers.size(); ++l) {
    const std::size_t width = l < layers.size() ? layers[l].inputs : layers.back().outputs;
    const std::size_t floats = StridedFloats(batch, width);
    PASSEL_ASSIGN_OR_RETURN(float* activation, memory.Allocate<float>(device, floats));
    memory.activations_.push_back(activation);
    float* delta = nullptr;
    if (l > 0 && l < layers.size()) {
      PASSEL_ASSIGN_OR_RETURN(delta, memory.Allocate<float>(device, floats));
    }
    memory.deltas_.push_back(delta);
  }
  memory.loss_part_count_ = Blocks(batch, CrossEntropyKernel::kRows);
  PASSEL_ASSIGN_OR_RETURN(memory.batch_labels_, memory.Allocate<std::uint8_t>(device, batch));
  PASSEL_ASSIGN_OR_RETURN(memory.loss_parts_,
                          memory.Allocate<LossPart>(device, memory.loss_part_count_));
  PASSEL_ASSIGN_OR_RETURN(memory.nonfinite_,
                          memory.Allocate<std::uint32_t>(device, memory.nonfinite_count_));
  if (options.updates && CanUpdateInStep(options)) {
    PASSEL_ASSIGN_OR_RETURN(memory.rate_, memory.Allocate<float>(device, 1));
  }
  PASSEL_RETURN_IF_ERROR(device.CopyIn(memory.pixels_, options.train.pixels, pixels));
  PASSEL_RETURN_IF_ERROR(device.CopyIn(memory.labels_, options.train.labels, options.train.rows));
  return memory;
}

void StepMemory::Abandon() {
  for (Device::Memory& memory : owned_) static_cast<void>(memory.release());
}

}  // namespace passel::cuda
