#include "job/run_info.h"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>

#include "base/cpu_isa.h"
#include "base/subprocess.h"

namespace passel::job {
namespace {

std::vector<std::string> OwnCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// "--batch_size=100" is {"batch_size", "100"}; "--shard_data" is {"shard_data", "true"}.
std::pair<std::string, std::string> SettingOf(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  return {name, equals == std::string::npos ? "true" : argument.substr(equals + 1)};
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

RunInfo DescribeRun(const JobSettings& settings) {
  RunInfo info;
  info.version = Version();
  info.command = OwnCommand();
  for (const std::string& argument : ToArguments(settings)) {
    info.settings.push_back(SettingOf(argument));
  }
  utsname machine{};
  if (::uname(&machine) == 0) info.host = machine.nodename;
  info.processor = CpuInfo("model name");
  info.cores = static_cast<int>(UsableCpus().size());
  info.started = UtcNow();
  return info;
}

}  // namespace passel::job
