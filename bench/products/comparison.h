// comparison.h - what all libraries reached on all products, and what follows.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/products/fma_peak.h"
#include "bench/products/shapes.h"

namespace passel::bench {

/// Of one library, one product, warm or cold: microseconds of each turn. Empty: the library has no
/// such product.
using Times = std::vector<double>;

struct Cell {
  Shape shape;
  bool cold = false;
  std::vector<double> peak;  ///< GF/s of each turn, measured between the libraries
  std::vector<Times> of;     ///< of each library, in the order of Comparison::libraries
};

/// Of the cells that a library has: how near the peak, how near the fastest.
struct Summary {
  double logs = 0, logs_of_best = 0, least_of_best = 1;
  std::string least_name;
  int cells = 0, as_good = 0;
};

struct Comparison {
  VectorSet set = VectorSet::kBaseline;
  std::vector<std::string> libraries, kernels;
  std::vector<std::pair<std::string, std::string>> missing;  ///< name, why
  std::string passels;                                       ///< what passel uses on this processor
  std::optional<std::size_t> chosen;  ///< that one of `libraries`; nothing where it is missing
  std::vector<Cell> cells;

  /// Best time over best peak of the same turns: 1 is every multiplier busy all the time. Nothing
  /// where the library has no such product.
  std::optional<double> Share(const Cell& cell, std::size_t library) const;
  double BestShare(const Cell& cell) const;  ///< of all libraries
  /// Of batches of 100 and more, or of smaller ones.
  Summary Summarize(bool cold, bool large, std::size_t library) const;
  std::string ToTable() const;
  Json ToJson() const;
};

}  // namespace passel::bench
