#include "support/two_hosts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace passel::testing {
namespace {

FileDescriptor OwnNetwork() {
  return FileDescriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

bool Shell(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

// A user namespace of its own, for who may make no network without.
bool BecomeRootOfNamespace() {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", uid);
  std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", gid);
  return true;
}

}  // namespace

TwoHosts* TwoHosts::Get() {
  static const std::unique_ptr<TwoHosts> kHosts = [] {
    std::unique_ptr<TwoHosts> hosts(new TwoHosts);
    if (const std::string problem = hosts->Make(); !problem.empty()) {
      std::fprintf(stderr, "no two hosts here: %s\n", problem.c_str());
      hosts.reset();
    }
    return hosts;
  }();
  return kHosts.get();
}

std::string TwoHosts::Make() {
  if (!Shell("ip -V && nsenter --version")) return "ip or nsenter is not installed";
  if (::unshare(CLONE_NEWNET) != 0 && (!BecomeRootOfNamespace() || ::unshare(CLONE_NEWNET) != 0)) {
    return "no network namespace can be made";
  }
  here_ = OwnNetwork();
  if (::unshare(CLONE_NEWNET) != 0) return "no second network namespace can be made";
  there_ = OwnNetwork();
  if (!here_.valid() || !there_.valid() || ::setns(here_.get(), CLONE_NEWNET) != 0) {
    return "the first network namespace cannot be entered again";
  }
  const std::string there = other_host();
  const bool joined =
      Shell(fmt::format("ip link set lo up && ip link add cable type veth peer name cable2 && "
                        "ip link set cable2 netns {} && ip addr add {}/24 dev cable && "
                        "ip addr add fd77::1/64 dev cable nodad && ip link set cable up",
                        there, kHere));
  const bool plugged = Shell(
      fmt::format("nsenter --net={} sh -c 'ip link set lo up && ip addr add {}/24 dev cable2 && "
                  "ip addr add {}/64 dev cable2 nodad && ip link set cable2 up'",
                  there, kThere, kThere6));
  if (!joined || !plugged) return "no cable (veth) can be made";
  watch_ = std::make_unique<HostsWatch>();
  watch_->AddHost("/proc/thread-self/ns/net");
  watch_->AddHost(there);
  return "";
}

std::string TwoHosts::other_host() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), there_.get());
}

std::string TwoHosts::third_host() {
  const auto path = [this] { return fmt::format("/proc/{}/fd/{}", ::getpid(), third_.get()); };
  if (third_.valid()) return path();
  if (::unshare(CLONE_NEWNET) != 0) return "";
  third_ = OwnNetwork();
  if (!third_.valid() || ::setns(here_.get(), CLONE_NEWNET) != 0) return "";
  const bool made =
      Shell(fmt::format("ip link add cable3 type veth peer name cable4 && "
                        "ip link set cable4 netns {0} && ip addr add 10.78.0.1/24 dev cable3 && "
                        "ip link set cable3 up && nsenter --net={0} sh -c 'ip link set lo up && "
                        "ip addr add {1}/24 dev cable4 && ip link set cable4 up && "
                        "ip route add default via 10.78.0.1'",
                        path(), kThird));
  watch_->AddHost(path());
  return made ? path() : "";
}

bool TwoHosts::AddAddress(const std::string& numbers) {
  return Shell(fmt::format("ip addr replace {}/24 dev cable", numbers));
}

std::vector<std::string> TwoHosts::WithAddressBook(const std::string& path) {
  return {"/usr/bin/env",
          "unshare",
          "--mount",
          "sh",
          "-c",
          "mount --bind \"$0\" /etc/hosts && exec \"$@\"",
          path};
}

bool TwoHosts::HasAddressBooks() {
  return Shell("unshare --mount sh -c 'mount --bind /etc/hostname /etc/hosts'");
}

bool TwoHosts::Cable(bool plugged) {
  return Shell(fmt::format("ip link set cable {}", plugged ? "up" : "down"));
}

}  // namespace passel::testing
