// mode_plans.h - what the tests of a changing mode share.

#pragma once

#include <string>

#include "conformance/store_suite.h"
#include "store/mode_change.h"

namespace passel::testing {

/// REQUIRES: `text` names one, as in "replicas=3".
inline ModeSetting Setting(const std::string& text) { return *ParseModeSetting(text); }

/// Whether every update stands whole in the values: none is lost to another.
inline bool IsLossless(Mode mode) { return mode != Mode::kHogwild && mode != Mode::kSsp; }

/// A job that begins in `first`, with SGD of rate 1.
inline StorePlan PlanIn(const ModeSetting& first, int shards, int workers) {
  StorePlan plan = TestPlan(first.mode, shards, workers, Sgd(1.0));
  plan.mode = first;
  return plan;
}

}  // namespace passel::testing
