#include "support/tcp_fault_proxy.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>

namespace passel::testing {
namespace {

constexpr std::size_t kMostQueued = 1 << 20;  // bytes of one direction

std::size_t Queued(const auto& queue) {
  std::size_t bytes = 0;
  for (const auto& piece : queue) bytes += piece.bytes.size();
  return bytes;
}

}  // namespace

TcpFaultProxy::TcpFaultProxy(const TcpAddress& target)
    : target_(target), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  Result<FileDescriptor> listening = ListenTcp(TcpAddress::Loopback(0));
  PASSEL_CHECK(listening.ok(), "the proxy listens");
  listening_ = std::move(*listening);
  address_ = *LocalAddress(listening_.get());
  thread_ = std::thread([this] { Run(); });
}

TcpFaultProxy::~TcpFaultProxy() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void TcpFaultProxy::Set(const TcpFaults& to_server, const TcpFaults& to_client) {
  {
    const std::lock_guard lock(mutex_);
    to_server_ = to_server;
    to_client_ = to_client;
  }
  (void)::eventfd_write(wake_.get(), 1);
}

void TcpFaultProxy::CutAll(bool reset) {
  const std::lock_guard lock(mutex_);
  for (Pair& pair : pairs_) Cut(pair, reset);
  (void)::eventfd_write(wake_.get(), 1);
}

int TcpFaultProxy::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}

std::string TcpFaultProxy::Recorded() const {
  const std::lock_guard lock(mutex_);
  std::string all = recorded_;
  for (const Pair& pair : pairs_) all += pair.to_server.recorded + pair.to_client.recorded;
  return all;
}

void TcpFaultProxy::Cut(Pair& pair, bool reset) {
  for (const FileDescriptor* socket : {&pair.client, &pair.server}) {
    if (reset) {
      const linger now{1, 0};
      (void)::setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    } else {
      ::shutdown(socket->get(), SHUT_RDWR);
    }
  }
  pair.over = true;  // closed by the thread
}

void TcpFaultProxy::Run() {
  for (;;) {
    std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    int timeout = 1000;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      for (const Pair& pair : pairs_) {
        for (const auto* direction : {&pair.to_server, &pair.to_client}) {
          const int socket = (direction == &pair.to_server ? pair.client : pair.server).get();
          const bool reads = !direction->ended && Queued(direction->queue) < kMostQueued;
          entries.push_back({reads ? socket : -1, POLLIN, 0});
          if (!direction->queue.empty()) timeout = 1;
        }
      }
    }
    (void)::poll(entries.data(), entries.size(), timeout);
    eventfd_t ignored;
    (void)::eventfd_read(wake_.get(), &ignored);
    Result<AcceptedTcp> accepted = AcceptTcp(listening_.get());
    Result<FileDescriptor> server = NotFound("nobody came");
    if (accepted.ok()) {
      server = ConnectTcp(target_, Deadline::After(std::chrono::seconds(5)));
    }
    const std::lock_guard lock(mutex_);
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      Move(*pair, pair->client.get(), pair->server.get(), to_server_, pair->to_server);
      Move(*pair, pair->server.get(), pair->client.get(), to_client_, pair->to_client);
      if (!pair->over) {
        ++pair;
        continue;
      }
      recorded_ += pair->to_server.recorded + pair->to_client.recorded;
      pair = pairs_.erase(pair);
    }
    if (accepted.ok()) ++connections_;
    if (server.ok()) {
      Pair& pair = pairs_.emplace_back();
      pair.client = std::move(accepted->socket);
      pair.server = std::move(*server);
    }
  }
}

void TcpFaultProxy::Move(Pair& pair, int from, int to, const TcpFaults& faults,
                         Direction& direction) {
  if (pair.over) return;
  const std::int64_t now = MonotonicNs();
  std::vector<std::uint8_t> bytes(65536);
  while (!direction.ended && Queued(direction.queue) < kMostQueued) {
    const Result<std::size_t> came = ReceiveNow(from, bytes);
    if (!came.ok()) direction.ended = true;
    if (!came.ok() || *came == 0) break;
    direction.recorded.append(reinterpret_cast<const char*>(bytes.data()), *came);
    direction.queue.push_back(
        {now + faults.delay.count(),
         {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(*came)}});
  }
  if (faults.hole) {
    direction.queue.clear();
    return;
  }
  while (!direction.queue.empty() && direction.queue.front().due_ns <= now) {
    std::vector<std::uint8_t>& piece = direction.queue.front().bytes;
    std::size_t part = piece.size();
    if (faults.bytes_per_second > 0) {
      if (now < direction.next_ns) return;
      part = 1;
    }
    if (faults.cut_after)
      part = std::min(part, *faults.cut_after - std::min(direction.passed, *faults.cut_after));
    const Result<std::size_t> sent = SendNow(to, {piece.data(), part});
    if (!sent.ok()) return Cut(pair, false);
    direction.passed += *sent;
    if (faults.cut_after && direction.passed >= *faults.cut_after) return Cut(pair, faults.reset);
    if (*sent == 0) return;
    if (faults.bytes_per_second > 0) {
      direction.next_ns = now + 1'000'000'000 / static_cast<std::int64_t>(faults.bytes_per_second);
    }
    piece.erase(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(*sent));
    if (piece.empty()) direction.queue.pop_front();
  }
  if (direction.ended && direction.queue.empty() && !direction.told) {
    direction.told = true;
    ::shutdown(to, SHUT_WR);
    if (pair.to_server.ended && pair.to_client.ended) pair.over = true;
  }
}

}  // namespace passel::testing
