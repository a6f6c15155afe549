// network_impl.h - what endpoints take from a Network.

#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "fabric/libfabric/network.h"
#include "fabric/libfabric/objects.h"

namespace passel::fabric {

/// What a transfer says of its memory; registered for that transfer alone if nobody else has.
struct Registration {
  void* descriptor = nullptr;
  MemoryRegion own;
};

struct Network::Impl {
  Result<MemoryRegion> RegisterRegion(std::span<const std::byte> memory);
  Result<Registration> Cover(std::span<const std::byte> memory);

  NetworkOptions options;
  bool registers = false;
  // In the order of their making: closed from the end.
  Info info;
  FabricObject fabric;
  DomainObject domain;
  std::atomic<std::uint64_t> next_key{0x70730000};
  std::mutex mutex;
  struct Region {
    std::size_t bytes;
    MemoryRegion object;
  };
  std::multimap<const std::byte*, Region> regions;  // by their first byte, under `mutex`
};

}  // namespace passel::fabric
