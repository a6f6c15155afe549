#include "compute/matrix_kernels.h"

#include <cblas.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "base/cpu_isa.h"
#include "compute/cpu_kernels.h"

namespace passel {
namespace {

// OpenBLAS's names, where it chooses as it starts. A place in this list is a number that processes
// of several builds may share: new names come last.
constexpr std::string_view kCores[] = {
    "Haswell",     "SkylakeX",     "Cooperlake", "SapphireRapids", "Zen",         "Prescott",
    "Core2",       "Penryn",       "Dunnington", "Nehalem",        "Sandybridge", "Atom",
    "Nano",        "Katmai",       "Coppermine", "Northwood",      "Banias",      "Athlon",
    "Opteron",     "Opteron_SSE3", "Barcelona",  "Bobcat",         "Bulldozer",   "Piledriver",
    "Steamroller", "Excavator",    "armv8",      "neoversen1",     "neoversev1",  "neoversen2"};
constexpr std::uint64_t kAnotherCore = 0xff;
static_assert(std::size(kCores) < kAnotherCore);

// The lowest byte is the core, 1 for the first. Above it a bit for each way in which products do
// not simply run on its kernels.
struct Way {
  std::uint64_t bit;
  std::string_view suffix;
};
constexpr Way kInPieces{std::uint64_t{1} << 8, ", in pieces"};
constexpr Way kSmallBatches{std::uint64_t{1} << 9, ", small batches by passel"};
constexpr Way kWays[] = {kInPieces, kSmallBatches};

std::uint64_t WaysOf(int threads) {
  const CpuKernels* const table = CpuKernelsFor(ChosenCpuIsa());
  const bool own = table != nullptr && table->small_batch_forward != nullptr;
  return (MultipliesInPieces(threads) ? kInPieces.bit : 0) |
         (own && MultipliesSmallBatches(threads) ? kSmallBatches.bit : 0);
}

std::string WithWays(std::string name, std::uint64_t ways) {
  for (const Way& way : kWays) {
    if ((ways & way.bit) != 0) name += way.suffix;
  }
  return name;
}

}  // namespace

// Measured for OpenBLAS 0.3.21 on these cores; on Haswell's kernels pieces are up to 10 % slower.
// With several threads OpenBLAS shares whole products out.
bool MultipliesInPieces(int threads) {
  const std::string_view core = openblas_get_corename();
  return threads == 1 && (core == "SkylakeX" || core == "Cooperlake");
}

// Where OpenBLAS runs other kernels, the user has named them or nobody has chosen for it: then it
// multiplies all.
bool MultipliesSmallBatches(int threads) {
  return threads == 1 && std::string_view(openblas_get_corename()) == "Haswell";
}

std::string MatrixLibraryCore() { return openblas_get_corename(); }

std::string MatrixKernels(int threads) { return MatrixKernelsOf(MatrixKernelsCode(threads)); }

std::uint64_t MatrixKernelsCode(int threads) {
  const auto* const core = std::ranges::find(kCores, std::string_view(openblas_get_corename()));
  const std::uint64_t number =
      core == std::end(kCores) ? kAnotherCore : 1 + static_cast<std::uint64_t>(core - kCores);
  return number | WaysOf(threads);
}

std::string MatrixKernelsOf(std::uint64_t code) {
  const std::uint64_t number = code & kAnotherCore;
  if (number == 0) return "";
  const bool known = number <= std::size(kCores);
  return WithWays(known ? std::string(kCores[number - 1]) : "another", code);
}

}  // namespace passel
