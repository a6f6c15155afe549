// provider_defaults.h - whoever includes it uses libfabric as the program does.

#pragma once

#include "fabric/libfabric/network.h"

namespace passel::testing {

// Before any thread runs.
inline const bool kProvidersAreSet = (fabric::SetProviderDefaults(), true);

}  // namespace passel::testing
