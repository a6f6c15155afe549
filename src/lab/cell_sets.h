// cell_sets.h - which cells are worth a run.

#pragma once

#include <vector>

#include "lab/cell.h"

namespace passel::lab {

/// What a person asks first: every mode at the size of an MLP with 1, 2 and `cores` writers, and
/// the latency against the size for the main modes. Some 20.
std::vector<Cell> QuickCells(int cores);

/// What a person would ask next: about 120.
std::vector<Cell> FullCells(int cores);

/// The full product: every op, mode, optimizer, size (64 million floats too), number of writers,
/// placement and kind of pages that make sense together, in closed loops. Thousands.
std::vector<Cell> AllCells(int cores);

/// One of each mode, tiny.
std::vector<Cell> SmokeCells(int cores);

}  // namespace passel::lab
