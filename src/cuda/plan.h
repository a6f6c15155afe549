// plan.h - a fixed list of operations on fixed addresses, and which must wait for which.
//
// A Plan is built once, for one training step, and is run many times: as a CUDA graph, operation by
// operation on one stream, or by the FakeDevice of the tests, in any order that its edges allow.
// Edges are not written by hand: each operation says what it reads and writes, and waits for those
// before it that touch the same bytes (read after write, write after read, write after write).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cuda/kernels.h"

namespace passel::cuda {

/// Bytes that an operation touches.
struct Bytes {
  const void* begin = nullptr;
  std::size_t size = 0;
};

struct Copy {
  enum class Kind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };
  Kind kind = Kind::kDeviceToDevice;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// A product too large for our own kernels, for cuBLASLt: c = op(a) op(b) with an epilogue.
/// All row-major float32.
struct LargeGemm {
  enum class Epilogue : std::uint8_t { kNone, kBias, kBiasRelu };
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;  ///< (n)
  Epilogue epilogue = Epilogue::kNone;
};

using Operation = std::variant<Copy, LargeGemm, AnyKernel>;

struct Node {
  std::string name;  ///< for errors and profiles: "forward 1"
  Operation operation;
  std::vector<Bytes> reads;
  std::vector<Bytes> writes;
  std::vector<int> after;  ///< nodes with smaller numbers; transitive edges are left out
};

class Plan {
 public:
  /// Appends an operation. Returns its number.
  int Add(std::string name, Operation operation, std::vector<Bytes> reads,
          std::vector<Bytes> writes);
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::vector<Node> nodes_;
};

}  // namespace passel::cuda
