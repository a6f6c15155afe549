// store_suite.h - the fixture of the conformance suite, and what its tests share.
//
// Workers are threads here, each with a store of its own. Where PASSEL_ATOMIC_VALUES is defined
// (ThreadSanitizer builds) a view is a copy; the tests that tell them apart say so.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "conformance/reference_model.h"
#include "store/membership.h"
#include "store/open_store.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"

namespace passel::testing {

/// One job's parameters. Outlives the stores that are opened on it.
class StoreHost {
 public:
  virtual ~StoreHost() = default;
  virtual Result<std::unique_ptr<ParameterStore>> Open(int worker, const WaitOptions& options) = 0;
  /// The shards: with them the suite also plays deaths and evictions.
  virtual std::vector<ShardMemory> Memory() = 0;
  /// Workers compute on that memory, and update it themselves.
  virtual bool InPlace() const { return true; }
};

struct StoreCase {
  std::string name;
  int shards;
  std::function<std::unique_ptr<StoreHost>(const StorePlan&)> make;
  /// More than 1: it is slow, and the n-th part of what a test repeats often is enough.
  int part = 1;
};
inline void PrintTo(const StoreCase& store_case, std::ostream* out) { *out << store_case.name; }

inline constexpr Mode kAllModes[] = {Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Mode::kReplicas,
                                     Mode::kSsp};
inline constexpr Mode kRoundModes[] = {Mode::kBarrier, Mode::kReplicas};
inline constexpr Mode kAtOnceModes[] = {Mode::kHogwild, Mode::kLocked, Mode::kSsp};
inline constexpr Mode kLockFreeModes[] = {Mode::kHogwild, Mode::kSsp};
inline constexpr Mode kReplicasMode[] = {Mode::kReplicas};
inline constexpr Mode kSspMode[] = {Mode::kSsp};

/// Wide enough for tests in which one worker pushes alone.
inline constexpr int kWideBound = 1000;

inline constexpr auto kLong = std::chrono::seconds(60);  // never waited for in a good run
inline constexpr auto kBound = std::chrono::seconds(5);  // "at once", on a busy machine

/// Matrices, vectors, a scalar and a variable without elements; 256-float blocks, the last of each
/// shard not full.
inline StorePlan TestPlan(Mode mode, int shards, int workers, const OptimizerConfig& optimizer) {
  StorePlan plan;
  plan.mode = mode;
  plan.num_workers = workers;
  if (mode == Mode::kSsp) plan.mode.number = kWideBound;
  plan.gradient_slots = 3;
  plan.block_floats = 256;
  plan.optimizer = optimizer;
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes = {
      {"hid_w", {37, 11}}, {"hid_b", {11}},  {"scale", {}},
      {"sm_w", {130, 33}}, {"none", {0, 4}}, {"sm_b", {33}}};
  std::vector<VariableInfo> variables;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    VariableInfo v;
    v.name = v.logical = shapes[i].first;
    v.shape = shapes[i].second;
    v.shard = static_cast<int>(i) % shards;
    variables.push_back(v);
  }
  auto table = VariableTable::Build(variables, shards);
  PASSEL_CHECK(table.ok(), "the plan of the tests is valid");
  plan.variables = *table;
  return plan;
}

inline OptimizerConfig Sgd(double rate) {
  OptimizerConfig config;
  config.learning_rate = rate;
  return config;
}

inline std::vector<OptimizerConfig> AllReferenceOptimizers() {
  std::vector<OptimizerConfig> configs;
  for (const char* name : {"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"}) {
    OptimizerConfig config = *ParseOptimizer(name);
    config.learning_rate = 0.05;
    if (config.kind == OptimizerKind::kRmsProp) config.rmsprop_momentum = 0.5;
    configs.push_back(config);
  }
  return configs;
}

inline void FillGradient(ParameterStore& store, GradientBuffer& buffer, float value) {
  for (VarId id = 0; id < store.variables().size(); ++id) {
    for (float& g : buffer.values(id)) g = value;
  }
}

/// The gradient of TestGradient(), and the same as one vector per variable.
inline void FillTestGradient(ParameterStore& store, GradientBuffer& buffer, int worker,
                             std::uint64_t step) {
  std::uint64_t element = 0;
  for (VarId id = 0; id < store.variables().size(); ++id) {
    for (float& g : buffer.values(id)) g = TestGradient(worker, step, element++);
  }
}

inline void InitializeForReference(ParameterStore& store) {
  std::uint64_t element = 0;
  ASSERT_TRUE(store
                  .Initialize([&](VarId, std::span<float> values) {
                    for (float& x : values) x = TestInitialValue(element++);
                  })
                  .ok());
}

inline void InitializeTo(ParameterStore& store, float value) {
  const Status status = store.Initialize([&](VarId, std::span<float> values) {
    for (float& x : values) x = value;
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
}

/// What came with the answer to the last push may be older than what others have pushed since: the
/// second pull in a row is current.
inline Result<ParamView> PullLatest(ParameterStore& store) {
  Result<ParamView> view = store.Pull(PullMode::kCopy);
  if (!view.ok()) return view;
  return store.Pull(PullMode::kCopy);
}

/// Bit for bit.
inline void ExpectValues(ParameterStore& store, const ReferenceModel& reference,
                         const std::string& what) {
  Result<ParamView> view = PullLatest(store);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  for (VarId id = 0; id < store.variables().size(); ++id) {
    const std::span<const float> got = view->values(id);
    const std::vector<float>& want = reference.values(id);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
          << what << ": " << store.variables()[id].name << "[" << i << "] is " << got[i]
          << ", must be " << want[i];
    }
  }
}

inline Result<Ticket> PushOnly(ParameterStore& store, float gradient) {
  Result<ParamView> view = store.Pull(PullMode::kView);
  if (!view.ok()) return view.status();
  GradientBuffer buffer = store.LendGradient();
  FillGradient(store, buffer, gradient);
  return store.Push(buffer, view->stamp(), Deadline::After(kLong));
}

inline Result<PushOutcome> PushConstant(ParameterStore& store, float gradient) {
  const Result<Ticket> ticket = PushOnly(store, gradient);
  if (!ticket.ok()) return ticket.status();
  return store.Wait(*ticket, Deadline::After(kLong));
}

/// Every element must be this.
inline void ExpectAll(ParameterStore& store, float value) {
  const Result<ParamView> view = PullLatest(store);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  for (VarId id = 0; id < store.variables().size(); ++id) {
    for (const float x : view->values(id)) ASSERT_EQ(x, value) << store.variables()[id].name;
  }
}

class StoreConformance : public ::testing::TestWithParam<std::tuple<StoreCase, Mode>> {
 protected:
  using StorePtr = std::unique_ptr<ParameterStore>;

  Mode mode() const { return std::get<1>(GetParam()); }
  bool rounds() const { return IsRoundMode(mode()); }
  int shards() const { return std::get<0>(GetParam()).shards; }

  void Make(int workers, const OptimizerConfig& optimizer = Sgd(1.0)) {
    plan_ = TestPlan(mode(), shards(), workers, optimizer);
    host_ = std::get<0>(GetParam()).make(plan_);
  }
  void MakeReplicas(int workers, int replicas, const OptimizerConfig& optimizer = Sgd(1.0)) {
    plan_ = TestPlan(mode(), shards(), workers, optimizer);
    plan_.mode.number = replicas;
    host_ = std::get<0>(GetParam()).make(plan_);
  }
  void MakeSsp(int workers, int bound) {
    plan_ = TestPlan(mode(), shards(), workers, Sgd(1.0));
    plan_.mode.number = bound;
    host_ = std::get<0>(GetParam()).make(plan_);
  }

  WaitOptions Options() const {
    WaitOptions options;
    options.spin = std::chrono::microseconds(20);  // more threads than cores
    return options;
  }

  StorePtr Open(int worker, const WaitOptions& options) {
    Result<StorePtr> store = host_->Open(worker, options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }
  StorePtr Open(int worker) { return Open(worker, Options()); }

  /// Workers 0..n-1, initialised to 0 and ready to pull.
  std::vector<StorePtr> OpenAll(int n) {
    std::vector<StorePtr> stores;
    for (int k = 0; k < n; ++k) stores.push_back(Open(k));
    InitializeTo(*stores[0], 0.0F);
    for (int k = 1; k < n; ++k) {
      EXPECT_TRUE(stores[k]->WaitUntilInitialized(Deadline::After(kLong)).ok());
    }
    return stores;
  }

  static ParamView Pull(ParameterStore& store, PullMode pull = PullMode::kView) {
    Result<ParamView> view = store.Pull(pull);
    EXPECT_TRUE(view.ok()) << view.status().ToString();
    return view.ok() ? *view : ParamView();
  }

  static Result<PushOutcome> PushAndWait(ParameterStore& store, const GradientBuffer& gradient,
                                         std::uint32_t stamp) {
    Result<Ticket> ticket = store.Push(gradient, stamp, Deadline::After(kLong));
    if (!ticket.ok()) return ticket.status();
    return store.Wait(*ticket, Deadline::After(kLong));
  }

  StorePlan plan_;
  std::unique_ptr<StoreHost> host_;
};

// What concerns some of the modes alone.
class RoundConformance : public StoreConformance {};
class ReplicasConformance : public StoreConformance {};
class SspConformance : public StoreConformance {};
class AtOnceConformance : public StoreConformance {};
class LockFreeConformance : public StoreConformance {};

inline std::string NameOfCase(const ::testing::TestParamInfo<StoreConformance::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::string(ModeName(std::get<1>(info.param)));
}

/// Each suite on each of `cases`, a std::vector<StoreCase>, in the modes that it is about.
#define PASSEL_INSTANTIATE_STORE_CONFORMANCE(prefix, cases)                           \
  PASSEL_INSTANTIATE_STORE_SUITE(prefix, StoreConformance, cases, kAllModes);         \
  PASSEL_INSTANTIATE_STORE_SUITE(prefix, RoundConformance, cases, kRoundModes);       \
  PASSEL_INSTANTIATE_STORE_SUITE(prefix, AtOnceConformance, cases, kAtOnceModes);     \
  PASSEL_INSTANTIATE_STORE_SUITE(prefix, LockFreeConformance, cases, kLockFreeModes); \
  PASSEL_INSTANTIATE_STORE_SUITE(prefix, ReplicasConformance, cases, kReplicasMode);  \
  PASSEL_INSTANTIATE_STORE_SUITE(prefix, SspConformance, cases, kSspMode)
#define PASSEL_INSTANTIATE_STORE_SUITE(prefix, suite, cases, modes)                              \
  INSTANTIATE_TEST_SUITE_P(                                                                      \
      prefix, suite, ::testing::Combine(::testing::ValuesIn(cases), ::testing::ValuesIn(modes)), \
      NameOfCase)

}  // namespace passel::testing
