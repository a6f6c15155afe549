// npy.h - the header of an array in NumPy's npy format, versions 1.0, 2.0 and 3.0.
//
//   "\x93NUMPY" | u8 major | u8 minor | header length, little-endian: u16 (1.0) or u32 (later)
//   {'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }     padded, ends with \n
//   the elements
//
// Only the part of Python's syntax that NumPy itself writes is understood: this one dictionary,
// with these three keys in any order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/idx.h"

namespace passel {

struct NpyHeader {
  std::string descr;        ///< as written: "|u1", "<i8", ...
  char byte_order = '|';    ///< '<', '>' or '|' ('=' was resolved)
  char kind = 'u';          ///< 'u' unsigned, 'i' signed, 'f', 'b', ...
  std::uint32_t width = 1;  ///< bytes per element
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;  ///< (d0, d1, ...); empty for a single number
  std::uint64_t header_bytes = 0;    ///< everything before the elements
};

/// "(60000, 28, 28)"
std::string NpyShapeText(const std::vector<std::uint64_t>& shape);

/// Reads the header and not one byte more. `name` is put into every error.
/// Errors: kDataLoss for a file that is cut off; kInvalidArgument for one that is no npy file, of
/// another version, or with a header that NumPy would not write.
Result<NpyHeader> ReadNpyHeader(ByteSource& source, const std::string& name);

/// The dictionary alone (descr, byte order, kind, width, order and shape). For ReadNpyHeader() and
/// tests.
Result<NpyHeader> ParseNpyDictionary(std::string_view text, const std::string& name);

}  // namespace passel
