#include "support/hosts_watch.h"

#include <dirent.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

namespace passel::testing {
namespace {

constexpr std::chrono::milliseconds kPause{100};

// "" of a process that has ended.
std::string NetworkAt(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 ? fmt::format("{}:{}", about.st_dev, about.st_ino) : "";
}

std::set<pid_t> AllProcesses() {
  std::set<pid_t> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  while (const dirent* const entry = proc != nullptr ? ::readdir(proc.get()) : nullptr) {
    const pid_t process = std::atoi(entry->d_name);
    if (process > 0) all.insert(process);
  }
  return all;
}

struct LookedInto {
  std::mutex mutex;
  std::set<std::string> files;  // as MappedMemoryFiles() has them
};
LookedInto& OfThisTest() {
  static LookedInto looked_into;
  return looked_into;
}

}  // namespace

void LooksInto(int memory_file) {
  struct stat about {};
  if (::fstat(memory_file, &about) != 0) return;
  const std::lock_guard lock(OfThisTest().mutex);
  OfThisTest().files.insert(
      fmt::format("{:02x}:{:02x}:{}", major(about.st_dev), minor(about.st_dev), about.st_ino));
}

std::set<std::string> MappedMemoryFiles(pid_t process) {
  std::set<std::string> found;
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, access, offset, device, inode;
    words >> range >> access >> offset >> device >> inode;
    found.insert(device + ":" + inode);
  }
  return found;
}

std::string NetworkOf(pid_t process) { return NetworkAt(fmt::format("/proc/{}/ns/net", process)); }

std::string SharedBetween(const std::set<std::string>& networks) {
  std::map<std::string, std::pair<std::string, pid_t>> seen;  // file: the network and who has it
  std::string shared;
  for (const pid_t process : AllProcesses()) {
    const std::string network = NetworkOf(process);
    if (!networks.contains(network)) continue;
    std::set<std::string> files = MappedMemoryFiles(process);
    if (process == ::getpid()) {
      const std::lock_guard lock(OfThisTest().mutex);
      for (const std::string& file : OfThisTest().files) files.erase(file);
    }
    // It may have entered another host meanwhile, or have become another program.
    if (NetworkOf(process) != network) continue;
    for (const std::string& file : files) {
      const auto [first, is_new] = seen.try_emplace(file, network, process);
      if (is_new || first->second.first == network) continue;
      shared += fmt::format("processes {} and {} are on two hosts and share memory file {}\n",
                            first->second.second, process, file);
    }
  }
  return shared;
}

HostsWatch::HostsWatch() : thread_([this] { Run(); }) {}

HostsWatch::~HostsWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void HostsWatch::AddHost(const std::string& network) {
  const std::lock_guard lock(mutex_);
  hosts_.insert(NetworkAt(network));
}

std::string HostsWatch::Look() {
  std::unique_lock lock(mutex_);
  const std::set<std::string> hosts = hosts_;
  lock.unlock();
  return SharedBetween(hosts);
}

void HostsWatch::Run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPause, [this] { return ends_; })) {
    lock.unlock();
    const std::string shared = Look();
    lock.lock();
    if (shared.empty()) continue;
    ADD_FAILURE() << shared;
    return;
  }
}

}  // namespace passel::testing
