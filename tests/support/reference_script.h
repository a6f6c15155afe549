// reference_script.h - runs a Python script that holds our files against another program's, if its
// modules are there: PASSEL_TEST_PYTHON names the Python that has them, else it is python3.

#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace passel::test {

/// The exit status of `script`, and what it printed.
inline int RunReference(const std::string& script, const std::string& arguments,
                        std::string* output) {
  const char* const python = std::getenv("PASSEL_TEST_PYTHON");
  const std::string command =
      std::string(python ? python : "python3") + " -B " + script + " " + arguments + " 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return -1;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    output->append(buffer, got);
  }
  const int status = ::pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Of that exit status: the modules are missing, or the shell found no Python.
inline bool CannotRun(int status) { return status == 77 || status == 127; }

}  // namespace passel::test
