// gpu_child.h - other processes of a test program on a GPU.

#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"

namespace passel::cuda {

inline constexpr std::chrono::seconds kChildLimit{100};

/// This program again, in a process of its own that runs the tests `filter` names, with
/// `variables`, each NAME=VALUE, in its environment. Descriptors without FD_CLOEXEC go with it.
inline pid_t SpawnTests(const std::string& filter, const std::vector<std::string>& variables) {
  std::vector<char*> environment;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string name = std::string(*e).substr(0, std::string(*e).find('=') + 1);
    const bool replaced =
        std::any_of(variables.begin(), variables.end(),
                    [&name](const std::string& variable) { return variable.starts_with(name); });
    if (!replaced) environment.push_back(*e);
  }
  for (const std::string& variable : variables) {
    environment.push_back(const_cast<char*>(variable.c_str()));
  }
  environment.push_back(nullptr);
  const std::string argument = "--gtest_filter=" + filter;
  const char* const arguments[] = {"device_gpu_test", argument.c_str(), nullptr};
  const pid_t child = ::fork();
  if (child == 0) {  // nothing but exec: CUDA does not survive a fork
    ::execve("/proc/self/exe", const_cast<char**>(arguments), environment.data());
    ::_exit(127);
  }
  EXPECT_GT(child, 0);
  return child;
}

/// Its end within the limit, as waitpid() says it; -1 if it did not end and was killed.
inline int AwaitChild(pid_t child) {
  int status = 0;
  for (const Deadline deadline = Deadline::After(kChildLimit); !deadline.Expired();) {
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return -1;
}

/// Waits until `is_true`, looking about every millisecond; a failure of the test after the limit.
inline void AwaitTrue(const std::function<bool()>& is_true, const char* what) {
  const Deadline deadline = Deadline::After(kChildLimit);
  while (!is_true()) {
    if (deadline.Expired()) {
      ADD_FAILURE() << "not so in time: " << what;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace passel::cuda
