// csv.h - MNIST, or a set like it, as comma-separated text: one example per line,
// "label,p0,p1,...,p783". The first line says how many pixels an image has; all have as many.
//
// All values are unsigned decimal integers from 0 to 255, without blanks, signs or quotes. A first
// line whose first column is "label" is a header and skipped. Lines end with \n or \r\n; the last
// one may end with the file. Empty lines are refused.
//
// A file is read twice, each time from front to back through one buffer, which is small where lines
// are: once to measure it, so that the memory for the examples can be allocated, and once to read
// it.
//
// Errors     One sentence that begins with "file:line: ". kInvalidArgument for anything that is no
//            such text; kFailedPrecondition for a file that changed between counting and reading.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/idx.h"

namespace passel {

struct CsvShape {
  std::uint32_t count = 0;  ///< examples
  std::size_t pixels = 0;   ///< of each
};

/// How often ReadCsv() reports progress, in examples.
inline constexpr std::uint32_t kCsvProgressEvery = 10'000;

/// Gets the name of the file and the examples read so far.
using CsvProgress = std::function<void(const std::string& name, std::uint32_t examples)>;

/// Counts the examples in `source`, but no more than `limit` (0: all of them), and the columns of
/// the first line. Looks at the length of the others and reads only those that are too short or too
/// long to be right, so that memory for this many examples is never more than the file could fill.
/// Errors: also kInvalidArgument for a file without examples or with too many.
Result<CsvShape> MeasureCsv(ByteSource& source, const std::string& name, std::uint64_t limit = 0);

/// Reads the first labels.size() examples of `source`; what comes after them is not looked at
/// unless `to_the_end`, when there must be nothing.
/// On error `images` and `labels` hold something.
/// REQUIRES: images.size() is a multiple, at least 1, of labels.size(), which is not 0.
Status ReadCsv(ByteSource& source, const std::string& name, bool to_the_end,
               std::span<std::byte> images, std::span<std::byte> labels,
               const CsvProgress& on_progress = {});

/// Opens a training and a test file, which are read through once to measure them.
Result<MeasuredData> OpenCsvFiles(const std::vector<std::string>& paths,
                                  const DataOptions& options);

/// Reads the first example of both.
Status CheckCsvFiles(const std::vector<std::string>& paths);

}  // namespace passel
