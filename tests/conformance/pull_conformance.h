// pull_conformance.h - views, copies and stamps.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(AtOnceConformance, ViewCostsNoCopyAndShowsThePushesOfOthers) {
#if defined(PASSEL_ATOMIC_VALUES)
  GTEST_SKIP() << "in this build a view is a copy";
#endif
  Make(2);
  if (!host_->InPlace()) GTEST_SKIP() << "this store has a copy of its own";
  auto stores = OpenAll(2);
  const ParamView view = Pull(*stores[0]);
  std::vector<const float*> addresses;
  for (VarId id = 0; id < plan_.variables.size(); ++id) {
    addresses.push_back(view.values(id).data());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(addresses.back()) % 64, 0u);
    EXPECT_EQ(view.values(id).size(), plan_.variables[id].elements);
  }
  ASSERT_TRUE(PushConstant(*stores[1], -1).ok());
  EXPECT_EQ(view.values(0)[5], 1.0F);
  EXPECT_EQ(view.version(), 0u) << "the version is that of the pull";
  const ParamView again = Pull(*stores[0]);
  for (VarId id = 0; id < plan_.variables.size(); ++id) {
    EXPECT_EQ(again.values(id).data(), addresses[id]);
  }
  EXPECT_EQ(again.version(), 1u);
}

TEST_P(AtOnceConformance, CopyStaysWhatItWasWhileOthersPush) {
  Make(2);
  auto stores = OpenAll(2);
  const ParamView copy = Pull(*stores[0], PullMode::kCopy);
  ASSERT_TRUE(PushConstant(*stores[1], -1).ok());
  for (VarId id = 0; id < plan_.variables.size(); ++id) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.values(id).data()) % 64, 0u);
    for (const float x : copy.values(id)) ASSERT_EQ(x, 0.0F);
  }
  ExpectAll(*stores[0], 1.0F);
}

TEST_P(StoreConformance, CopyBringsEveryValueToItsPlace) {
  Make(1);
  StorePtr store = Open(0);
  InitializeForReference(*store);
  const ReferenceModel reference(plan_.variables, plan_.optimizer);
  const ParamView copy = Pull(*store, PullMode::kCopy);
  for (VarId id = 0; id < plan_.variables.size(); ++id) {
    const std::span<const float> values = copy.values(id);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], reference.values(id)[i]) << plan_.variables[id].name << "[" << i << "]";
    }
  }
}

TEST_P(AtOnceConformance, StampsNameTheLastEightPulls) {
  Make(2);
  auto stores = OpenAll(2);
  // Pull k sees k updates of the other worker.
  std::vector<std::uint32_t> stamps;
  for (int k = 0; k < 8; ++k) {
    stamps.push_back(Pull(*stores[0]).stamp());
    ASSERT_TRUE(PushConstant(*stores[1], 0).ok());
  }
  std::uint64_t version = 8;
  for (std::size_t k = 0; k < 8; ++k, ++version) {
    GradientBuffer buffer = stores[0]->LendGradient();
    FillGradient(*stores[0], buffer, 0);
    const Result<PushOutcome> outcome = PushAndWait(*stores[0], buffer, stamps[k]);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->staleness, version - k);
  }
}

}  // namespace passel::testing
