// cell_json.h - a measured cell as an entry of "cells" in a results file.

#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "lab/cell.h"
#include "lab/machine.h"
#include "lab/measure.h"

namespace passel::lab {

/// "format" of every results file. Another number is another form: readers refuse it.
inline constexpr int kResultsFormat = 1;

/// What became of one cell.
struct CellRow {
  Cell cell;
  CellResult result;
  std::string not_applicable;                    ///< why nothing was measured; else empty
  std::string error;                             ///< the answer was wrong; else empty
  std::optional<OtherLoad> load = std::nullopt;  ///< while it was measured; none: nobody looked
};

/// Times are in us. Where nothing was measured only name, arguments and reason are there.
Json CellToJson(const CellRow& row);

/// "guarantees" of a results file: {"hogwild": half a sentence, ...} for every mode.
Json GuaranteesToJson();

}  // namespace passel::lab
