// dev_shm.h - what passel, or a library of it, has left in /dev/shm.

#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <system_error>

namespace passel::testing {

/// Names of files there. Other programs, libfabric ("4711:0:1") and tests that run beside this one
/// (TempDir's "passel-test.") have files in that folder, too.
inline std::set<std::string> DevShm() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("passel-test.")) continue;
    if (name.find("passel") != std::string::npos || name.starts_with("sem.")) names.insert(name);
  }
  return names;
}

}  // namespace passel::testing
