// fabric_pipe.h - a pipe over libfabric.
//
// Made in two steps, since the ends must know each other's addresses and tags before anything is
// said: Open(), exchange, Join(). How they are exchanged is the caller's matter, and so is the end
// of a peer: libfabric never reports it. Who learns of it calls Close(). What is under way with a
// peer that does not move ends at the stall limit.
//
// A header goes by one message that the other end has room for. A bulk goes by messages of their
// own, from the sender's memory into that of ReadBulk() without a copy where the provider can, and
// waits at the sender until it is read: two ends that send a bulk to each other at the same time,
// and do not read, wait until the stall limit.
//
// After any error the pipe is broken for good, and nothing of it touches the caller's memory.
//
// Threads    As for Pipe; Close() from any thread at any time. Whoever waits makes the provider
//            work, for the others too.

#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fabric/bulk_network.h"
#include "fabric/libfabric/network.h"

namespace passel::fabric {

struct FabricPipeOptions {
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(5);
  /// How long after the last message who waits goes on polling before it sleeps. As long as more
  /// threads of this process poll than there are processors but one, they sleep at once.
  std::chrono::nanoseconds spin = std::chrono::milliseconds(1);
  /// They also do while more threads of the machine want a processor than there are.
  bool gives_way = true;
  /// Of the bulk of one message that is received.
  std::uint64_t most_floats = std::uint64_t{1} << 34;
  /// A bulk is sent in parts of this size, so many at a time. REQUIRES: 4 KiB to 4 MiB; 1 to 16.
  std::size_t chunk_bytes = std::size_t{1} << 20;
  std::size_t chunks_under_way = 4;
};

class FabricPipe final : public BulkPipe {
 public:
  /// Errors: those of the provider; kAlreadyExists when all ports are in use, naming them.
  static Result<std::unique_ptr<FabricPipe>> Open(const std::shared_ptr<Network>& network,
                                                  const FabricPipeOptions& options = {});
  /// Nobody uses it any more.
  ~FabricPipe() override;
  FabricPipe(const FabricPipe&) = delete;
  FabricPipe& operator=(const FabricPipe&) = delete;

  const std::vector<std::uint8_t>& local_address() const override { return local_address_; }
  Status Join(std::span<const std::uint8_t> peer, const PipeTags& tags) override;

  /// Messages on other tags that were thrown away (ofi_rxm alone; others keep them).
  std::uint64_t strangers() const;

  void Close(const Status& why) override;

  std::chrono::nanoseconds stall_limit() const override { return options_.stall_limit; }
  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override;
  Result<passel::fabric::Arrival> Receive(Deadline deadline) override;
  /// By a copy: what is under way is in memory of the pipe's own.
  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override;
  using Pipe::ReadBulk;
  Status ReadBulk(std::span<float> into, const std::function<bool()>& go_on) override;

 private:
  struct State;
  class Use;
  FabricPipe(std::unique_ptr<State> state, const FabricPipeOptions& options);

  const FabricPipeOptions options_;
  std::vector<std::uint8_t> local_address_;
  std::mutex sending_;  // held from the first to the last part of a message; before State::mutex
  const std::unique_ptr<State> state_;
};

}  // namespace passel::fabric
