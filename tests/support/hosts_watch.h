// hosts_watch.h - nothing is shared between processes of two hosts but what a cable carries.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace passel::testing {

/// "device:inode" of everything that a process has mapped from memory files.
std::set<std::string> MappedMemoryFiles(pid_t process);

/// The test itself, beside its stores, looks into this memory file from now on: this process may
/// have it mapped, wherever others have it.
void LooksInto(int memory_file);

/// The network of a process as one word; "" if it has ended.
std::string NetworkOf(pid_t process);

/// A sentence for each memory file that is mapped in processes of two of these networks.
std::string SharedBetween(const std::set<std::string>& networks);

/// Asks for SharedBetween() its hosts ten times a second, as long as it lives: that fails the test
/// which runs then.
class HostsWatch {
 public:
  HostsWatch();
  ~HostsWatch();
  HostsWatch(const HostsWatch&) = delete;
  HostsWatch& operator=(const HostsWatch&) = delete;

  /// `network`: a path of it, like /proc/self/ns/net.
  void AddHost(const std::string& network);
  /// SharedBetween() the hosts, now.
  std::string Look();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<std::string> hosts_;  // NetworkOf() their processes
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace passel::testing
