// two_hosts.h - two hosts out of one machine: network namespaces, joined by a cable (veth) alone.
// And a third one, which has a cable to the first. From then on a test in which processes of two
// hosts share memory fails.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "support/hosts_watch.h"

namespace passel::testing {

class TwoHosts {
 public:
  /// Made once: the calling thread, and those it starts from then on, are on this host. Null, with
  /// a line that says why, where no namespaces can be made.
  static TwoHosts* Get();

  static constexpr const char* kHere = "10.77.0.1";
  static constexpr const char* kThere = "10.77.0.2";
  static constexpr const char* kThere6 = "fd77::2";
  static constexpr const char* kThird = "10.78.0.2";

  /// For EnterHost() of a child.
  std::string other_host() const;
  /// The one of kThird, made by the first call; "" if it cannot be made.
  std::string third_host();
  /// One more address of this host for the other, for good.
  bool AddAddress(const std::string& numbers);
  /// What to put before a command, that it sees `path` in place of /etc/hosts.
  static std::vector<std::string> WithAddressBook(const std::string& path);
  static bool HasAddressBooks();
  /// Pulls the cable, or puts it in again.
  bool Cable(bool plugged);
  HostsWatch& watch() { return *watch_; }

 private:
  TwoHosts() = default;
  std::string Make();
  FileDescriptor here_, there_, third_;
  std::unique_ptr<HostsWatch> watch_;
};

}  // namespace passel::testing
