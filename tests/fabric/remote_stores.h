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

inline Result<PushOutcome> PushAndAwait(ParameterStore& store, float gradient) {
  const Result<Ticket> ticket = PushOnly(store, gradient);
  if (!ticket.ok()) return ticket.status();
  return store.Wait(*ticket, Deadline::After(kLong));
}

inline void ExpectAll(ParameterStore& store, float value) {
  const Result<ParamView> view = PullLatest(store);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  for (VarId id = 0; id < store.variables().size(); ++id) {
    for (const float x : view->values(id)) ASSERT_EQ(x, value);
  }
}

}  // namespace passel::testing
