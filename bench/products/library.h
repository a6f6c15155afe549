// library.h - a library that multiplies matrices, opened while the program runs: none of them is
// needed to build it.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/products/fma_peak.h"
#include "compute/product.h"

namespace passel::bench {

/// Which library, and what it is told before it is opened.
struct LibraryChoice {
  std::string name;  ///< of the column
  enum class Kind { kOpenBlas, kBlis, kOneDnn, kLibxsmm } kind = Kind::kOpenBlas;
  std::vector<std::pair<std::string, std::string>> variables;  ///< of the environment
  bool in_pieces = false;   ///< SmallPieces() of compute/product.h
  bool is_passels = false;  ///< what tools/passel/process_start.cc and src/compute take here
};

/// Variables of the environment that choose kernels: those of whoever calls are ignored.
const std::vector<const char*>& KernelVariables();

/// Everything worth comparing on vectors of `set`; exactly one is passel's. `told`: each library is
/// told to use no wider ones, whatever the processor has, and OpenBLAS's own choice, which would
/// not be its own then, is left out; REQUIRES: `set` is kAvx2.
std::vector<LibraryChoice> LibraryChoices(VectorSet set, bool told);

struct Library {
  std::string kernels;                      ///< which it says it runs here
  std::function<bool(const Product&)> can;  ///< whether it has this product
  std::function<void(const Product&)> multiply;
};

/// Opens it in this process, which must not have opened another one. Looks in `folder` and its
/// folders as bench/peers/setup lays them out, then where the loader looks. Errors: kNotFound.
Result<Library> OpenLibrary(const LibraryChoice& choice, const std::string& folder);

}  // namespace passel::bench
