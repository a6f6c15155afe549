#include "cluster/host_lookup.h"

#include <fmt/core.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace passel {
namespace {

std::atomic<int> g_lookups{0};

// Outlives who asks: the answer may come later.
struct Lookup {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Result<std::vector<TcpAddress>>> answer;
};

}  // namespace

Result<std::vector<TcpAddress>> ResolveBySystem(const HostPort& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(host.host.c_str(), std::to_string(host.port).c_str(), &hints, &list);
  if (error != 0) {
    return Unavailable(
        fmt::format("the host {} cannot be found: {}", host.host,
                    error == EAI_SYSTEM ? ::strerror(errno) : ::gai_strerror(error)));
  }
  std::vector<TcpAddress> found;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    found.emplace_back(a->ai_addr, a->ai_addrlen);
  }
  ::freeaddrinfo(list);
  if (found.empty()) return Unavailable(fmt::format("the host {} has no address", host.host));
  return found;
}

Result<std::vector<TcpAddress>> LookUp(const HostPort& host, Deadline deadline,
                                       const HostResolver& resolver) {
  if (Result<TcpAddress> numbers = TcpAddress::FromNumbers(host.host, host.port); numbers.ok()) {
    return std::vector<TcpAddress>{*numbers};
  }
  if (g_lookups.fetch_add(1) >= kMaxLookups) {
    g_lookups.fetch_sub(1);
    return ResourceExhausted(fmt::format(
        "{} questions for hosts' addresses are unanswered, so that {} is not asked for: use "
        "addresses in numbers, or look after the name service",
        kMaxLookups, host.host));
  }
  const auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([lookup, host, resolver] {
      Result<std::vector<TcpAddress>> answer = resolver(host);
      g_lookups.fetch_sub(1);
      const std::lock_guard lock(lookup->mutex);
      lookup->answer = std::move(answer);
      lookup->answered.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    g_lookups.fetch_sub(1);
    return ResourceExhausted(
        fmt::format("no thread to ask for the host {}: {}", host.host, error.what()));
  }
  std::unique_lock lock(lookup->mutex);
  // In slices: the time of the wait is the system's, that of the deadline may be a test's.
  while (!lookup->answer && !deadline.Expired()) {
    lookup->answered.wait_for(lock, std::min<std::chrono::nanoseconds>(
                                        deadline.Remaining(), std::chrono::milliseconds(50)));
  }
  if (lookup->answer) return *lookup->answer;
  return DeadlineExceeded(
      fmt::format("the name service has not said in time which address {} has", host.host));
}

}  // namespace passel
