// cell.h - one cell of the laboratory: which update, by how many, where, and how often.
//
// A cell's name says all of it, as in
//   BM_Cell/op:push/mode:hogwild/opt:adam/elems:79510/writers:2/place:own/pages:4k
//   BM_Cell/op:push/mode:locked/opt:sgd/elems:1000/writers:4/place:free/pages:4k/loop:open/rate:2000

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "optim/optimizer.h"
#include "store/mode.h"
#include "store/store_plan.h"

namespace passel::lab {

/// What one sample is.
enum class CellOp {
  kPush,      ///< a pull as a view, then Push and Wait: the gradient in its slot is applied
  kPushPull,  ///< the same with a pull that copies
  kRound,     ///< as kPush, and Wait returns when the round is complete
};

/// What one would write instead of a mode of the product.
enum class Foil {
  kNone,    ///< the product
  kNaive,   ///< everyone sweeps elements 0..P-1, no claims
  kAtomic,  ///< the same, each float changed by a relaxed compare-and-swap
  kMutex,   ///< one lock around the variable
};

/// How pushes of several writers come together: in a mode of the product, or as a foil does it.
struct Sharing {
  /// `replicas` counts all writers, `ssp` has the default bound. The arena of a foil is made for
  /// kHogwild, whose words it does not use.
  Mode mode = Mode::kHogwild;
  Foil foil = Foil::kNone;

  constexpr Sharing() = default;
  constexpr Sharing(Mode m) : mode(m) {}  // NOLINT: a mode is a way to share
  constexpr Sharing(Foil f) : foil(f) {}  // NOLINT

  /// Waits for the other writers each time: one operation is one round.
  constexpr bool in_rounds() const { return IsRoundMode(mode); }
  constexpr const ModeTraits& traits() const { return TraitsOf(mode); }
  constexpr bool is_foil() const { return foil != Foil::kNone; }
  friend constexpr bool operator==(const Sharing&, const Sharing&) = default;
};

/// All there are, the product's modes first.
inline constexpr auto kSharings = [] {
  constexpr Foil kFoils[] = {Foil::kNaive, Foil::kAtomic, Foil::kMutex};
  std::array<Sharing, std::size(kModes) + std::size(kFoils)> all;
  for (std::size_t m = 0; m < std::size(kModes); ++m) all[m] = static_cast<Mode>(m);
  std::ranges::copy(kFoils, all.begin() + std::size(kModes));
  return all;
}();

enum class Placement {
  kFree,  ///< the scheduler decides
  kOwn,   ///< one core each
  kOne,   ///< all on the first usable core
};

enum class CellPages { k4k, kHuge };

/// An optimizer of cells, and how its updates are counted: with the gradient -1 and a learning rate
/// of 1, each adds 1 to the value or to slot 0.
struct CellOptimizer {
  OptimizerKind kind;
  bool counts_in_slot;  ///< adds up in slot 0, not in the value
  float slots[2];       ///< where that gradient keeps a slot, or from where it counts
};
inline constexpr CellOptimizer kCellOptimizers[] = {
    {OptimizerKind::kSgd, false, {}},
    {OptimizerKind::kAdam, false, {-1, 1}},  // the moments of a gradient that is always -1
    {OptimizerKind::kAdagrad, true, {1}},
    {OptimizerKind::kFtrl, true, {1, 0}},
};
/// Null for an optimizer that cells do not have.
const CellOptimizer* CellOptimizerOf(OptimizerKind kind);
const CellOptimizer* CellOptimizerOf(std::string_view name);
std::vector<std::string_view> CellOptimizerNames();

struct Cell {
  CellOp op = CellOp::kPush;
  Sharing sharing;
  OptimizerKind optimizer = OptimizerKind::kAdam;  ///< one of kCellOptimizers
  std::size_t elements = 79510;                    ///< of the one variable
  int writers = 1;                                 ///< processes
  Placement placement = Placement::kOwn;
  CellPages pages = CellPages::k4k;
  /// 0: closed loop, each writer begins an operation when the last one has ended. Else open loop:
  /// each writer means to begin so many a second, and a latency counts from when it meant to.
  double rate_per_second = 0;

  friend bool operator==(const Cell&, const Cell&) = default;
};

inline constexpr std::size_t kMaxCellElements = std::size_t{1} << 30;
/// Limits of an open loop's rate. A run has at least five operations: nobody waits for any that are
/// more than seconds apart.
inline constexpr double kMinCellRate = 1, kMaxCellRate = 1e7;
/// Workers that are told to share the cores evenly gain nothing from being more.
inline constexpr int kWritersPerCore = 2;

std::string_view CellOpName(CellOp op);
/// ModeName(), or "naive", "atomic", "mutex".
std::string_view SharingName(Sharing sharing);
std::string_view PlacementName(Placement placement);
std::string_view CellPagesName(CellPages pages);

/// True if no update may be lost; a lost one is a wrong answer then.
bool LosesNothing(const Cell& cell);

std::string CellName(const Cell& cell);
/// The reverse. Errors: kInvalidArgument, naming what is wrong with `name`.
Result<Cell> ParseCellName(std::string_view name);

/// Whether the cell makes sense on so many cores. Errors: kInvalidArgument with the limit, the
/// value and the fix.
Status CheckCell(const Cell& cell, int usable_cores);

/// Memory that measuring it takes: the arena, and the private memory of the writers' limit.
std::size_t CellBytes(const Cell& cell);
/// Errors: kResourceExhausted with the need and what is free.
Status CheckCellMemory(const Cell& cell);

/// Hyper-parameters with which the sums of a cell can be known in advance; the instructions that
/// are executed are those of any others.
Result<StorePlan> CellPlan(const Cell& cell);

}  // namespace passel::lab
