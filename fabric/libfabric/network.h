// network.h - one provider of libfabric on one address of this host.
//
// Threads    Any, at the same time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace passel::fabric {

/// Sets what ofi_rxm reads from the environment when it is first used, as far as it is not set:
/// buffers for one peer, where it would make some for many, which are 70 MB for each pipe.
/// REQUIRES: no other thread runs yet.
void SetProviderDefaults();

struct NetworkOptions {
  /// As libfabric names it. "tcp" means "tcp;ofi_rxm".
  std::string provider = "tcp;ofi_rxm";
  /// What others reach this process by: an IPv4 or IPv6 address in numbers. Empty: the first of
  /// `interface`, and without that 127.0.0.1. Providers without such addresses (shm) take neither.
  std::string address;
  std::string interface;
  /// Each pipe listens on a port of its own, out of `ports` from `port` on; 0: any that is free.
  std::uint16_t port = 0;
  int ports = 1;
  /// Also where the provider works with memory that is not registered.
  bool always_register = false;
};

/// The whole name of the provider: "verbs" may be "verbs;ofi_rxm". Errors: kNotFound, naming those
/// that this machine has.
Result<std::string> CheckProvider(const std::string& provider);

class Network;

/// Memory that pipes send from and receive into without registering it each time. The memory
/// outlives it. Move-only.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&&) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&&) noexcept;
  ~RegisteredMemory();

 private:
  friend class Network;
  std::shared_ptr<Network> network_;
  const std::byte* first_ = nullptr;
};

class Network : public std::enable_shared_from_this<Network> {
 public:
  /// Errors: kInvalidArgument for an address that is none; kNotFound when there is no such
  /// interface, address or provider here, naming it.
  static Result<std::shared_ptr<Network>> Open(const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const NetworkOptions& options() const;
  /// Whether the provider wants memory to be registered, or always_register does.
  bool registers() const;
  /// Until its end no pipe that uses it may have anything under way. Where nothing is to be
  /// registered it does nothing.
  Result<RegisteredMemory> Register(std::span<const std::byte> memory);

  struct Impl;
  Impl& impl() { return *impl_; }  ///< for this folder

 private:
  friend class RegisteredMemory;
  explicit Network(std::unique_ptr<Impl> impl);
  void Forget(const std::byte* first);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace passel::fabric
