// The conformance suite over libfabric: every ps in a process of its own. Built twice: all modes
// are in the slow suite.

#include "fabric/libfabric/fabric_network.h"
#include "fabric/provider_defaults.h"
#include "fabric/remote_ps.h"
#include "store_conformance.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

std::shared_ptr<const Carrier> CarrierOver(const std::string& provider) {
  fabric::BulkOptions options;
  options.provider = provider;
  Result<std::unique_ptr<fabric::FabricNetwork>> network = fabric::FabricNetwork::Open(options);
  PASSEL_CHECK(network.ok(), network.status().message().c_str());
  return MakeTcpCarrier({.one_host = true, .bulk = std::move(*network)});
}

StoreCase Over(const std::string& name, const std::string& provider, int shards) {
  return {name + std::to_string(shards), shards, [provider](const StorePlan& plan) {
            return std::make_unique<RemoteHost>(plan, Faults(), /*seed=*/7, "",
                                                std::chrono::seconds(5), CarrierOver(provider));
          }};
}

#if defined(PASSEL_FABRIC_ALL_MODES)
// Even workers share the memory of even ps, odd ones that of odd ps.
StoreCase MixedOver(const std::string& name, const std::string& provider, int shards) {
  return {name + std::to_string(shards), shards, [provider](const StorePlan& plan) {
            auto host = std::make_unique<RemoteHost>(
                plan, Faults(), /*seed=*/7, "", std::chrono::seconds(5), CarrierOver(provider));
            host->shares = [](int worker, int shard) { return (worker & 1) == (shard & 1); };
            return host;
          }};
}

const std::vector<StoreCase> kAll = {Over("OverTcp", "tcp;ofi_rxm", 1),
                                     Over("OverTcp", "tcp;ofi_rxm", 3), Over("OverShm", "shm", 3),
                                     MixedOver("MixOverTcp", "tcp;ofi_rxm", 2)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(All, kAll);
#else
// One mode of each kind, and what they are about: each test starts its ps, and libfabric takes its
// time to begin.
const std::vector<StoreCase> kTcp = {Over("OverTcp", "tcp;ofi_rxm", 1)};
constexpr Mode kLocked[] = {Mode::kLocked};
constexpr Mode kBarrier[] = {Mode::kBarrier};
PASSEL_INSTANTIATE_STORE_SUITE(Tcp, AtOnceConformance, kTcp, kLocked);
PASSEL_INSTANTIATE_STORE_SUITE(Tcp, RoundConformance, kTcp, kBarrier);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LockFreeConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReplicasConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SspConformance);
#endif

}  // namespace
}  // namespace passel::testing
