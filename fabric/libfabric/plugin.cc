// The library that fabric/load_network.cc loads.

#include "fabric/libfabric/fabric_network.h"

extern "C" __attribute__((visibility("default"))) void PASSEL_FABRIC_ENTRY(
    const passel::fabric::BulkOptions& options,
    passel::Result<std::unique_ptr<passel::fabric::BulkNetwork>>* made) {
  passel::fabric::SetProviderDefaults();
  passel::Result<std::unique_ptr<passel::fabric::FabricNetwork>> network =
      passel::fabric::FabricNetwork::Open(options);
  if (network.ok()) {
    *made = std::unique_ptr<passel::fabric::BulkNetwork>(std::move(*network));
  } else {
    *made = network.status();
  }
}
