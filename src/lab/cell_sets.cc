#include "lab/cell_sets.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace passel::lab {
namespace {

constexpr std::size_t kMlp = 79510;  // 784-100-10
constexpr std::size_t kSizes[] = {16, 1000, kMlp, 1'000'000, 16'000'000, 64'000'000};
constexpr std::size_t kSizesOnRequest = 1;  // of them, the last

using Sharings = std::initializer_list<Sharing>;

// Without those that are there already or make no sense on so many cores.
class Set {
 public:
  explicit Set(int cores) : cores_(cores) {}

  void Add(const Cell& cell) {
    if (!CheckCell(cell, cores_).ok()) return;
    if (std::find(cells_.begin(), cells_.end(), cell) == cells_.end()) cells_.push_back(cell);
  }
  std::vector<Cell> Take() { return std::move(cells_); }

 private:
  const int cores_;
  std::vector<Cell> cells_;
};

Cell Push(Sharing sharing, int writers, std::size_t elements = kMlp) {
  Cell cell;
  cell.op = sharing.in_rounds() ? CellOp::kRound : CellOp::kPush;
  cell.sharing = sharing;
  cell.writers = writers;
  cell.elements = elements;
  return cell;
}

// 1, 2, ..., cores.
std::vector<int> WriterCounts(int cores) {
  std::vector<int> counts;
  for (int n = 1; n <= cores; n = n < 4 ? n + 1 : 2 * n) counts.push_back(n);
  if (counts.back() != cores) counts.push_back(cores);
  return counts;
}

}  // namespace

std::vector<Cell> QuickCells(int cores) {
  Set set(cores);
  for (const Sharing sharing : kSharings) {
    for (const int writers : {1, 2, cores}) {
      // One writer waits for nobody: a round of one is a push with a mean of one.
      if (writers == 1 && sharing != Mode::kHogwild && sharing != Mode::kLocked) continue;
      set.Add(Push(sharing, writers));
    }
  }
  const int two = std::min(2, cores);
  for (const Sharing sharing : Sharings{Mode::kHogwild, Mode::kLocked, Mode::kBarrier}) {
    for (const std::size_t elements : {16, 1000, 1'000'000}) set.Add(Push(sharing, two, elements));
  }
  for (const Sharing sharing : Sharings{Mode::kHogwild, Foil::kMutex}) {
    Cell cell = Push(sharing, two);
    cell.rate_per_second = 5000;
    set.Add(cell);
  }
  return set.Take();
}

std::vector<Cell> FullCells(int cores) {
  Set set(cores);
  for (const Cell& cell : QuickCells(cores)) set.Add(cell);
  const int two = std::min(2, cores);
  // Size.
  for (const Sharing sharing : kSharings) {
    for (auto size = std::begin(kSizes); size != std::end(kSizes) - kSizesOnRequest; ++size) {
      set.Add(Push(sharing, two, *size));
    }
  }
  // Writers.
  for (const Sharing sharing : kSharings) {
    for (const int writers : WriterCounts(cores)) {
      if (writers > 1 || !sharing.in_rounds()) set.Add(Push(sharing, writers));
    }
    Cell crowd = Push(sharing, kWritersPerCore * cores);
    crowd.placement = Placement::kFree;
    set.Add(crowd);
  }
  // Optimizer.
  for (const CellOptimizer& optimizer : kCellOptimizers) {
    for (const Sharing sharing :
         Sharings{Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Foil::kNaive}) {
      for (const int writers : {1, two}) {
        Cell cell = Push(sharing, writers);
        cell.optimizer = optimizer.kind;
        if (writers == two || sharing == Mode::kHogwild) set.Add(cell);
      }
    }
  }
  // With a pull that copies.
  for (const Sharing sharing : kSharings) {
    for (const std::size_t elements : {kMlp, std::size_t{1'000'000}}) {
      Cell cell = Push(sharing, two, elements);
      cell.op = CellOp::kPushPull;
      set.Add(cell);
    }
  }
  // Placement.
  for (const Sharing sharing :
       Sharings{Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Foil::kMutex}) {
    for (const Placement placement : {Placement::kFree, Placement::kOne}) {
      Cell cell = Push(sharing, two);
      cell.placement = placement;
      set.Add(cell);
    }
  }
  // Pages.
  for (const Sharing sharing : Sharings{Mode::kHogwild, Mode::kLocked, Mode::kBarrier}) {
    for (const std::size_t elements : {std::size_t{1'000'000}, std::size_t{16'000'000}}) {
      Cell cell = Push(sharing, two, elements);
      cell.pages = CellPages::kHuge;
      set.Add(cell);
    }
  }
  // Open loops.
  for (const Sharing sharing :
       Sharings{Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Foil::kMutex}) {
    for (const double rate : {1000.0, 5000.0}) {
      Cell cell = Push(sharing, two);
      cell.rate_per_second = rate;
      set.Add(cell);
    }
  }
  return set.Take();
}

std::vector<Cell> AllCells(int cores) {
  std::vector<Cell> all;  // no two are equal: Set would look for that
  std::vector<int> counts = WriterCounts(cores);
  counts.push_back(kWritersPerCore * cores);
  for (const Sharing sharing : kSharings) {
    for (const CellOp op : {CellOp::kPush, CellOp::kPushPull, CellOp::kRound}) {
      if ((op == CellOp::kRound) != sharing.in_rounds()) continue;
      for (const CellOptimizer& optimizer : kCellOptimizers) {
        for (const std::size_t elements : kSizes) {
          for (const int writers : counts) {
            for (const Placement placement : {Placement::kFree, Placement::kOwn, Placement::kOne}) {
              for (const CellPages pages : {CellPages::k4k, CellPages::kHuge}) {
                const Cell cell{op,      sharing,   optimizer.kind, elements,
                                writers, placement, pages,          0};
                if (CheckCell(cell, cores).ok()) all.push_back(cell);
              }
            }
          }
        }
      }
    }
  }
  return all;
}

std::vector<Cell> SmokeCells(int cores) {
  Set set(cores);
  for (const Sharing sharing : kSharings) set.Add(Push(sharing, std::min(2, cores), 1000));
  Cell pull = Push(Mode::kLocked, 1, 1000);
  pull.op = CellOp::kPushPull;
  set.Add(pull);
  Cell open = Push(Mode::kHogwild, 1, 1000);
  open.rate_per_second = 5000;
  set.Add(open);
  return set.Take();
}

}  // namespace passel::lab
