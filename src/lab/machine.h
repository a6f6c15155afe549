// machine.h - what the figures were measured on, and what else ran meanwhile.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace passel::lab {

/// One line of the table's head: "processor", "Intel(R) ...".
using Fact = std::pair<std::string, std::string>;

/// Processor, cores, caches, kernel, governor, virtual or not, huge pages, build.
/// What cannot be read says so.
std::vector<Fact> DescribeMachine();

/// CPU time since boot or start, in seconds.
struct CpuTimes {
  std::int64_t at_ns = 0;
  double busy = 0;   ///< of all cores of the machine, by whomever
  double steal = 0;  ///< what the host took from its virtual cores
  double total = 0;  ///< busy, steal and idle
  double ours = 0;   ///< of this process and its children that have ended
};
CpuTimes ReadCpuTimes();

/// Load in the time between two readings; zero if that is too short to tell (0.2 s).
struct OtherLoad {
  double cores = 0;  ///< kept busy by other processes, on average
  double steal = 0;  ///< share of the cores' time, 0..1
};
OtherLoad LoadBetween(const CpuTimes& before, const CpuTimes& after);

/// One sentence for each thing that makes figures taken meanwhile untrustworthy.
std::vector<std::string> LoadWarnings(const OtherLoad& load, int usable_cores);

/// "1.20 0.80 0.50", of /proc/loadavg.
std::string LoadAverage();

}  // namespace passel::lab
