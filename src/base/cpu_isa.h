// cpu_isa.h - which of the tables built by passel_isa_sources() this process runs.
//
// A source that is compiled three times exports one table of functions for each instruction set;
// its owner picks the table of ChosenCpuIsa() once and keeps it. The choice is the same in every
// library of the process, so that one environment variable moves all of them.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

/// In ascending order: who runs one of these runs the ones before it.
enum class CpuIsa {
  kBaseline,  ///< what the compiler assumes anyway (x86-64: SSE2)
  kAvx2,      ///< x86-64-v3: AVX2, FMA, BMI, F16C, LZCNT, MOVBE
  kAvx512,    ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
};

/// "baseline", "avx2" or "avx512".
std::string_view CpuIsaName(CpuIsa isa);

/// The best set that this processor and its operating system run.
CpuIsa BestCpuIsa();

/// What `wanted` (a name, or empty for "the best") selects on a machine whose best set is `best`.
/// Errors: kInvalidArgument for another name or for a set above `best`.
Result<CpuIsa> SelectCpuIsa(std::string_view wanted, CpuIsa best);

/// The choice of this process: environment variable PASSEL_ISA, else BestCpuIsa(). Decided at the
/// first call. A PASSEL_ISA that cannot be followed is reported once as a warning, and the best
/// set is used. Thread safe.
CpuIsa ChosenCpuIsa();

/// The value of the first line "key : value" of /proc/cpuinfo, "" if there is none: "model name".
std::string CpuInfo(std::string_view key);

}  // namespace passel
