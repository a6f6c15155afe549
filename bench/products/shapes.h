// shapes.h - the products of a training step, for models from 10 to 4,096 wide.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "compute/product.h"

namespace passel::bench {

/// One product of a layer of `inputs` x `outputs` weights at a batch.
struct Shape {
  enum class Role { kForward, kWeights, kInputs } role = Role::kForward;
  std::size_t inputs = 0, outputs = 0, batch = 0;

  /// Without pointers. Leading dimensions are those of src/nn: rows of activations start on cache
  /// lines, those of weights follow one another.
  Product ToProduct() const;
  double Flops() const;      ///< additions and multiplications
  std::string Name() const;  ///< "784-100 b100 forward"
};

/// All of them; tiny: three that take microseconds.
std::vector<Shape> Shapes(bool tiny);

}  // namespace passel::bench
