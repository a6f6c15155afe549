// fabric_ends.h - two pipes over libfabric in this process that have met.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fabric/libfabric/fabric_pipe.h"
#include "fabric/provider_defaults.h"

namespace passel::testing {

inline constexpr auto kSoon = std::chrono::seconds(10);  // never waited for in a good run

struct Carrier {
  std::string name;
  fabric::NetworkOptions network;
};
inline void PrintTo(const Carrier& carrier, std::ostream* out) { *out << carrier.name; }

inline Carrier CarrierOf(const std::string& name, const std::string& provider,
                         const std::string& address = "", bool registers = false) {
  Carrier carrier{name, {}};
  carrier.network.provider = provider;
  carrier.network.address = address;
  carrier.network.always_register = registers;
  return carrier;
}
/// Both ways of treating memory, and both kinds of address.
inline std::vector<Carrier> AllCarriers() {
  return {CarrierOf("Tcp", "tcp;ofi_rxm"), CarrierOf("TcpV6Registered", "tcp", "::1", true),
          CarrierOf("Shm", "shm"), CarrierOf("ShmRegistered", "shm", "", true)};
}

inline bool IsShm(const Carrier& carrier) { return carrier.network.provider == "shm"; }
/// Between two processes it does not. It also copies a message that is too long for ever.
inline constexpr const char* kShmCrashes =
    "libfabric 1.17: shm crashes when it sends to an endpoint of the same process that is closed";

struct Ends {
  std::shared_ptr<fabric::Network> network;
  std::unique_ptr<fabric::FabricPipe> a, b;
};

inline std::shared_ptr<fabric::Network> OpenNetwork(const fabric::NetworkOptions& options) {
  auto network = fabric::Network::Open(options);
  EXPECT_TRUE(network.ok()) << network.status().ToString();
  return *network;
}

inline std::unique_ptr<fabric::FabricPipe> OpenPipe(const std::shared_ptr<fabric::Network>& network,
                                                    const fabric::FabricPipeOptions& options = {}) {
  auto pipe = fabric::FabricPipe::Open(network, options);
  EXPECT_TRUE(pipe.ok()) << pipe.status().ToString();
  return pipe.ok() ? std::move(*pipe) : nullptr;
}

inline void Meet(fabric::FabricPipe& a, fabric::FabricPipe& b) {
  const auto tags = fabric::PipeTags::Random();
  ASSERT_TRUE(tags.ok());
  const Status first = a.Join(b.local_address(), *tags);
  ASSERT_TRUE(first.ok()) << first.ToString();
  const Status second = b.Join(a.local_address(), tags->OfTheOtherEnd());
  ASSERT_TRUE(second.ok()) << second.ToString();
}

inline std::vector<std::uint8_t> Header(std::size_t bytes, std::uint8_t first = 1) {
  std::vector<std::uint8_t> header(bytes);
  std::iota(header.begin(), header.end(), first);
  return header;
}
inline std::vector<float> Numbers(std::size_t count, float first = 0) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// The first message of a pipe takes both ends: providers connect then.
inline void Greet(fabric::FabricPipe& a, fabric::FabricPipe& b) {
  std::thread other([&] { EXPECT_TRUE(b.Receive(Deadline::After(kSoon)).ok()); });
  const Status sent = a.Send(Header(1), {});
  EXPECT_TRUE(sent.ok()) << sent.ToString();
  other.join();
}

inline Ends MakeEnds(const fabric::NetworkOptions& network,
                     const fabric::FabricPipeOptions& options = {}) {
  Ends ends;
  ends.network = OpenNetwork(network);
  ends.a = OpenPipe(ends.network, options);
  ends.b = OpenPipe(OpenNetwork(network), options);
  Meet(*ends.a, *ends.b);
  return ends;
}

/// They have said something.
inline Ends MakeGreetedEnds(const fabric::NetworkOptions& network,
                            const fabric::FabricPipeOptions& options = {}) {
  Ends ends = MakeEnds(network, options);
  Greet(*ends.a, *ends.b);
  return ends;
}

}  // namespace passel::testing
