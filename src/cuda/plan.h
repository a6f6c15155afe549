// plan.h - a fixed list of operations on fixed addresses, and which must wait for which.
//
// A Plan is built once, for one training step, and is run many times: as a CUDA graph, operation by
// operation on one stream, or by the FakeDevice of the tests, in any order that its edges allow.
// Edges are not written by hand: each operation says what it reads and writes, and waits for those
// before it that touch the same bytes (read after write, write after read, write after write).
// Large products also wait for each other: they share the library's workspace.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compute/step_engine.h"
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
/// All row-major float32; op(a) is (m, k), op(b) is (k, n), and ld* counts floats from row to row
/// of what lies in memory.
struct LargeGemm {
  /// What the library does with the product on its way out.
  enum class Epilogue : std::uint8_t {
    kNone,
    kBias,      ///< c = product + bias
    kBiasRelu,  ///< the same, 0 where negative
  };
  bool transpose_a = false;  ///< true: a is (k, m) in memory
  bool transpose_b = false;  ///< true: b is (n, k) in memory
  std::size_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::size_t lda = 0;
  const float* b = nullptr;
  std::size_t ldb = 0;
  float* c = nullptr;
  std::size_t ldc = 0;
  const float* bias = nullptr;  ///< (n)
  Epilogue epilogue = Epilogue::kNone;
  MathMode math = MathMode::kFloat32;

  bool has_bias() const { return epilogue != Epilogue::kNone; }
};

/// As cuBLASLt calls it: "DEFAULT", "RELU_BIAS".
std::string_view EpilogueName(LargeGemm::Epilogue epilogue);

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
  /// True if `node` waits for `earlier`, directly or through others.
  bool Waits(int node, int earlier) const;

 private:
  std::vector<Node> nodes_;
  std::vector<std::vector<bool>> waits_;  // [node][earlier node]
};

}  // namespace passel::cuda
