// model_helpers.h - parameters, gradients and pictures for the tests of the models.

#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "compute/cpu_backend.h"
#include "nn/model.h"
#include "support/reference_network.h"

namespace passel {

inline std::unique_ptr<Backend> MakeBackend(CpuBackendOptions options = {}) {
  Result<std::unique_ptr<Backend>> backend = CreateCpuBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  return std::move(backend).value();
}

inline std::unique_ptr<Model> MakeModel(const ModelConfig& config, Backend& backend,
                                        std::size_t max_batch) {
  Result<std::unique_ptr<Model>> model = Model::Create(config, backend, max_batch);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return std::move(model).value();
}

inline ModelConfig SmallConfig(std::vector<std::size_t> hidden, std::size_t inputs,
                               std::size_t classes) {
  ModelConfig config = DefaultModelConfig(hidden.empty() ? ModelKind::kSoftmax : ModelKind::kMlp);
  config.inputs = inputs;
  config.classes = classes;
  config.hidden = std::move(hidden);
  config.seed = 42;
  return config;
}

/// Values of all variables, each split by rows into parts of its own memory, with guard floats
/// before and after every part.
class PartedValues {
 public:
  static constexpr float kGuard = -777.f;
  static constexpr std::size_t kGuards = 16;  // keeps parts 64-byte apart

  /// `parts` pieces per variable, as equal as they can be (some empty when it has fewer rows).
  PartedValues(const std::vector<VariableSpec>& specs, std::size_t parts) {
    for (const VariableSpec& spec : specs) {
      auto& pieces = memory_.emplace_back();
      auto& views = views_.emplace_back();
      auto& const_views = const_views_.emplace_back();
      for (std::size_t p = 0; p < parts; ++p) {
        const std::size_t first = spec.rows() * p / parts;
        const std::size_t rows = spec.rows() * (p + 1) / parts - first;
        pieces.push_back(
            std::make_unique<std::vector<float>>(rows * spec.cols() + 2 * kGuards, kGuard));
        float* data = pieces.back()->data() + kGuards;
        views.push_back({data, first, rows});
        const_views.push_back({data, first, rows});
      }
      cols_.push_back(spec.cols());
    }
  }

  float& at(std::size_t variable, std::size_t element) {
    const std::size_t row = element / cols_[variable];
    for (const MutableRowPart& part : views_[variable]) {
      if (row < part.first_row + part.rows) {
        return part.data[element - part.first_row * cols_[variable]];
      }
    }
    ADD_FAILURE() << "no element " << element;
    return views_[0][0].data[0];
  }
  std::vector<float> Flat(std::size_t variable) const {
    std::vector<float> all;
    for (const MutableRowPart& part : views_[variable]) {
      all.insert(all.end(), part.data, part.data + part.rows * cols_[variable]);
    }
    return all;
  }
  bool GuardsAreIntact() const {
    for (const auto& pieces : memory_) {
      for (const auto& piece : pieces) {
        for (std::size_t i = 0; i < kGuards; ++i) {
          if ((*piece)[i] != kGuard || (*piece)[piece->size() - 1 - i] != kGuard) return false;
        }
      }
    }
    return true;
  }
  /// Of all variables, for ReferenceStep().
  std::vector<std::vector<double>> Doubles() const {
    std::vector<std::vector<double>> all;
    for (std::size_t v = 0; v < views_.size(); ++v) {
      const std::vector<float> flat = Flat(v);
      all.emplace_back(flat.begin(), flat.end());
    }
    return all;
  }
  std::size_t variables() const { return views_.size(); }
  ParameterParts params() const { return const_views_; }
  GradientParts gradients() const { return views_; }

 private:
  std::vector<std::vector<std::unique_ptr<std::vector<float>>>> memory_;
  std::vector<std::vector<MutableRowPart>> views_;
  std::vector<std::vector<RowPart>> const_views_;
  std::vector<std::size_t> cols_;
};

inline void FillWithFirstValues(const ModelConfig& config, PartedValues& values) {
  const std::vector<VariableSpec> specs = ModelVariables(config);
  for (std::size_t v = 0; v < specs.size(); ++v) {
    std::vector<float> all(specs[v].elements());
    InitializeVariable(config, v, 0, all);
    for (std::size_t e = 0; e < all.size(); ++e) values.at(v, e) = all[e];
  }
}

/// Pictures of noise with random labels.
struct Pictures {
  Pictures(std::size_t rows, std::size_t inputs, std::size_t classes, std::uint64_t seed)
      : pixels(rows * inputs), labels(rows) {
    Random random(seed);
    for (auto& p : pixels) p = static_cast<std::uint8_t>(random.Below(256));
    for (auto& l : labels) l = static_cast<std::uint8_t>(random.Below(classes));
  }
  Examples examples() const { return {pixels.data(), labels.data(), labels.size()}; }
  std::vector<std::uint8_t> pixels, labels;
};

/// The same model for ReferenceStep().
inline NetworkShape ShapeOf(const ModelConfig& config) {
  NetworkShape shape;
  std::size_t width = config.inputs;
  for (const std::size_t hidden : config.hidden) {
    shape.layers.push_back({width, hidden});
    width = hidden;
  }
  shape.layers.push_back({width, config.classes});
  shape.clip = config.clip;
  shape.mean = config.loss == LossReduction::kMean;
  return shape;
}

inline std::vector<std::uint32_t> FirstIndices(std::size_t n) {
  std::vector<std::uint32_t> indices(n);
  for (std::size_t i = 0; i < n; ++i) indices[i] = static_cast<std::uint32_t>(i);
  return indices;
}

}  // namespace passel
