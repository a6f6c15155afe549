// python_script.h - scripts that need modules which not every machine has.

#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace passel::test {

/// The exit status of a script, and what it printed. PASSEL_TEST_PYTHON names the Python, else it
/// is python3.
inline int RunScript(const std::string& script, const std::string& arguments, std::string* output) {
  const char* python = std::getenv("PASSEL_TEST_PYTHON");
  const std::string command =
      std::string(python ? python : "python3") + " " + script + " " + arguments + " 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return -1;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    output->append(buffer, got);
  }
  const int status = ::pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace passel::test
