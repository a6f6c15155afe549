// row_parts.h - a variable that lies in several pieces of memory, by rows.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace passel {

/// Rows [first_row, first_row + rows) of a variable, contiguous and row-major in backend memory. A
/// row of a bias is one float. T: float or const float.
template <typename T>
struct BasicRowPart {
  T* data = nullptr;
  std::size_t first_row = 0;
  std::size_t rows = 0;
};
using RowPart = BasicRowPart<const float>;
using MutableRowPart = BasicRowPart<float>;

/// For each variable of ModelVariables(), in that order, its parts, which follow one another and
/// cover it. Parameters and gradients may be split differently.
using ParameterParts = std::span<const std::vector<RowPart>>;
using GradientParts = std::span<const std::vector<MutableRowPart>>;

struct BatchResult {
  double loss = 0;          ///< sum or mean, as configured
  std::size_t correct = 0;  ///< examples whose first largest logit is their class
};

}  // namespace passel
