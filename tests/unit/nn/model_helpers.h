// model_helpers.h - parameters, gradients and pictures for the tests of the models, and the same
// models once more in double precision, written for clarity alone.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "compute/cpu_backend.h"
#include "nn/model.h"

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

/// The loss of a batch in double precision, from its definition. `values` per variable.
inline double ReferenceLoss(const ModelConfig& config,
                            const std::vector<std::vector<double>>& values,
                            const Pictures& pictures, const std::vector<std::uint32_t>& indices) {
  double loss = 0;
  for (const std::uint32_t index : indices) {
    std::vector<double> x(config.inputs);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<double>(static_cast<float>(pictures.pixels[index * config.inputs + i]) *
                                 (1.f / 255));
    }
    for (std::size_t layer = 0; layer <= config.hidden.size(); ++layer) {
      const bool last = layer == config.hidden.size();
      std::vector<double> y = values[2 * layer + 1];
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (std::size_t j = 0; j < y.size(); ++j) {
          y[j] += x[i] * values[2 * layer][i * y.size() + j];
        }
      }
      for (double& v : y) v = last ? v : std::max(v, 0.0);
      x = y;
    }
    const double largest = *std::max_element(x.begin(), x.end());
    double z = 0;
    for (const double v : x) z += std::exp(v - largest);
    const double log_p = x[pictures.labels[index]] - largest - std::log(z);
    loss -= config.clip ? std::max(log_p, std::log(1e-10)) : log_p;
  }
  return config.loss == LossReduction::kMean ? loss / static_cast<double>(indices.size()) : loss;
}

inline std::vector<std::uint32_t> FirstIndices(std::size_t n) {
  std::vector<std::uint32_t> indices(n);
  for (std::size_t i = 0; i < n; ++i) indices[i] = static_cast<std::uint32_t>(i);
  return indices;
}

}  // namespace passel
