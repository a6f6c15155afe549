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

std::string OnlyError(const Outcome& outcome, int code) {
  EXPECT_EQ(outcome.code, code) << outcome.err << outcome.out;
  EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
  return outcome.errors.empty() ? "" : outcome.errors[0];
}

}  // namespace passel::testing
