#include "base/cpu_isa.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace passel {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512};

#if defined(__x86_64__)
// The parts of x86-64-v3 that __builtin_cpu_supports of clang 14 has no name for.
bool HasF16cMovbeLzcnt() {
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kMovbe) == 0 || (c & kF16c) == 0) return false;
  return __get_cpuid(0x80000001u, &a, &b, &c, &d) != 0 && (c & kLzcnt) != 0;
}
#endif

}  // namespace

std::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kBaseline:
      return "baseline";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

CpuIsa BestCpuIsa() {
#if defined(__x86_64__)
  // The builtins also ask whether the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  HasF16cMovbeLzcnt();
  if (!v3) return CpuIsa::kBaseline;
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? CpuIsa::kAvx512 : CpuIsa::kAvx2;
#else
  return CpuIsa::kBaseline;
#endif
}

Result<CpuIsa> SelectCpuIsa(std::string_view wanted, CpuIsa best) {
  if (wanted.empty()) return best;
  for (const CpuIsa isa : kAll) {
    if (CpuIsaName(isa) != wanted) continue;
    if (isa <= best) return isa;
    return InvalidArgument(
        fmt::format("PASSEL_ISA={} asks for more than this processor runs, which is {}: unset it "
                    "or set it to {} or less",
                    wanted, CpuIsaName(best), CpuIsaName(best)));
  }
  return InvalidArgument(
      fmt::format("PASSEL_ISA={} is not an instruction set: use baseline, avx2 or avx512", wanted));
}

CpuIsa ChosenCpuIsa() {
  static const CpuIsa chosen = [] {
    const CpuIsa best = BestCpuIsa();
    const char* wanted = std::getenv("PASSEL_ISA");
    const Result<CpuIsa> selected = SelectCpuIsa(wanted != nullptr ? wanted : "", best);
    if (selected.ok()) return *selected;
    LogWarning("{}; continuing with {}", selected.status().message(), CpuIsaName(best));
    return best;
  }();
  return chosen;
}

std::string CpuInfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind(key, 0) != 0) continue;
    const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (name == key) return line.substr(std::min(colon + 2, line.size()));
  }
  return "";
}

}  // namespace passel
