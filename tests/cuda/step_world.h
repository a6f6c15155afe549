// step_world.h - a small training job around a StepEngine: images, values, gradient slots; and what
// comes of its steps.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/random.h"
#include "compute/step_engine.h"
#include "cuda/exact_buffer.h"
#include "support/reference_network.h"

namespace passel::cuda {

/// Where the variables lie.
enum class Placement {
  kOneShard,      ///< one behind the other, padded to 64 bytes
  kRoundRobin,    ///< variable v in shard v mod 2
  kSplit,         ///< weights and biases by rows over three shards
  kSplitWeights,  ///< the same, but biases whole, in one of the three each
};

class StepWorld {
 public:
  StepWorld(std::vector<std::size_t> widths, std::size_t batch, Placement placement,
            std::uint64_t seed, int slots = 3, std::size_t examples = 50)
      : random_(seed), pixels_(examples * widths.front()), labels_(examples) {
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
      options.network.layers.push_back({widths[l], widths[l + 1]});
    }
    options.batch_size = batch;
    for (auto& p : pixels_) p = static_cast<std::uint8_t>(random_.Below(256));
    for (auto& label : labels_) label = static_cast<std::uint8_t>(random_.Below(widths.back()));
    options.train = {pixels_.data(), labels_.data(), examples};
    Place(placement);
    for (const std::size_t floats : shard_floats_) {
      options.memory.shard_values.emplace_back(NewPages(floats), floats);
    }
    for (int k = 0; k < slots; ++k) {
      auto& slot = options.memory.gradient_slots.emplace_back();
      for (const std::size_t floats : shard_floats_) slot.emplace_back(NewPages(floats), floats);
    }
    RandomValues();
  }

  std::span<float> values(std::size_t shard) {
    const auto& s = options.memory.shard_values[shard];
    return {const_cast<float*>(s.data()), s.size()};
  }
  std::vector<std::uint32_t> RandomBatch() {
    std::vector<std::uint32_t> indices(options.batch_size);
    for (auto& i : indices) i = static_cast<std::uint32_t>(random_.Below(options.train.rows));
    return indices;
  }
  /// Values as after initialisation, biases too; padding is 0.
  void RandomValues() {
    for (std::size_t s = 0; s < shard_floats_.size(); ++s) {
      for (float& v : values(s)) v = 0;
    }
    for (std::size_t v = 0; v < options.memory.variables.size(); ++v) {
      const double deviation = 1 / std::sqrt(static_cast<double>(Layer(v).inputs));
      for (const auto& part : options.memory.variables[v]) {
        for (std::size_t i = 0; i < part.rows * Cols(v); ++i) {
          values(static_cast<std::size_t>(part.shard))[part.offset + i] =
              static_cast<float>(random_.Normal() * deviation);
        }
      }
    }
  }
  /// NaN everywhere.
  void PoisonSlot(int slot) {
    for (const auto& part : options.memory.gradient_slots[static_cast<std::size_t>(slot)]) {
      for (float& x : part) x = kNan;
    }
  }
  std::vector<std::vector<float>> Slot(int slot) const {
    std::vector<std::vector<float>> floats;
    for (const auto& part : options.memory.gradient_slots[static_cast<std::size_t>(slot)]) {
      floats.emplace_back(part.begin(), part.end());
    }
    return floats;
  }
  /// Variables put together from their parts in these shards.
  template <typename Shards>
  std::vector<std::vector<double>> Variables(const Shards& shards) const {
    std::vector<std::vector<double>> variables;
    for (std::size_t v = 0; v < options.memory.variables.size(); ++v) {
      auto& variable = variables.emplace_back();
      for (const auto& part : options.memory.variables[v]) {
        const auto& shard = shards[static_cast<std::size_t>(part.shard)];
        for (std::size_t i = 0; i < part.rows * Cols(v); ++i) {
          variable.push_back(static_cast<double>(shard[part.offset + i]));
        }
      }
    }
    return variables;
  }
  std::vector<std::vector<double>> Variables() const {
    return Variables(options.memory.shard_values);
  }
  ReferenceResult Reference(const std::vector<std::uint32_t>& indices) const {
    return ReferenceStep(options.network, Variables(), options.train, indices);
  }
  /// Floats of the slot that belong to no variable.
  std::vector<float> Padding(int slot) const {
    auto floats = Slot(slot);
    for (std::size_t v = 0; v < options.memory.variables.size(); ++v) {
      for (const auto& part : options.memory.variables[v]) {
        for (std::size_t i = 0; i < part.rows * Cols(v); ++i) {
          floats[static_cast<std::size_t>(part.shard)][part.offset + i] = 0;
        }
      }
    }
    std::vector<float> all;
    for (const auto& shard : floats) all.insert(all.end(), shard.begin(), shard.end());
    return all;
  }

  StepEngineOptions options;

 private:
  const NetworkShape::Layer& Layer(std::size_t variable) const {
    return options.network.layers[variable / 2];
  }
  std::size_t Rows(std::size_t v) const { return v % 2 == 0 ? Layer(v).inputs : Layer(v).outputs; }
  std::size_t Cols(std::size_t v) const { return v % 2 == 0 ? Layer(v).outputs : 1; }

  void Place(Placement placement) {
    const std::size_t shards = placement == Placement::kOneShard     ? 1
                               : placement == Placement::kRoundRobin ? 2
                                                                     : 3;
    shard_floats_.resize(shards);
    for (std::size_t v = 0; v < 2 * options.network.layers.size(); ++v) {
      auto& parts = options.memory.variables.emplace_back();
      const bool split =
          placement == Placement::kSplit || (placement == Placement::kSplitWeights && v % 2 == 0);
      const std::size_t pieces = split ? shards : 1;
      std::size_t first = 0;
      for (std::size_t p = 0; p < pieces; ++p) {
        const std::size_t rows = Rows(v) / pieces + (p < Rows(v) % pieces ? 1 : 0);
        const std::size_t s = pieces == 1 ? v % shards : p;
        parts.push_back({static_cast<int>(s), shard_floats_[s], first, rows});
        first += rows;
        shard_floats_[s] = (shard_floats_[s] + rows * Cols(v) + 15) / 16 * 16;
      }
    }
  }
  float* NewPages(std::size_t floats) {
    const std::size_t bytes = (floats * sizeof(float) + 4095) / 4096 * 4096 + 4096;
    void* memory = nullptr;
    if (posix_memalign(&memory, 4096, bytes) != 0) std::abort();
    pages_.emplace_back(memory);
    return static_cast<float*>(memory) + 16;  // not on the first byte of a page
  }
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  Random random_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
  std::vector<std::size_t> shard_floats_;
  std::vector<std::unique_ptr<void, Free>> pages_;
};

/// For whatever takes milliseconds unless something is broken.
inline Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

struct Outcome {
  double loss = 0;
  std::size_t correct = 0;
  bool finite = false;
  std::vector<std::vector<float>> gradient;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

inline Outcome FinishStep(StepEngine& engine, const StepWorld& world, int slot) {
  Outcome outcome;
  auto result = engine.Finish(Soon(), &outcome.finite);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return outcome;
  outcome.loss = result->loss;
  outcome.correct = result->correct;
  outcome.gradient = world.Slot(slot);
  return outcome;
}

inline Outcome RunStep(StepEngine& engine, const StepWorld& world,
                       const std::vector<std::uint32_t>& indices, int slot) {
  const Status started = engine.Start(indices, slot);
  EXPECT_TRUE(started.ok()) << started.message();
  return FinishStep(engine, world, slot);
}

inline void ExpectNear(const StepWorld& world, const Outcome& outcome,
                       const ReferenceResult& wanted, double tolerance = 1e-5) {
  EXPECT_TRUE(outcome.finite);
  EXPECT_EQ(outcome.correct, wanted.correct);
  EXPECT_NEAR(outcome.loss, wanted.loss, 1e-5 * std::abs(wanted.loss) + 1e-6);
  const auto got = world.Variables(outcome.gradient);
  for (std::size_t v = 0; v < got.size(); ++v) {
    EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), tolerance) << "variable " << v;
  }
}

}  // namespace passel::cuda
