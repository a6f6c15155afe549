#include "e2e/printed_config.h"

#include <sstream>

namespace passel::testing {

std::string SettingOf(const Outcome& outcome, const std::string& name) {
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + " ", 0) != 0) continue;
    const std::size_t value = line.find_first_not_of(' ', name.size());
    const std::size_t gap = line.find("  ", value);
    const std::size_t origin = line.find_first_not_of(' ', gap);
    return line.substr(value, gap - value) + "  " + line.substr(origin);
  }
  return "";
}

}  // namespace passel::testing
