#include "e2e/preset_run.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

namespace passel::testing {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t CountMatches(const std::string& text, const std::string& pattern,
                         std::vector<std::vector<std::string>>* groups) {
  const std::regex regex(pattern);
  std::size_t count = 0;
  for (const std::string& line : Lines(text)) {
    std::smatch match;
    if (!std::regex_match(line, match, regex)) continue;
    ++count;
    if (groups != nullptr) groups->emplace_back(match.begin() + 1, match.end());
  }
  return count;
}

Training TrainPreset(Sandbox& sandbox, const std::string& preset, std::vector<std::string> more,
                     double seconds) {
  const std::string path = sandbox.dir().File("report.json");
  const std::vector<std::string> flags = With({"--preset=" + preset, "--report=" + path}, more);
  Training run;
  run.outcome = sandbox.Run(sandbox.Train(flags), seconds);
  EXPECT_EQ(run.outcome.code, 0) << run.outcome.err;
  run.report = ReadJson(path);
  return run;
}

}  // namespace passel::testing
