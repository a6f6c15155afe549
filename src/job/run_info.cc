#include "job/run_info.h"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>

#include "base/cpu_isa.h"
#include "base/subprocess.h"
#include "job/settings_table.h"

namespace passel::job {
namespace {

std::vector<std::string> OwnCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[sizeof "2026-11-22T14:37:29Z"] = "";
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

std::string_view Version() { return PASSEL_VERSION; }

RunInfo DescribeRun(TrainSettings settings) {
  RunInfo info;
  info.version = Version();
  info.command = OwnCommand();
  TrainSettings defaults;
  const SettingsView all = ViewOf(settings), default_values = ViewOf(defaults);
  const SettingsView shared = ViewOf(settings.job);
  for (const SettingRow& row : SettingsTable()) {
    const std::string of_tasks = TextOf(row.value(shared));
    if (row.traits.to_child && !of_tasks.empty()) info.settings.emplace_back(row.name, of_tasks);
    const std::string text = TextOf(row.value(all));
    if (text != TextOf(row.value(default_values))) info.changed.emplace_back(row.name, text);
  }
  utsname machine{};
  if (::uname(&machine) == 0) info.host = machine.nodename;
  info.processor = CpuInfo("model name");
  info.cores = static_cast<int>(UsableCpus().size());
  info.started = UtcNow();
  return info;
}

}  // namespace passel::job
