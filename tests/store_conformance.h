// store_conformance.h - what every ParameterStore must do, whatever carries it.
//
// A carrier brings a StoreCase, and instantiates the suite in one small file:
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, StoreConformance, testing::Combine(
//       testing::Values(kInProcess1, kInProcess3), testing::ValuesIn(kAllModes)), NameOfCase);

#pragma once

#include "conformance/life_conformance.h"
#include "conformance/pull_conformance.h"
#include "conformance/push_conformance.h"
#include "conformance/replicas_conformance.h"
#include "conformance/rounds_conformance.h"
#include "conformance/ssp_conformance.h"
#include "conformance/takeover_conformance.h"
#include "conformance/waiting_conformance.h"
