// tcp_fault_proxy.h - a bad network in user space: it stands between two ends of TCP connections
// and delays, slows, swallows or cuts what they say, and remembers every byte.
//
// Bytes stay in order, as TCP has it: what gets lost on a network comes late here.
//
// Threads    Any. The proxy has a thread of its own.

#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/tcp_socket.h"

namespace passel::testing {

/// What befalls the bytes of one direction.
struct TcpFaults {
  std::chrono::nanoseconds delay{0};
  std::size_t bytes_per_second = 0;  ///< 0: as fast as it goes
  /// Nothing arrives any more, the end of the connection neither.
  bool hole = false;
  /// The connection is cut behind so many bytes of this direction.
  std::optional<std::size_t> cut_after;
  bool reset = false;  ///< ... with RST on both sides, not with FIN
};

class TcpFaultProxy {
 public:
  /// Listens on a free port of 127.0.0.1.
  explicit TcpFaultProxy(const TcpAddress& target);
  ~TcpFaultProxy();
  TcpFaultProxy(const TcpFaultProxy&) = delete;
  TcpFaultProxy& operator=(const TcpFaultProxy&) = delete;

  const TcpAddress& address() const { return address_; }
  /// For connections that are there and those that come.
  void Set(const TcpFaults& to_server, const TcpFaults& to_client);
  /// Ends all connections.
  void CutAll(bool reset);
  /// How many have been made so far.
  int connections() const;
  /// All bytes that arrived here, of both directions, one after the other.
  std::string Recorded() const;

 private:
  struct Piece {
    std::int64_t due_ns;
    std::vector<std::uint8_t> bytes;
  };
  struct Direction {
    std::deque<Piece> queue;
    std::size_t passed = 0;    // bytes
    std::int64_t next_ns = 0;  // when the next byte may go
    bool ended = false, told = false;
    std::string recorded;
  };
  struct Pair {
    FileDescriptor client, server;
    Direction to_server, to_client;
    bool over = false;
  };

  void Run();
  void Move(Pair& pair, int from, int to, const TcpFaults& faults, Direction& direction);
  static void Cut(Pair& pair, bool reset);

  FileDescriptor listening_;
  TcpAddress address_;
  const TcpAddress target_;
  const FileDescriptor wake_;  // eventfd
  mutable std::mutex mutex_;
  TcpFaults to_server_, to_client_;
  std::list<Pair> pairs_;
  std::string recorded_;  // of pairs that are over
  int connections_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace passel::testing
