// store_conformance.h - what every ParameterStore must do, whatever carries it.
//
// A carrier brings its StoreCases, and instantiates the suites in one small file:
//
//   const std::vector<StoreCase> kCases = {{"OnTheHeap", 1, MakeHeap}, {"OnTheHeap3", 3,
//   MakeHeap}}; PASSEL_INSTANTIATE_STORE_CONFORMANCE(InProcess, kCases);

#pragma once

#include "conformance/life_conformance.h"
#include "conformance/pull_conformance.h"
#include "conformance/push_conformance.h"
#include "conformance/rates_conformance.h"
#include "conformance/replicas_conformance.h"
#include "conformance/rounds_conformance.h"
#include "conformance/ssp_conformance.h"
#include "conformance/takeover_conformance.h"
#include "conformance/waiting_conformance.h"
