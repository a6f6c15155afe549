// advice.h - which way to share was fastest here, in one sentence.

#pragma once

#include <string>
#include <vector>

#include "lab/cell.h"
#include "lab/measure.h"

namespace passel::lab {

struct MeasuredCell {
  Cell cell;
  CellResult result;
};

/// The difference of the shares of the limit's updates below which nothing is said: half of what
/// the runs of each spread over, added up, and at least 3 % of the larger one.
double Noise(const CellResult& a, const CellResult& b);

/// One sentence about the product's modes among the cells of so many writers: the fastest of those
/// that apply each gradient, with its share of the limit; which cannot be told apart from it; what
/// each guarantees; and what a round takes, which does less work and is no rival therefore. Says so
/// where little or nothing was measured.
std::string Advise(const std::vector<MeasuredCell>& cells, int writers);

}  // namespace passel::lab
