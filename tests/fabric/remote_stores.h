// remote_stores.h - what the tests of stores over messages do again and again.

#pragma once

#include <chrono>
#include <memory>

#include "conformance/store_suite.h"

namespace passel::testing {

inline WaitOptions Engine(std::chrono::milliseconds stall_limit = std::chrono::minutes(1)) {
  WaitOptions options;
  options.spin = std::chrono::microseconds(20);
  options.stall_limit = stall_limit;
  return options;
}

inline std::unique_ptr<ParameterStore> OpenOn(StoreHost& host, int worker,
                                              const WaitOptions& engine = Engine()) {
  auto store = host.Open(worker, engine);
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? std::move(*store) : nullptr;
}

}  // namespace passel::testing
