#include "lab/machine.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/cpu_isa.h"
#include "base/subprocess.h"

namespace passel::lab {
namespace {

constexpr double kMuchLoad = 0.10;   // of the usable cores
constexpr double kMuchSteal = 0.01;  // of the cores' time

// The kernel counts in ticks of 10 ms: of less than this nothing can be said.
constexpr double kShortestSeconds = 0.2;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string Caches() {
  std::string text;
  for (int index = 0; index < 8; ++index) {
    const std::string dir = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string level = FirstLine(dir + "level");
    const std::string type = FirstLine(dir + "type");
    if (level.empty()) break;
    if (type == "Instruction") continue;
    text += fmt::format("{}L{}{} {}", text.empty() ? "" : ", ", level, type == "Data" ? "d" : "",
                        FirstLine(dir + "size"));
  }
  return text.empty() ? "not readable" : text;
}

std::string Virtual() {
  const std::string flags = fmt::format(" {} ", CpuInfo("flags"));
  if (flags.find(" hypervisor ") == std::string::npos) return "no hypervisor seen";
  const std::string product = FirstLine("/sys/class/dmi/id/product_name");
  return product.empty() ? "virtual machine" : fmt::format("virtual machine ({})", product);
}

std::string OrUnreadable(const std::string& text) { return text.empty() ? "not readable" : text; }

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::vector<Fact> DescribeMachine() {
  std::vector<Fact> facts;
  facts.emplace_back("processor", OrUnreadable(CpuInfo("model name")));
  facts.emplace_back("cores", fmt::format("{} usable of {} online", UsableCpus().size(),
                                          ::sysconf(_SC_NPROCESSORS_ONLN)));
  facts.emplace_back("caches", Caches());
  utsname kernel{};
  if (::uname(&kernel) == 0) {
    facts.emplace_back("kernel", fmt::format("{} {}", kernel.sysname, kernel.release));
  }
  facts.emplace_back(
      "governor", OrUnreadable(FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")));
  facts.emplace_back("host", Virtual());
  facts.emplace_back(
      "huge pages",
      fmt::format("transparent: {}; for shared memory: {}",
                  OrUnreadable(FirstLine("/sys/kernel/mm/transparent_hugepage/enabled")),
                  OrUnreadable(FirstLine("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))));
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("g++ {}", __VERSION__);
#endif
#if defined(__OPTIMIZE__)
  const char* optimized = "";
#else
  const char* optimized = ", NOT OPTIMISED";
#endif
  facts.emplace_back("build", fmt::format("{}, kernels for {}{}", compiler,
                                          CpuIsaName(ChosenCpuIsa()), optimized));
  return facts;
}

CpuTimes ReadCpuTimes() {
  CpuTimes times;
  times.at_ns = MonotonicNs();
  std::istringstream line(FirstLine("/proc/stat"));
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  line >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  times.busy = (user + nice + system + irq + softirq) / ticks;
  times.steal = steal / ticks;
  times.total = times.busy + times.steal + (idle + iowait) / ticks;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (::getrusage(who, &usage) == 0)
      times.ours += Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  return times;
}

OtherLoad LoadBetween(const CpuTimes& before, const CpuTimes& after) {
  OtherLoad load;
  const double elapsed = 1e-9 * static_cast<double>(after.at_ns - before.at_ns);
  if (elapsed < kShortestSeconds) return load;
  load.cores = std::max(0.0, ((after.busy - before.busy) - (after.ours - before.ours)) / elapsed);
  const double total = after.total - before.total;
  if (total > 0) load.steal = (after.steal - before.steal) / total;
  return load;
}

std::vector<std::string> LoadWarnings(const OtherLoad& load, int usable_cores) {
  std::vector<std::string> warnings;
  if (load.cores > kMuchLoad * usable_cores) {
    warnings.push_back(
        fmt::format("other programs kept {:.1f} of {} cores busy: times are too long, and where "
                    "workers share cores with them the ratios are not to be trusted either",
                    load.cores, usable_cores));
  }
  if (load.steal > kMuchSteal) {
    warnings.push_back(
        fmt::format("the host took {:.1f} % of the cores' time for others: what runs on several "
                    "cores at once is not to be trusted",
                    100 * load.steal));
  }
  return warnings;
}

std::string LoadAverage() {
  const std::string line = FirstLine("/proc/loadavg");
  std::size_t end = 0;
  for (int words = 0; words < 3 && end != std::string::npos; ++words) end = line.find(' ', end + 1);
  return line.substr(0, end);
}

}  // namespace passel::lab
