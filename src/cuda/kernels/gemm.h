// gemm.h - products of matrices with what comes before and after them in a layer, in one kernel.
//
//   forward             h  = relu(x w + bias)          logits = h w + bias
//   backward, inputs    dx = (dy w') where h > 0
//   backward, weights   dw = x' dy,  db = ones dy      (db: the column sums, an extra row of dw)
//   the same, updating  w -= rate x' dy,  b -= rate ones dy, each element by an atomic addition
//
// Every block makes one tile of c. It walks down k in panels: while the threads multiply one panel
// in shared memory, they fetch the next one to registers.
//
//                 n          kN                       shared memory, twice
//          +------+----+                              +--------+
//          |  op(b)    |  kK rows at a time           | a (kM, kK), rows kK + 4 apart
//          +------+----+                              | b (kK, kN), rows kN + 4 apart
//   +------+
//   |op(a) |      c tile (kM, kN), kSplits groups of threads: group s multiplies rows
//   +------+      [s kK / kSplits, (s + 1) kK / kSplits) of each panel; the groups' sums are added
//    kK at a time in the order of s
//
// A layer of 784 x 100 at batch 100 has only 10,000 sums: small tiles give work to more
// multiprocessors, and splitting k within a block gives each of them enough threads, without a
// second kernel. A block reads (kM + kN) k floats and does kM kN k multiply-adds.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/atomics.h"
#include "cuda/kernels/quad.h"

namespace passel::cuda {

/// A row-major matrix, or the transpose of one.
struct GemmOperand {
  const float* data = nullptr;
  std::size_t ld = 0;       ///< floats from row to row in memory
  bool transposed = false;  ///< element (row, col) is data[col * ld + row]
  bool quads = false;       ///< data and ld are multiples of 16 bytes
};

inline GemmOperand MakeOperand(const float* data, std::size_t ld, bool transposed) {
  return {data, ld, transposed, QuadsAllowed(data, ld)};
}

enum class GemmEpilogue : std::uint8_t {
  kNone,
  kBias,      ///< c = product + epilogue_input[col]
  kBiasRelu,  ///< the same, 0 where negative; NaN stays NaN
  kMask,      ///< c = product, but 0 where epilogue_input[row, col] <= 0
};

/// Has c += -rate (a b) and sums[col] += -rate (sum over k of b[k, col]) made in place of the plain
/// results, each element atomically at the scope of the GPU. What is not finite is not added, but
/// counted alone: values never take it.
struct GemmUpdate {
  const float* rate = nullptr;  ///< device memory; null: plain results
  bool quads = false;           ///< c and ldc are multiples of 16 bytes
  bool sums_quads = false;      ///< and sums
};

/// c = epilogue(a b); sums[col] = sum over k of b[k, col], unless it is null.
struct GemmArguments {
  std::uint32_t m = 0, n = 0, k = 0;
  GemmOperand a;       ///< (m, k)
  GemmOperand b;       ///< (k, n)
  float* c = nullptr;  ///< (m, n)
  std::size_t ldc = 0;
  float* sums = nullptr;                  ///< (n)
  const float* epilogue_input = nullptr;  ///< bias (n), or mask (m, n)
  std::size_t ld_mask = 0;
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  std::uint32_t* nonfinite = nullptr;       ///< += elements of c that are not finite; null: nobody
                                            ///< asks, unless there is an update
  std::uint32_t* sums_nonfinite = nullptr;  ///< the same of sums
  GemmUpdate update = {};                   ///< with an epilogue of kNone
};

/// What a block makes, and how its threads share the work: each thread has kRowsEach x kColsEach
/// sums of its group.
template <unsigned kM_, unsigned kN_, unsigned kK_, unsigned kRowsEach_, unsigned kColsEach_,
          unsigned kSplits_>
struct GemmTile {
  static constexpr unsigned kM = kM_, kN = kN_, kK = kK_;
  static constexpr unsigned kRowsEach = kRowsEach_, kColsEach = kColsEach_, kSplits = kSplits_;
  static constexpr unsigned kThreadsM = kM / kRowsEach, kThreadsN = kN / kColsEach;
  static constexpr unsigned kGroup = kThreadsM * kThreadsN;  // threads
  static constexpr unsigned kThreads = kGroup * kSplits;
  static constexpr unsigned kEach = kK / kSplits;  // rows of a panel for one group
  static_assert(kM % kRowsEach == 0 && kN % kColsEach == 0 && kK % kSplits == 0);
  static_assert(kGroup % 32 == 0, "a warp takes one way through Multiply()");
  static_assert(kEach % 4 == 0, "rows of a are read in quads");
};
using SmallTile = GemmTile<8, 16, 128, 2, 2, 8>;
using MediumTile = GemmTile<32, 32, 32, 4, 4, 4>;
using LargeTile = GemmTile<64, 64, 16, 4, 4, 1>;

/// kRows x kCols floats of an operand on their way through the registers of kThreads threads.
template <unsigned kRows, unsigned kCols, unsigned kThreads>
struct GemmPanel {
  static constexpr unsigned kStride = kCols + 4;  // floats; spreads rows over the banks
  static constexpr unsigned kFloats = kRows * kStride;
  static constexpr unsigned kQuads = kRows * kCols / 4 / kThreads;
  static_assert(kQuads * 4 * kThreads == kRows * kCols);
  struct Registers {
    float quad[kQuads][4];
  };

  /// This thread's part of the panel whose first element is (row0, col0); 0 outside (rows, cols),
  /// but 1 in row `ones`.
  static PASSEL_KERNEL void Fetch(const GemmOperand& from, std::uint32_t rows, std::uint32_t cols,
                                  std::uint32_t ones, std::uint32_t row0, std::uint32_t col0,
                                  unsigned thread, Registers& to) {
    PASSEL_UNROLL
    for (unsigned q = 0; q < kQuads; ++q) {
      const std::uint32_t row = row0 + Row(from.transposed, thread + q * kThreads);
      const std::uint32_t col = col0 + Col(from.transposed, thread + q * kThreads);
      if (from.transposed) {
        if (from.quads && col < cols && row + 4 <= rows) {
          LoadQuad(from.data + col * from.ld + row, to.quad[q]);
        } else {
          PASSEL_UNROLL
          for (unsigned j = 0; j < 4; ++j) {
            to.quad[q][j] = Element(from, rows, cols, ones, row + j, col);
          }
        }
      } else {
        if (from.quads && row < rows && col + 4 <= cols) {
          LoadQuad(from.data + row * from.ld + col, to.quad[q]);
        } else {
          PASSEL_UNROLL
          for (unsigned j = 0; j < 4; ++j) {
            to.quad[q][j] = Element(from, rows, cols, ones, row, col + j);
          }
        }
      }
    }
  }

  /// panel[row * kStride + col], row and col from the panel's first.
  static PASSEL_KERNEL void Store(bool transposed, unsigned thread, const Registers& from,
                                  float* panel) {
    PASSEL_UNROLL
    for (unsigned q = 0; q < kQuads; ++q) {
      const unsigned at =
          Row(transposed, thread + q * kThreads) * kStride + Col(transposed, thread + q * kThreads);
      if (transposed) {
        PASSEL_UNROLL
        for (unsigned j = 0; j < 4; ++j) panel[at + j * kStride] = from.quad[q][j];
      } else {
        StoreQuad(panel + at, from.quad[q]);
      }
    }
  }

 private:
  // Neighbouring threads read neighbouring memory. Down a transposed operand that is at most 8
  // quads, a line of 128 bytes, before the next column, so that their stores meet few bank
  // conflicts.
  static constexpr unsigned kTogether = kRows / 4 < 8 ? kRows / 4 : 8;
  static PASSEL_KERNEL unsigned Row(bool transposed, unsigned quad) {
    if (!transposed) return quad / (kCols / 4);
    return (quad / (kTogether * kCols) * kTogether + quad % kTogether) * 4;
  }
  static PASSEL_KERNEL unsigned Col(bool transposed, unsigned quad) {
    if (!transposed) return quad % (kCols / 4) * 4;
    return quad / kTogether % kCols;
  }
  static PASSEL_KERNEL float Element(const GemmOperand& from, std::uint32_t rows,
                                     std::uint32_t cols, std::uint32_t ones, std::uint32_t row,
                                     std::uint32_t col) {
    if (col >= cols) return 0;
    if (row >= rows) return row == ones ? 1.f : 0.f;
    return from.data[from.transposed ? col * from.ld + row : row * from.ld + col];
  }
};

/// kUpdates: as GemmArguments::update says.
template <typename Tile, bool kUpdates = false>
struct GemmKernel : GemmArguments {
  static constexpr unsigned kThreads = Tile::kThreads;
  using PanelA = GemmPanel<Tile::kM, Tile::kK, Tile::kThreads>;
  using PanelB = GemmPanel<Tile::kK, Tile::kN, Tile::kThreads>;
  static constexpr unsigned kHalf = PanelA::kFloats + PanelB::kFloats;
  static constexpr unsigned kPartials = Tile::kSplits * Tile::kM * Tile::kN;
  static constexpr unsigned kNoRow = 0xffffffffu;

  struct Shared {
    // Two halves of panels a and b; when they are done with, the groups' sums, (kSplits, kM, kN).
    alignas(16) float memory[2 * kHalf];
  };
  static_assert(kPartials <= 2 * kHalf || Tile::kSplits == 1);
  static_assert(sizeof(Shared) <= 48 * 1024, "more must be asked for at launch");
  struct Private {
    float sum[Tile::kRowsEach][Tile::kColsEach];
    typename PanelA::Registers a;
    typename PanelB::Registers b;
  };

  Grid grid() const { return {Blocks(Rows(), Tile::kM) * Blocks(n, Tile::kN), 1, Tile::kThreads}; }
  // 0 to panels: fetch panel `phase`, multiply the one before, store what was fetched. Then the
  // groups' sums are laid out, and added.
  PASSEL_KERNEL unsigned phases() const { return Panels() + (Tile::kSplits == 1 ? 1 : 3); }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private& mine) const {
    const unsigned panels = Panels();
    const unsigned tiles_m = (Rows() + Tile::kM - 1) / Tile::kM;
    const std::uint32_t row0 = tiles_m == 0 ? 0 : at.block_x % tiles_m * Tile::kM;
    const std::uint32_t col0 = tiles_m == 0 ? 0 : at.block_x / tiles_m * Tile::kN;
    if (phase <= panels) {
      if (phase < panels) {
        PanelA::Fetch(a, m, k, sums != nullptr ? m : kNoRow, row0, phase * Tile::kK, at.thread,
                      mine.a);
        PanelB::Fetch(b, k, n, kNoRow, phase * Tile::kK, col0, at.thread, mine.b);
      }
      if (phase == 0) {
        PASSEL_UNROLL
        for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
          PASSEL_UNROLL
          for (unsigned j = 0; j < Tile::kColsEach; ++j) mine.sum[i][j] = 0;
        }
      } else {
        Multiply(phase - 1, at.thread, shared.memory + (phase - 1) % 2 * kHalf, mine);
      }
      if (phase < panels) {
        float* half = shared.memory + phase % 2 * kHalf;
        PanelA::Store(a.transposed, at.thread, mine.a, half);
        PanelB::Store(b.transposed, at.thread, mine.b, half + PanelA::kFloats);
      }
      if constexpr (Tile::kSplits == 1) {
        if (phase != panels) return;
        PASSEL_UNROLL
        for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
          if constexpr (kUpdates) {
            static_assert(Tile::kColsEach == 4, "they are added as a quad");
            AddQuad(row0 + RowOf(at.thread, i), col0 + ColOf(at.thread, 0), mine.sum[i]);
          } else {
            PASSEL_UNROLL
            for (unsigned j = 0; j < Tile::kColsEach; ++j) {
              Write(row0 + RowOf(at.thread, i), col0 + ColOf(at.thread, j), mine.sum[i][j]);
            }
          }
        }
      }
    } else if (phase == panels + 1) {
      float* partial = shared.memory + at.thread / Tile::kGroup * (Tile::kM * Tile::kN);
      PASSEL_UNROLL
      for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
        PASSEL_UNROLL
        for (unsigned j = 0; j < Tile::kColsEach; ++j) {
          partial[RowOf(at.thread, i) * Tile::kN + ColOf(at.thread, j)] = mine.sum[i][j];
        }
      }
    } else if constexpr (kUpdates) {
      for (unsigned e = 4 * at.thread; e < Tile::kM * Tile::kN; e += 4 * Tile::kThreads) {
        float sum[4];
        LoadQuad(shared.memory + e, sum);
        PASSEL_UNROLL
        for (unsigned s = 1; s < Tile::kSplits; ++s) {
          float more[4];
          LoadQuad(shared.memory + s * Tile::kM * Tile::kN + e, more);
          PASSEL_UNROLL
          for (unsigned j = 0; j < 4; ++j) sum[j] += more[j];
        }
        AddQuad(row0 + e / Tile::kN, col0 + e % Tile::kN, sum);
      }
    } else {
      for (unsigned e = at.thread; e < Tile::kM * Tile::kN; e += Tile::kThreads) {
        float sum = shared.memory[e];
        PASSEL_UNROLL
        for (unsigned s = 1; s < Tile::kSplits; ++s) {
          sum += shared.memory[s * Tile::kM * Tile::kN + e];
        }
        Write(row0 + e / Tile::kN, col0 + e % Tile::kN, sum);
      }
    }
  }

 private:
  PASSEL_KERNEL std::uint32_t Rows() const { return m + (sums != nullptr ? 1 : 0); }
  PASSEL_KERNEL unsigned Panels() const { return (k + Tile::kK - 1) / Tile::kK; }
  // The row and column in the tile, for element (i, j) of this thread's sums.
  static PASSEL_KERNEL unsigned RowOf(unsigned thread, unsigned i) {
    return thread % Tile::kGroup / Tile::kThreadsN + i * Tile::kThreadsM;
  }
  static PASSEL_KERNEL unsigned ColOf(unsigned thread, unsigned j) {
    return thread % Tile::kGroup % Tile::kThreadsN * Tile::kColsEach + j;
  }

  PASSEL_KERNEL void Multiply(unsigned panel, unsigned thread, const float* half,
                              Private& mine) const {
    const unsigned first = thread / Tile::kGroup * Tile::kEach;
    if (panel * Tile::kK + first >= k) return;  // nothing but zeros
    const float* panel_a = half + RowOf(thread, 0) * PanelA::kStride + first;
    const float* panel_b = half + PanelA::kFloats + first * PanelB::kStride + ColOf(thread, 0);
    float sum[Tile::kRowsEach][Tile::kColsEach];  // a copy, which the panels cannot alias
    PASSEL_UNROLL
    for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
      PASSEL_UNROLL
      for (unsigned j = 0; j < Tile::kColsEach; ++j) sum[i][j] = mine.sum[i][j];
    }
    PASSEL_UNROLL
    for (unsigned at = 0; at < Tile::kEach; at += 4) {
      float rows[Tile::kRowsEach][4];
      PASSEL_UNROLL
      for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
        LoadQuad(panel_a + i * Tile::kThreadsM * PanelA::kStride + at, rows[i]);
      }
      PASSEL_UNROLL
      for (unsigned q = 0; q < 4; ++q) {
        float cols[Tile::kColsEach];
        if constexpr (Tile::kColsEach == 4) {
          LoadQuad(panel_b + (at + q) * PanelB::kStride, cols);
        } else {
          PASSEL_UNROLL
          for (unsigned j = 0; j < Tile::kColsEach; ++j) {
            cols[j] = panel_b[(at + q) * PanelB::kStride + j];
          }
        }
        PASSEL_UNROLL
        for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
          PASSEL_UNROLL
          for (unsigned j = 0; j < Tile::kColsEach; ++j) {
            sum[i][j] = FusedMultiplyAdd(rows[i][q], cols[j], sum[i][j]);
          }
        }
      }
    }
    PASSEL_UNROLL
    for (unsigned i = 0; i < Tile::kRowsEach; ++i) {
      PASSEL_UNROLL
      for (unsigned j = 0; j < Tile::kColsEach; ++j) mine.sum[i][j] = sum[i][j];
    }
  }

  PASSEL_KERNEL void Write(std::uint32_t row, std::uint32_t col, float value) const {
    if (col >= n) return;
    if (row >= m) {
      if (row != m || sums == nullptr) return;
      sums[col] = value;
      CountNonFinite(sums_nonfinite, value);
      return;
    }
    switch (epilogue) {
      case GemmEpilogue::kNone:
        break;
      case GemmEpilogue::kBias:
        value += epilogue_input[col];
        break;
      case GemmEpilogue::kBiasRelu:
        value += epilogue_input[col];
        value = value < 0 ? 0.f : value;
        break;
      case GemmEpilogue::kMask:
        value = epilogue_input[row * ld_mask + col] <= 0 ? 0.f : value;
        break;
    }
    c[row * ldc + col] = value;
    CountNonFinite(nonfinite, value);
  }
  static PASSEL_KERNEL void CountNonFinite(std::uint32_t* counter, float value) {
    if (counter != nullptr && !IsFinite(value)) CountAtomically(counter, 1);
  }

  // Elements (row, col) to (row, col + 3) of the result, as an update. `col` is a multiple of 4.
  PASSEL_KERNEL void AddQuad(std::uint32_t row, std::uint32_t col,
                             const float (&product)[4]) const {
    if (col >= n || row >= Rows()) return;
    const bool of_c = row < m;
    const float rate = *update.rate;
    const unsigned count = n - col < 4 ? n - col : 4;
    float difference[4];
    std::uint32_t left_out = 0;
    PASSEL_UNROLL
    for (unsigned j = 0; j < 4; ++j) {
      difference[j] = -(rate * product[j]);
      left_out += j < count && !IsFinite(difference[j]) ? 1 : 0;
    }
    float* const to = of_c ? c + row * ldc + col : sums + col;
    if (left_out == 0 && count == 4 && (of_c ? update.quads : update.sums_quads)) {
      AddFourAtomically<Scope::kGpu>(to, difference);
      return;
    }
    PASSEL_UNROLL
    for (unsigned j = 0; j < 4; ++j) {
      if (j < count && IsFinite(difference[j])) AddAtomically<Scope::kGpu>(to + j, difference[j]);
    }
    if (left_out != 0) CountAtomically(of_c ? nonfinite : sums_nonfinite, left_out);
  }
};

using SmallGemm = GemmKernel<SmallTile>;
using MediumGemm = GemmKernel<MediumTile>;
using LargeTileGemm = GemmKernel<LargeTile>;
using SmallGemmUpdate = GemmKernel<SmallTile, true>;
using MediumGemmUpdate = GemmKernel<MediumTile, true>;
using LargeTileGemmUpdate = GemmKernel<LargeTile, true>;

}  // namespace passel::cuda
