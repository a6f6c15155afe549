// terminal.h - a terminal that a test looks at and types into.

#pragma once

#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace passel::testing {

class Terminal {
 public:
  explicit Terminal(int columns);

  /// argv for Sandbox::StartCommand(): this bash script with job control (set -m), in a session of
  /// its own whose terminal this is. "$PASSEL" is the program.
  std::vector<std::string> Command(const std::string& script) const;
  void Type(const std::string& keys);
  /// All that was written to it so far, control sequences and all.
  const std::string& Shown();
  /// Until it shows `text` after the place `from`; false after `seconds` (scaled).
  bool WaitFor(const std::string& text, double seconds = 20, std::size_t from = 0);
  /// As closing its window does.
  void HangUp() { master_.Reset(); }

 private:
  FileDescriptor master_;
  std::string name_, shown_;
};

}  // namespace passel::testing
