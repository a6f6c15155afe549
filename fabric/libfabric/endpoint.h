// endpoint.h - an endpoint for one peer, with the queue of what it has done.
//
// One for each peer: libfabric cannot end what is under way with a peer that has died, but by
// closing the endpoint. Once that is closed or given up, nothing reads or writes the memory of a
// transfer.
//
// Threads    Post...() by any, at any time. Poll() by one at a time. Wake() by any.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "fabric/libfabric/network_impl.h"

namespace passel::fabric {

/// One transfer. Stays where it is while it is posted.
struct Transfer {
  fi_context2 context{};  // first: what a completion points to
  bool posted = false;
  bool done = false;
  std::size_t bytes = 0;  ///< that were received
  int error = 0;          ///< as libfabric numbers them, above 0
  int slot = -1;          ///< of a pipe; -1: none
};

struct Completion {
  Transfer* transfer;
  std::size_t bytes;
  int error;
};

/// For people: "10.0.0.1:4000".
std::string AddressText(std::span<const std::uint8_t> address);

class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> Open(std::shared_ptr<Network> network);

  /// Ends one with transfers under way. ofi_rxm of libfabric 1.17 may crash when such is closed: it
  /// stays open until the process ends, and since nobody polls it, does nothing any more.
  static void GiveUp(std::unique_ptr<Endpoint> endpoint);
  /// So many.
  static std::size_t GivenUp();

  const std::vector<std::uint8_t>& address() const { return address_; }
  /// The one peer. Errors: kInvalidArgument for bytes that are no address of this provider.
  Status SetPeer(std::span<const std::uint8_t> address);

  /// False: not now, try again after Poll(). Errors: of the provider.
  Result<bool> PostSend(std::span<const std::byte> memory, void* descriptor, std::uint64_t tag,
                        Transfer* transfer);
  Result<bool> PostReceive(std::span<std::byte> memory, void* descriptor, std::uint64_t tag,
                           Transfer* transfer);

  static constexpr std::size_t kMostCompletions = 16;
  using Completions = std::array<Completion, kMostCompletions>;
  /// What has ended since: so many. Also makes the provider work.
  Result<std::size_t> Poll(Completions* out);

  /// Whether Sleep() can.
  bool can_sleep() const { return waits_; }
  /// Until there is something to poll, or Wake(), or the time is over.
  void Sleep(std::chrono::nanoseconds longest);
  void Wake();

  /// Begins to throw away what came on other tags than `kept` and nobody has asked for; Poll()
  /// goes on with it. What is not thrown away is kept by the provider, in memory without a limit.
  /// Not at the same time as Poll().
  void DropStrangers(std::uint64_t kept);
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  explicit Endpoint(std::shared_ptr<Network> network) : network_(std::move(network)) {}
  Status Enable();
  Status OpenOn(fi_info* info);
  void LookForStrangers(std::uint64_t tag, std::uint64_t ignored, std::uint64_t flags);
  void TakeStranger(std::uint64_t tag, bool found);

  // In the order of their making.
  const std::shared_ptr<Network> network_;
  AddressVector peers_;
  CompletionQueue done_;
  bool waits_ = false;
  int done_fd_ = -1;  // the queue's
  FileDescriptor wake_;
  EndpointObject endpoint_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::vector<std::uint8_t> address_;
  Transfer stranger_;  // the look for one, or its end
  bool dropping_ = false;
  std::uint64_t kept_ = 0;
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace passel::fabric
