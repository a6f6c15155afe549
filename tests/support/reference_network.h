// reference_network.h - loss and gradient of a network, in double precision, by the plainest loops.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/step_engine.h"

namespace passel {

/// Softmax cross-entropy of one example.
struct ReferenceExample {
  double loss = 0;
  bool hit = false;       // the label is the first largest logit
  bool vanished = false;  // the label's probability is below kProbabilityClip
  std::vector<double> probabilities;
  std::vector<double> gradient;  // dL/dlogits
};

inline ReferenceExample ReferenceCrossEntropy(const std::vector<double>& logits, std::size_t label,
                                              bool clip) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double y : logits) sum += std::exp(y - *largest);
  ReferenceExample e;
  for (const double y : logits) e.probabilities.push_back(std::exp(y - *largest) / sum);
  const double log_p = logits[label] - *largest - std::log(sum);
  const double floor = static_cast<double>(kProbabilityClip);
  e.hit = largest == logits.begin() + static_cast<std::ptrdiff_t>(label);
  e.vanished = std::exp(log_p) < floor;
  const bool clipped = clip && e.vanished;
  e.loss = clipped ? -std::log(floor) : -log_p;
  e.gradient = clipped ? std::vector<double>(logits.size()) : e.probabilities;
  if (!clipped) e.gradient[label] -= 1;
  return e;
}

struct ReferenceResult {
  double loss = 0;
  std::size_t correct = 0;
  std::size_t vanished = 0;                        // examples, whatever the network's clip
  std::vector<std::vector<double>> gradients;      // [variable]
  std::vector<std::vector<double>> probabilities;  // [example of the batch]
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
    const ReferenceExample e = ReferenceCrossEntropy(x.back(), train.labels[index], network.clip);
    result.loss += e.loss * scale;
    result.correct += e.hit ? 1 : 0;
    result.vanished += e.vanished ? 1 : 0;
    result.probabilities.push_back(e.probabilities);
    std::vector<double> d = e.gradient;
    for (double& v : d) v *= scale;
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
  return result;
}

}  // namespace passel
