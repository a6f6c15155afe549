// passel_instructions - runs a push, a pull and a round a known number of times, so that
// valgrind --tool=callgrind can count their instructions. bench/instructions.py runs it.
//
// What is counted lies between two requests to callgrind; each cell ends with a dump that bears its
// name. Everything is deterministic: one worker, so that nobody waits, and start blocks from a
// fixed seed. memcpy and its kin come from instructions_memory.cc, so that those of libc, which
// differ from machine to machine, do not count.
//
// Standard output: one JSON object, {"build", "isa", "slow_push_percent", "cells": {NAME: CALLS}}.
// "empty" is the cell that counts nothing: what the requests themselves cost.
// Exit codes: 0 done; 1 a call failed; 2 wrong usage.

#include <fmt/core.h>
#include <valgrind/callgrind.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/log.h"
#include "bench/one_worker.h"
#include "bench/slow_push.h"
#include "bench/stores.h"

namespace passel::bench {
namespace {

// The start block of a sweep is random, though from a fixed seed: enough calls for an average.
constexpr int kWarmUp = 4;
constexpr int kCalls = 32;

constexpr std::size_t kMlpElements = 79510;  // 784-100-10

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

struct Cell {
  enum class What { kEmpty, kPush, kPullView, kPullCopy };
  What what;
  Mode mode;
  const char* optimizer;
  std::size_t elements;

  std::string Name() const {
    switch (what) {
      case What::kEmpty:
        return "empty";
      case What::kPullView:
        return fmt::format("pull/view/elems:{}", elements);
      case What::kPullCopy:
        return fmt::format("pull/copy/elems:{}", elements);
      case What::kPush:
        break;
    }
    return fmt::format("{}/mode:{}/opt:{}/elems:{}", IsRoundMode(mode) ? "round" : "push",
                       ModeName(mode), optimizer, elements);
  }
};

std::vector<Cell> Cells() {
  using What = Cell::What;
  return {
      {What::kEmpty, Mode::kHogwild, "sgd", 16},
      {What::kPush, Mode::kHogwild, "sgd", 16},  // what a push costs beside the update
      {What::kPush, Mode::kHogwild, "sgd", kMlpElements},
      {What::kPush, Mode::kHogwild, "adam", kMlpElements},
      {What::kPush, Mode::kLocked, "sgd", kMlpElements},
      {What::kPush, Mode::kLocked, "adam", kMlpElements},
      {What::kPush, Mode::kBarrier, "sgd", 16},  // a round alone
      {What::kPush, Mode::kBarrier, "adam", kMlpElements},
      {What::kPullView, Mode::kHogwild, "sgd", kMlpElements},
      {What::kPullCopy, Mode::kHogwild, "sgd", kMlpElements},
  };
}

// One call of `cell`; what counts is between the two requests.
Status CallOnce(const Cell& cell, OneWorker& one, const StepScalars& scalars,
                const SlowPush& slow_push) {
  ParameterStore& store = *one.store;
  switch (cell.what) {
    case Cell::What::kEmpty:
      CALLGRIND_TOGGLE_COLLECT;
      CALLGRIND_TOGGLE_COLLECT;
      return {};
    case Cell::What::kPullView:
    case Cell::What::kPullCopy: {
      const PullMode mode = cell.what == Cell::What::kPullView ? PullMode::kView : PullMode::kCopy;
      CALLGRIND_TOGGLE_COLLECT;
      const Result<ParamView> view = store.Pull(mode);
      CALLGRIND_TOGGLE_COLLECT;
      return view.status();
    }
    case Cell::What::kPush:
      break;
  }
  PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kView));
  const GradientBuffer gradient = store.LendGradient();
  const Deadline deadline = Soon();
  const Version version = view.version();
  CALLGRIND_TOGGLE_COLLECT;
  const Result<Ticket> ticket = store.Push(gradient, view.stamp(), deadline);
  if (!ticket.ok()) return ticket.status();
  const Result<PushOutcome> outcome = store.Wait(*ticket, deadline);
  if (!IsRoundMode(cell.mode)) slow_push.AfterPush(scalars, one.arena->memory());
  CALLGRIND_TOGGLE_COLLECT;
  PASSEL_RETURN_IF_ERROR(outcome.status());
  if (!outcome->applied || outcome->version != version + 1) {
    return Internal("a push was not applied, or not as the next update");
  }
  return {};
}

Status Count(const Cell& cell, const SlowPush& slow_push) {
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan,
                          lab::FlatPlan(cell.mode, cell.optimizer, cell.elements, 1));
  PASSEL_ASSIGN_OR_RETURN(OneWorker one, OneWorker::Make(plan));
  PASSEL_RETURN_IF_ERROR(one.store->WaitUntilInitialized(Soon()));
  // Slots are lent in turn: each holds a gradient before anything is counted.
  for (int slot = 0; slot < one.arena->memory().gradient_slots; ++slot) {
    float* gradient = one.arena->memory().Gradient(0, slot);
    for (std::size_t i = 0; i < cell.elements; ++i) {
      gradient[i] = 1e-3F * static_cast<float>(static_cast<int>(i % 17) - 8);
    }
  }
  const StepScalars scalars = Prepare(plan.optimizer, 100);
  for (int i = 0; i < kWarmUp; ++i) {
    PASSEL_RETURN_IF_ERROR(CallOnce(cell, one, scalars, slow_push));
  }
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < kCalls; ++i) {
    PASSEL_RETURN_IF_ERROR(CallOnce(cell, one, scalars, slow_push));
  }
  const std::string name = cell.Name();  // a temporary would not live until the request is made
  CALLGRIND_DUMP_STATS_AT(name.c_str());
  return one.store->Leave();
}

int Main(int argc, char** argv) {
  if (argc > 1) {
    std::fprintf(stderr, "passel_instructions: takes no arguments, but got '%s'\n", argv[1]);
    return 2;
  }
  const Result<SlowPush> slow_push = SlowPush::FromEnvironment();
  if (!slow_push.ok()) {
    std::fprintf(stderr, "passel_instructions: %s\n", slow_push.status().message().c_str());
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  std::string cells;
  for (const Cell& cell : Cells()) {
    const Status counted = Count(cell, *slow_push);
    if (!counted.ok()) {
      std::fprintf(stderr, "passel_instructions: %s: %s\n", cell.Name().c_str(),
                   counted.message().c_str());
      return 1;
    }
    cells += fmt::format("{}\"{}\": {}", cells.empty() ? "" : ", ", cell.Name(), kCalls);
  }
  fmt::print(
      "{{\"build\": \"{}\", \"isa\": \"{}\", \"slow_push_percent\": {}, \"cells\": {{{}}}}}\n",
      PASSEL_INSTRUCTIONS_BUILD, CpuIsaName(ChosenCpuIsa()), slow_push->percent(), cells);
  return 0;
}

}  // namespace
}  // namespace passel::bench

int main(int argc, char** argv) { return passel::bench::Main(argc, argv); }
