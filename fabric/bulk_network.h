// bulk_network.h - a network that carries the messages of pipes, where that is not the control
// connection itself (control/control_connection.h).
//
// The two ends of such a pipe learn each other's address and tags over a sealed connection, which
// stays: a network need not report that a peer is gone, its end does.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/pipe.h"

namespace passel::fabric {

/// What the messages of one pipe are known by; the two ends agree on it over a connection that
/// nobody else reads. Of each tag also the one with the lowest bit turned is used.
struct PipeTags {
  std::uint64_t sends = 0;     ///< of what this end sends
  std::uint64_t receives = 0;  ///< of what it receives

  /// From the system's generator.
  static Result<PipeTags> Random();
  PipeTags OfTheOtherEnd() const { return {receives, sends}; }
};

/// Made in two steps: BulkNetwork::OpenPipe(), then Join() once the other end's address is known.
class BulkPipe : public Pipe {
 public:
  /// For the other end's Join().
  virtual const std::vector<std::uint8_t>& local_address() const = 0;
  /// Call once, before anything is sent to this end. Errors: kInvalidArgument for an address that
  /// cannot be.
  virtual Status Join(std::span<const std::uint8_t> peer, const PipeTags& tags) = 0;
  /// Ends it, for the given reason: who waits returns kUnavailable. The first reason counts. From
  /// any thread at any time.
  virtual void Close(const Status& why) = 0;
};

/// Threads: any.
class BulkNetwork {
 public:
  virtual ~BulkNetwork() = default;
  /// What both ends must have the same of.
  virtual const std::string& name() const = 0;
  /// `local`: the address in numbers by which the other end reaches this host. Errors: those of the
  /// network; kAlreadyExists when all ports are in use.
  virtual Result<std::unique_ptr<BulkPipe>> OpenPipe(const std::string& local) = 0;
  /// Pipes of this process that ended within a message and could not be closed: each keeps
  /// descriptors and memory until the process ends.
  virtual std::size_t left_open() const = 0;
};

struct BulkOptions {
  std::string provider;   ///< as libfabric names it
  std::string interface;  ///< "": the one that the control connection goes by
  /// Each pipe listens on a port of its own, out of `ports` from `port` on; 0: any that is free.
  std::uint16_t port = 0;
  int ports = 1;
  /// How long after the last message who waits polls before it sleeps; zero: it sleeps at once.
  /// None: for a millisecond, unless more threads of this machine want a processor than there are.
  std::optional<std::chrono::nanoseconds> spin;
  /// A message that stands still for so long ends its pipe.
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(5);
};

/// Of the library that has the networks.
using BulkEntry = void (*)(const BulkOptions& options, Result<std::unique_ptr<BulkNetwork>>* made);

/// Loads that library, which is beside the program, and opens the network. The signals are handled
/// as before: libraries that come with it take some. Errors: kInvalidArgument, in one sentence:
/// there is no such library, provider, interface or port.
Result<std::shared_ptr<BulkNetwork>> LoadBulkNetwork(const BulkOptions& options);

}  // namespace passel::fabric
