#include "base/failpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace passel::internal {
namespace {

struct Spec {
  std::string name;
  std::string action;
  std::string marker;
  std::atomic<long> hits_left{0};
  bool armed = false;

  Spec() {
    const char* text = std::getenv("PASSEL_FAILPOINT");
    if (text == nullptr) return;
    const std::string all = text;
    const std::size_t first = all.find(':');
    const std::size_t second = all.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return;
    name = all.substr(0, first);
    hits_left = std::atol(all.substr(first + 1, second - first - 1).c_str());
    const std::size_t third = all.find(':', second + 1);
    action = all.substr(second + 1, third - second - 1);
    if (third != std::string::npos) marker = all.substr(third + 1);
    armed = true;
  }
};

Spec& TheSpec() {
  static Spec spec;
  return spec;
}

}  // namespace

const bool g_failpoints_armed = TheSpec().armed;

void ReachFailpoint(const char* name) {
  Spec& spec = TheSpec();
  // Relaxed: only the count matters, and exactly one passage sees it become zero.
  if (spec.name != name || spec.hits_left.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  if (!spec.marker.empty()) {
    const int fd = ::open(spec.marker.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return;
    ::close(fd);
  }
  if (spec.action == "kill") ::kill(::getpid(), SIGKILL);
  // To this thread: of a process any other may take it, and this one would go on until then.
  if (spec.action == "stop") (void)::raise(SIGSTOP);
  if (spec.action.starts_with("sleep")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atol(spec.action.c_str() + 5)));
  }
  if (spec.action.starts_with("exit")) ::_exit(std::atoi(spec.action.c_str() + 4));
}

}  // namespace passel::internal
