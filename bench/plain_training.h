// plain_training.h - one worker's training step as one would write it down without a framework:
// the yardstick for what src/nn, src/compute and src/optim make of it.

#pragma once

#include <cstddef>
#include <cstdint>

namespace passel::bench {

/// An MLP inputs-hidden-classes with ReLU, softmax, mean cross-entropy and Adam(0.001). Matrix
/// products by OpenBLAS, everything else one plain loop each, compiled for this very machine.
/// Threads    One at a time.
class PlainTraining {
 public:
  /// `images`: (examples, inputs) bytes; `labels`: (examples). Both outlive this.
  PlainTraining(const std::uint8_t* images, const std::uint8_t* labels, std::size_t inputs,
                std::size_t hidden, std::size_t classes, std::size_t batch);
  PlainTraining(const PlainTraining&) = delete;
  PlainTraining& operator=(const PlainTraining&) = delete;
  ~PlainTraining();

  /// Copies the first values: w1 (inputs, hidden), b1 (hidden), w2 (hidden, classes), b2 (classes).
  void SetValues(const float* w1, const float* b1, const float* w2, const float* b2);
  /// One step on the examples indices[0, batch).
  void Step(const std::uint32_t* indices);
  /// (inputs, hidden), after the steps so far.
  const float* w1() const;

 private:
  struct Buffers;
  Buffers* buffers_;
};

}  // namespace passel::bench
