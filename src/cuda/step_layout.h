// step_layout.h - how the matrices of a step lie in device memory.

#pragma once

#include <cstddef>

namespace passel::cuda {

/// Floats from one row of an activation to the next: rows start on 32-byte sectors.
inline std::size_t ActivationStride(std::size_t cols) { return (cols + 7) / 8 * 8; }

/// From the first float of such a matrix to behind its last.
inline std::size_t StridedFloats(std::size_t rows, std::size_t cols) {
  return rows == 0 ? 0 : (rows - 1) * ActivationStride(cols) + cols;
}

}  // namespace passel::cuda
