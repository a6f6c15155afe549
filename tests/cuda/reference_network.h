// reference_network.h - loss and gradient of a network, in double precision, by the plainest loops.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/step_engine.h"

namespace passel::cuda {

struct ReferenceResult {
  double loss = 0;
  std::size_t correct = 0;
  std::vector<std::vector<double>> gradients;  // [variable]
};

/// `variables[v]`: all of variable v, row-major.
inline ReferenceResult ReferenceStep(const NetworkShape& network,
                                     const std::vector<std::vector<double>>& variables,
                                     const Examples& train,
                                     const std::vector<std::uint32_t>& indices) {
  const auto& layers = network.layers;
  const std::size_t batch = indices.size();
  const double scale = network.mean ? 1.0 / static_cast<double>(batch) : 1.0;
  ReferenceResult result;
  for (const auto& v : variables) result.gradients.emplace_back(v.size());
  for (const std::uint32_t index : indices) {
    std::vector<std::vector<double>> x(1);
    for (std::size_t i = 0; i < layers[0].inputs; ++i) {
      x[0].push_back(train.pixels[index * layers[0].inputs + i] / 255.0);
    }
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::vector<double> y(layers[l].outputs);
      for (std::size_t j = 0; j < y.size(); ++j) {
        y[j] = variables[2 * l + 1][j];
        for (std::size_t i = 0; i < layers[l].inputs; ++i) {
          y[j] += x[l][i] * variables[2 * l][i * layers[l].outputs + j];
        }
        if (l + 1 < layers.size() && y[j] < 0) y[j] = 0;
      }
      x.push_back(y);
    }
    const std::vector<double>& logits = x.back();
    const std::size_t label = train.labels[index];
    std::size_t best = 0;
    for (std::size_t j = 1; j < logits.size(); ++j) {
      if (logits[j] > logits[best]) best = j;
    }
    result.correct += best == label ? 1 : 0;
    double sum = 0;
    for (const double y : logits) sum += std::exp(y - logits[best]);
    const double log_p = logits[label] - logits[best] - std::log(sum);
    const double clip = static_cast<double>(kProbabilityClip);
    const bool clipped = network.clip && std::exp(log_p) < clip;
    result.loss -= clipped ? std::log(clip) : log_p;
    std::vector<double> d(logits.size());
    for (std::size_t j = 0; j < d.size() && !clipped; ++j) {
      d[j] = (std::exp(logits[j] - logits[best]) / sum - (j == label ? 1 : 0)) * scale;
    }
    for (std::size_t l = layers.size(); l-- > 0;) {
      std::vector<double> dx(layers[l].inputs);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        for (std::size_t j = 0; j < d.size(); ++j) {
          result.gradients[2 * l][i * d.size() + j] += x[l][i] * d[j];
          if (x[l][i] > 0) dx[i] += d[j] * variables[2 * l][i * d.size() + j];
        }
      }
      for (std::size_t j = 0; j < d.size(); ++j) result.gradients[2 * l + 1][j] += d[j];
      d = dx;
    }
  }
  result.loss *= scale;
  return result;
}

}  // namespace passel::cuda
