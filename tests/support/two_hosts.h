// two_hosts.h - two hosts out of one machine: network namespaces, joined by a cable (veth) alone.

#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace passel::testing {

class TwoHosts {
 public:
  /// Made once: the calling thread, and those it starts from then on, are on this host. Null, with
  /// a line that says why, where no namespaces can be made.
  static TwoHosts* Get();

  static constexpr const char* kHere = "10.77.0.1";
  static constexpr const char* kThere = "10.77.0.2";
  static constexpr const char* kThere6 = "fd77::2";

  /// For EnterHost() of a child.
  std::string other_host() const;
  /// Pulls the cable, or puts it in again.
  bool Cable(bool plugged);

 private:
  TwoHosts() = default;
  std::string Make();
  FileDescriptor here_, there_;
};

/// This thread is on that host from now on; false if it may not be.
bool EnterHost(const std::string& host);

}  // namespace passel::testing
