// store_conformance.h - what every ParameterStore must do, whatever carries it.
//
// A carrier brings a StoreCase, and instantiates the suite in one small file:
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, StoreConformance, testing::Combine(
//       testing::Values(kInProcess1, kInProcess3), testing::ValuesIn(kAllModes)), NameOfCase);
//
// Workers are threads here, each with a store of its own. Where PASSEL_ATOMIC_VALUES is defined
// (ThreadSanitizer builds) a view is a copy; the tests that tell them apart say so.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "conformance/reference_update.h"
#include "store/in_process_store.h"
#include "store/membership.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"

namespace passel::testing {

/// One job's parameters. Outlives the stores that are opened on it.
class StoreHost {
 public:
  virtual ~StoreHost() = default;
  virtual Result<std::unique_ptr<ParameterStore>> Open(int worker,
                                                       const EngineOptions& options) = 0;
  /// The shards, where this process can address them; empty where it cannot. With them the suite
  /// also plays deaths and evictions.
  virtual std::vector<ShardMemory> Memory() = 0;
};

struct StoreCase {
  std::string name;
  int shards;
  std::function<std::unique_ptr<StoreHost>(const StorePlan&)> make;
};
inline void PrintTo(const StoreCase& store_case, std::ostream* out) { *out << store_case.name; }

inline constexpr Mode kAllModes[] = {Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Mode::kReplicas,
                                     Mode::kSsp};

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
  if (mode == Mode::kSsp) plan.staleness_bound = kWideBound;
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
  for (const char* name : {"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"}) {
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

/// All variables of a table under TestInitialValue() and TestGradient().
class ReferenceModel {
 public:
  ReferenceModel(const VariableTable& table, const OptimizerConfig& optimizer) {
    std::uint64_t element = 0;
    for (const VariableInfo& v : table.all()) {
      first_.push_back(element);
      std::vector<float> values(v.elements);
      for (float& x : values) x = TestInitialValue(element++);
      variables_.emplace_back(optimizer, std::move(values));
    }
  }
  /// Update `t` with several gradients per worker (and their number), each worker's added up first:
  /// gradient i of worker k is that of TestGradient(k + 100 * i).
  void StepOfSets(std::int64_t t, std::uint64_t step,
                  const std::vector<std::pair<int, int>>& workers) {
    for (std::size_t id = 0; id < variables_.size(); ++id) {
      std::vector<std::vector<float>> sums;
      int weight = 0;
      for (const auto& [worker, quota] : workers) {
        auto& sum = sums.emplace_back(variables_[id].values().size());
        for (std::size_t e = 0; e < sum.size(); ++e) {
          sum[e] = TestGradient(worker, step, first_[id] + e);
          for (int i = 1; i < quota; ++i) {
            sum[e] = sum[e] + TestGradient(worker + 100 * i, step, first_[id] + e);
          }
        }
        weight += quota;
      }
      variables_[id].Step(t, sums, weight);
    }
  }
  /// Update `t` with the gradients of step `step` of these workers, in this order.
  void Step(std::int64_t t, std::uint64_t step, const std::vector<int>& workers) {
    for (std::size_t id = 0; id < variables_.size(); ++id) {
      std::vector<std::vector<float>> gradients;
      for (const int worker : workers) {
        auto& g = gradients.emplace_back(variables_[id].values().size());
        for (std::size_t i = 0; i < g.size(); ++i) {
          g[i] = TestGradient(worker, step, first_[id] + i);
        }
      }
      variables_[id].Step(t, gradients);
    }
  }
  const std::vector<float>& values(VarId id) const { return variables_[id].values(); }

 private:
  std::vector<ReferenceVariable> variables_;
  std::vector<std::uint64_t> first_;
};

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

/// Bit for bit.
inline void ExpectValues(ParameterStore& store, const ReferenceModel& reference,
                         const std::string& what) {
  Result<ParamView> view = store.Pull(Selection::Everything(), PullMode::kCopy);
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
    plan_.replicas_to_aggregate = replicas;
    host_ = std::get<0>(GetParam()).make(plan_);
  }
  void MakeSsp(int workers, int bound) {
    plan_ = TestPlan(mode(), shards(), workers, Sgd(1.0));
    plan_.staleness_bound = bound;
    host_ = std::get<0>(GetParam()).make(plan_);
  }

  EngineOptions Options() const {
    EngineOptions options;
    options.spin = std::chrono::microseconds(20);  // more threads than cores
    return options;
  }

  StorePtr Open(int worker, const EngineOptions& options) {
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
    Result<ParamView> view = store.Pull(Selection::Everything(), pull);
    EXPECT_TRUE(view.ok()) << view.status().ToString();
    return view.ok() ? *view : ParamView();
  }

  static Result<PushOutcome> PushAndWait(ParameterStore& store, const GradientBuffer& gradient,
                                         std::uint32_t stamp) {
    Result<Ticket> ticket = store.Push(gradient, stamp, Deadline::After(kLong));
    if (!ticket.ok()) return ticket.status();
    return store.Wait(*ticket, Deadline::After(kLong));
  }

  static Result<PushOutcome> PushConstant(ParameterStore& store, float gradient) {
    Result<ParamView> view = store.Pull(Selection::Everything(), PullMode::kView);
    if (!view.ok()) return view.status();
    GradientBuffer buffer = store.LendGradient();
    FillGradient(store, buffer, gradient);
    return PushAndWait(store, buffer, view->stamp());
  }

  /// Every element must be this.
  static void ExpectAll(ParameterStore& store, float value) {
    const ParamView view = Pull(store, PullMode::kCopy);
    for (VarId id = 0; id < store.variables().size(); ++id) {
      for (const float x : view.values(id)) ASSERT_EQ(x, value) << store.variables()[id].name;
    }
  }

  StorePlan plan_;
  std::unique_ptr<StoreHost> host_;
};

inline std::string NameOfCase(const ::testing::TestParamInfo<StoreConformance::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::string(ModeName(std::get<1>(info.param)));
}

// --- Life ----------------------------------------------------------------------------------------

TEST_P(StoreConformance, ChiefInitialisesOnceAndWakesWhoWaits) {
  Make(2);
  StorePtr chief = Open(0);
  EXPECT_FALSE(chief->initialized());
  std::thread waiter([&] {
    StorePtr store = Open(1);
    const Status status = store->WaitUntilInitialized(Deadline::After(kLong));
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(store->initialized());
    ExpectAll(*store, 2.5F);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  InitializeTo(*chief, 2.5F);
  waiter.join();
  EXPECT_EQ(chief->Initialize([](VarId, std::span<float>) { FAIL(); }).code(),
            Code::kFailedPrecondition);
  ExpectAll(*chief, 2.5F);
}

TEST_P(StoreConformance, WaitForInitialisationEndsAtItsDeadline) {
  Make(2);
  StorePtr store = Open(1);
  const std::int64_t begin = MonotonicNs();
  const Status status = store->WaitUntilInitialized(Deadline::After(std::chrono::milliseconds(60)));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_GE(MonotonicNs() - begin, 60'000'000);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
}

TEST_P(StoreConformance, PullBeforeTheVariablesAreInitialisedIsRefused) {
  Make(2);
  StorePtr store = Open(1);
  EXPECT_EQ(store->Pull(Selection::Everything(), PullMode::kView).status().code(),
            Code::kFailedPrecondition);
}

TEST_P(StoreConformance, SecondOpenOfALiveWorkerIsRefusedWithItsPid) {
  Make(2);
  StorePtr store = Open(1);
  const Result<StorePtr> second = host_->Open(1, Options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), ::testing::HasSubstr(std::to_string(::getpid())));
  EXPECT_THAT(second.status().message(), ::testing::HasSubstr("worker/1"));
  // It left the one that is there alone.
  EXPECT_EQ(store->membership()[1].phase, Phase::kRunning);
  EXPECT_EQ(store->membership()[1].epoch, 1u);
}

TEST_P(StoreConformance, WorkerIndexOutOfRangeIsRefused) {
  Make(2);
  for (const int worker : {-1, 2, 1000}) {
    EXPECT_EQ(host_->Open(worker, Options()).status().code(), Code::kInvalidArgument);
  }
}

TEST_P(StoreConformance, WhoLeavesMayComeBackAsAnotherLife) {
  Make(1);
  StorePtr store = Open(0);
  InitializeTo(*store, 1.0F);
  EXPECT_TRUE(store->Leave().ok());
  EXPECT_TRUE(store->Leave().ok()) << "a second Leave() is nothing";
  EXPECT_EQ(store->membership()[0].phase, Phase::kDone);
  EXPECT_EQ(store->Pull(Selection::Everything(), PullMode::kView).status().code(), Code::kAborted);
  store = Open(0);
  EXPECT_TRUE(store->initialized());
  EXPECT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(store->membership()[0].epoch, 2u);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  ExpectAll(*store, 2.0F);
}

TEST_P(StoreConformance, MembershipShowsWhoIsThere) {
  Make(3);
  StorePtr store = Open(1);
  const std::vector<Member> members = store->membership();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].phase, Phase::kExpected);
  EXPECT_EQ(members[0].pid, 0);
  EXPECT_EQ(members[0].heartbeat_age_ns, 0);
  EXPECT_EQ(members[1].phase, Phase::kRunning);
  EXPECT_EQ(members[1].pid, ::getpid());
  EXPECT_EQ(members[1].epoch, 1u);
  EXPECT_EQ(members[2].worker, 2);
  EXPECT_EQ(store->worker(), 1);
  EXPECT_EQ(store->mode(), mode());
  EXPECT_EQ(store->variables().Hash(), plan_.variables.Hash());
}

// --- Pull ----------------------------------------------------------------------------------------

TEST_P(StoreConformance, ViewCostsNoCopyAndShowsThePushesOfOthers) {
#if defined(PASSEL_ATOMIC_VALUES)
  GTEST_SKIP() << "in this build a view is a copy";
#endif
  if (rounds()) GTEST_SKIP() << "in rounds nobody pushes alone";
  Make(2);
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

TEST_P(StoreConformance, CopyStaysWhatItWasWhileOthersPush) {
  if (rounds()) GTEST_SKIP() << "in rounds nobody pushes alone";
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

TEST_P(StoreConformance, SelectionBringsTheChosenRows) {
  Make(1);
  StorePtr store = Open(0);
  InitializeForReference(*store);
  const ReferenceModel reference(plan_.variables, plan_.optimizer);
  const VarId id = 3;  // (130, 33)
  const Result<ParamView> view =
      store->Pull(Selection::Only({{id, 7, 2}, {id, 129, 1}, {id, 130, 0}}), PullMode::kCopy);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  for (const std::size_t row : {7, 8, 129}) {
    for (std::size_t c = 0; c < 33; ++c) {
      ASSERT_EQ(view->values(id)[row * 33 + c], reference.values(id)[row * 33 + c]);
    }
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<Selection::Rows> wrong = {{id, 129, 2},       {id, -1, 1}, {id, 0, -1},
                                              {id, kMost, kMost}, {2, 0, 1},   {99, 0, 1}};
  for (const PullMode pull : {PullMode::kCopy, PullMode::kView}) {
    for (const Selection::Rows& rows : wrong) {
      EXPECT_EQ(store->Pull(Selection::Only({rows}), pull).status().code(), Code::kInvalidArgument)
          << rows.variable << " " << rows.first_row << " " << rows.rows;
    }
  }
}

TEST_P(StoreConformance, StampsNameTheLastEightPulls) {
  if (rounds()) GTEST_SKIP() << "in rounds nobody pushes alone";
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

// --- Push ----------------------------------------------------------------------------------------

TEST_P(StoreConformance, VersionGlobalStepAndStalenessAreAsDefined) {
  Make(2);
  auto stores = OpenAll(2);
  if (!rounds()) {
    const ParamView view = Pull(*stores[0]);
    GradientBuffer buffer = stores[0]->LendGradient();
    FillGradient(*stores[0], buffer, -1);
    for (std::uint64_t k = 1; k <= 3; ++k) {
      const Result<PushOutcome> other = PushConstant(*stores[1], -1);
      ASSERT_TRUE(other.ok());
      EXPECT_TRUE(other->applied);
      EXPECT_EQ(other->version, k);
      EXPECT_EQ(other->global_step, static_cast<std::int64_t>(k));
      EXPECT_EQ(other->staleness, 0u);
    }
    const Result<PushOutcome> outcome = PushAndWait(*stores[0], buffer, view.stamp());
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(outcome->applied);
    EXPECT_EQ(outcome->version, 4u);
    EXPECT_EQ(outcome->global_step, 4);
    EXPECT_EQ(outcome->staleness, 3u);
    EXPECT_EQ(stores[1]->global_step(), 4);
    EXPECT_EQ(stores[0]->counters().staleness.counts[3].load(), 1u);
    EXPECT_EQ(stores[0]->counters().staleness.maximum.load(), 3u);
  } else {
    for (std::uint64_t round = 1; round <= 3; ++round) {
      std::vector<std::thread> threads;
      for (auto& store : stores) {
        threads.emplace_back([&] {
          const Result<PushOutcome> outcome = PushConstant(*store, -1);
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          EXPECT_TRUE(outcome->applied);
          EXPECT_EQ(outcome->version, round);
          EXPECT_EQ(outcome->global_step, static_cast<std::int64_t>(round));
          EXPECT_EQ(outcome->staleness, 0u);
        });
      }
      for (std::thread& t : threads) t.join();
      EXPECT_EQ(stores[0]->global_step(), static_cast<std::int64_t>(round)) << "one per round";
    }
  }
  EXPECT_EQ(stores[0]->counters().local_steps.load(), rounds() ? 3u : 1u);
  EXPECT_EQ(stores[1]->counters().local_steps.load(), 3u);
  EXPECT_EQ(stores[0]->membership()[1].local_steps, 3u);
}

TEST_P(StoreConformance, NoUpdateOfTheCountingWorkloadIsLost) {
  constexpr int kWorkers = 4;
  constexpr int kPushes = 60;
  Make(kWorkers);
  auto stores = OpenAll(kWorkers);
  std::vector<std::thread> threads;
  for (int k = 0; k < kWorkers; ++k) {
    threads.emplace_back([&, k] {
      ParameterStore* store = stores[static_cast<std::size_t>(k)].get();
      for (int i = 0; i < kPushes; ++i) {
        const Result<PushOutcome> outcome = PushConstant(*store, -1);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        ASSERT_TRUE(outcome->applied);
      }
      EXPECT_TRUE(store->Leave().ok());
    });
  }
  for (std::thread& t : threads) t.join();
  StorePtr store = Open(0);
  ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  constexpr float kAll = kWorkers * kPushes;
  if (mode() == Mode::kLocked) ExpectAll(*store, kAll);
  if (rounds()) ExpectAll(*store, kPushes);  // the mean of four times -1
  if (mode() == Mode::kHogwild || mode() == Mode::kSsp) {
    const ParamView view = Pull(*store, PullMode::kCopy);
    for (VarId id = 0; id < plan_.variables.size(); ++id) {
      for (const float x : view.values(id)) {
        ASSERT_LE(x, kAll);
        ASSERT_GE(x, kPushes) << "every worker sees its own updates";
        ASSERT_EQ(x, std::floor(x));
      }
    }
  }
  EXPECT_EQ(store->global_step(), rounds() ? kPushes : kWorkers * kPushes);
  EXPECT_EQ(Pull(*store).version(), static_cast<Version>(store->global_step()));
}

TEST_P(StoreConformance, OneWorkerComputesWhatASingleProcessWould) {
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(1, optimizer);
    StorePtr store = Open(0);
    InitializeForReference(*store);
    ReferenceModel reference(plan_.variables, optimizer);
    for (int step = 0; step < 5; ++step) {
      const ParamView view = Pull(*store);
      GradientBuffer buffer = store->LendGradient();
      FillTestGradient(*store, buffer, 0, static_cast<std::uint64_t>(step));
      ASSERT_TRUE(PushAndWait(*store, buffer, view.stamp()).ok());
      reference.Step(step + 1, static_cast<std::uint64_t>(step), {0});
      ExpectValues(*store, reference, "step " + std::to_string(step + 1));
    }
  }
}

TEST_P(StoreConformance, WorkersShareTheStepCountOfAdam) {
  if (rounds()) GTEST_SKIP() << "in rounds the count is the round";
  const OptimizerConfig adam = *ParseOptimizer("adam");
  Make(2, adam);
  std::vector<StorePtr> stores;
  stores.push_back(Open(0));
  InitializeForReference(*stores[0]);
  stores.push_back(Open(1));
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ReferenceModel reference(plan_.variables, adam);
  for (int t = 1; t <= 6; ++t) {
    const int worker = t % 3 == 0 ? 1 : 0;
    ParameterStore& store = *stores[static_cast<std::size_t>(worker)];
    const ParamView view = Pull(store);
    GradientBuffer buffer = store.LendGradient();
    FillTestGradient(store, buffer, worker, static_cast<std::uint64_t>(t));
    ASSERT_TRUE(PushAndWait(store, buffer, view.stamp()).ok());
    reference.Step(t, static_cast<std::uint64_t>(t), {worker});
  }
  ExpectValues(*stores[0], reference, "after 6 updates of 2 workers");
}

TEST_P(StoreConformance, RoundsEqualASingleProcessOnTheMeanInTaskOrder) {
  if (!rounds()) GTEST_SKIP() << "for the round modes";
  constexpr int kWorkers = 3;
  constexpr int kRounds = 8;
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(kWorkers, optimizer);
    std::vector<StorePtr> stores;
    for (int k = 0; k < kWorkers; ++k) stores.push_back(Open(k));
    InitializeForReference(*stores[0]);
    std::vector<std::thread> threads;
    for (int k = 0; k < kWorkers; ++k) {
      threads.emplace_back([&, k] {
        ParameterStore& store = *stores[static_cast<std::size_t>(k)];
        ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
        ReferenceModel reference(plan_.variables, optimizer);
        for (int round = 1; round <= kRounds; ++round) {
          const ParamView view = Pull(store);
          GradientBuffer buffer = store.LendGradient();
          FillTestGradient(store, buffer, k, static_cast<std::uint64_t>(round));
          // Whoever arrives first must make no difference.
          if ((round + k) % kWorkers == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
          }
          const Result<PushOutcome> outcome = PushAndWait(store, buffer, view.stamp());
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          reference.Step(round, static_cast<std::uint64_t>(round), {0, 1, 2});
          // Everyone continues from the same values.
          ASSERT_NO_FATAL_FAILURE(ExpectValues(store, reference, "round " + std::to_string(round)));
        }
      });
    }
    for (std::thread& t : threads) t.join();
    ReferenceModel wrong_order(plan_.variables, optimizer);
    wrong_order.Step(1, 1, {2, 1, 0});
    ReferenceModel right_order(plan_.variables, optimizer);
    right_order.Step(1, 1, {0, 1, 2});
    EXPECT_TRUE(wrong_order.values(3) != right_order.values(3)) << "the order must be observable";
  }
}

TEST_P(StoreConformance, PaddingStaysZeroUnderEveryOptimizer) {
  std::vector<OptimizerConfig> optimizers = AllReferenceOptimizers();
  optimizers.push_back(*ParseOptimizer("ftrl"));
  optimizers.push_back(*ParseOptimizer("rmsprop"));
  optimizers.back().centered = 1;
  for (const OptimizerConfig& optimizer : optimizers) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(1, optimizer);
    const std::vector<ShardMemory> memory = host_->Memory();
    if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
    StorePtr store = Open(0);
    InitializeTo(*store, 1.0F);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(PushConstant(*store, 0.5F).ok());
    std::size_t padding = 0;
    for (int s = 0; s < shards(); ++s) {
      const ShardMemory& m = memory[static_cast<std::size_t>(s)];
      std::vector<bool> used(m.floats, false);
      for (const VariableInfo& v : plan_.variables.all()) {
        if (v.shard != s) continue;
        for (std::size_t i = 0; i < v.elements; ++i) used[v.offset + i] = true;
      }
      for (std::size_t i = 0; i < m.floats; ++i) {
        if (used[i]) {
          ASSERT_NE(m.values[i], 1.0F) << "an element was not updated";
        } else {
          ++padding;
          ASSERT_EQ(m.values[i], 0.0F) << "padding at " << i << " of shard " << s;
        }
      }
    }
    EXPECT_GT(padding, 0u);
  }
}

TEST_P(StoreConformance, GradientBuffersAreLentInTurn) {
  Make(2);
  auto stores = OpenAll(2);
  std::vector<int> slots;
  std::vector<float*> memory;
  for (int i = 0; i < 6; ++i) {
    GradientBuffer buffer = stores[0]->LendGradient();
    slots.push_back(buffer.slot());
    memory.push_back(buffer.values(3).data());
    EXPECT_EQ(buffer.values(3).size(), plan_.variables[3].elements);
  }
  if (rounds()) {
    EXPECT_THAT(slots, ::testing::Each(0)) << "a round reads slot 0 of every member";
  } else {
    EXPECT_THAT(slots, ::testing::ElementsAre(0, 1, 2, 0, 1, 2));
    EXPECT_NE(memory[0], memory[1]);
    EXPECT_NE(memory[1], memory[2]);
  }
  EXPECT_NE(stores[1]->LendGradient().values(3).data(), memory[0]) << "of another worker";
}

TEST_P(StoreConformance, BuffersLentAtTheSameTimeDoNotDisturbEachOther) {
  if (rounds()) GTEST_SKIP() << "in rounds there is one";
  Make(1);
  StorePtr store = Open(0);
  InitializeTo(*store, 0);
  const ParamView view = Pull(*store);
  GradientBuffer one = store->LendGradient();
  GradientBuffer two = store->LendGradient();
  GradientBuffer three = store->LendGradient();
  FillGradient(*store, one, -1);
  FillGradient(*store, two, -10);
  FillGradient(*store, three, -100);
  ASSERT_TRUE(PushAndWait(*store, two, view.stamp()).ok());
  ExpectAll(*store, 10);
  ASSERT_TRUE(PushAndWait(*store, three, Pull(*store).stamp()).ok());
  ASSERT_TRUE(PushAndWait(*store, one, Pull(*store).stamp()).ok());
  ExpectAll(*store, 111);
}

TEST_P(StoreConformance, NonFiniteGradientNamesItsVariable) {
  Make(1);
  StorePtr store = Open(0);
  InitializeTo(*store, 0);
  GradientBuffer buffer = store->LendGradient();
  FillGradient(*store, buffer, 1);
  std::string name = "untouched";
  EXPECT_TRUE(store->GradientIsFinite(buffer, &name));
  EXPECT_EQ(name, "untouched");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const VarId id : {VarId{0}, VarId{2}, VarId{5}}) {
      const std::size_t last = buffer.values(id).size() - 1;
      buffer.values(id)[last] = bad;
      EXPECT_FALSE(store->GradientIsFinite(buffer, &name));
      EXPECT_EQ(name, plan_.variables[id].name);
      EXPECT_FALSE(store->GradientIsFinite(buffer, nullptr));
      buffer.values(id)[last] = 1;
    }
  }
}

// --- Waiting -------------------------------------------------------------------------------------

TEST_P(StoreConformance, WaitEndsAtItsDeadlineAndMayBeCalledAgain) {
  if (!rounds()) GTEST_SKIP() << "the others have nobody to wait for";
  Make(3);
  auto stores = OpenAll(3);
  const ParamView view = Pull(*stores[0]);
  GradientBuffer buffer = stores[0]->LendGradient();
  FillGradient(*stores[0], buffer, -3);
  const Result<Ticket> ticket = stores[0]->Push(buffer, view.stamp(), Deadline::After(kLong));
  ASSERT_TRUE(ticket.ok());
  for (const int ms : {0, 40, 120}) {
    const std::int64_t begin = MonotonicNs();
    const Result<PushOutcome> late =
        stores[0]->Wait(*ticket, Deadline::After(std::chrono::milliseconds(ms)));
    EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
    EXPECT_GE(MonotonicNs() - begin, ms * 1'000'000);
    EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  }
  std::vector<int> missing;
  for (const Member& m : stores[0]->WaitingFor()) missing.push_back(m.worker);
  EXPECT_THAT(missing, ::testing::ElementsAre(1, 2));
  std::thread other([&] { EXPECT_TRUE(PushConstant(*stores[1], -3).ok()); });
  std::thread third([&] { EXPECT_TRUE(PushConstant(*stores[2], -3).ok()); });
  const Result<PushOutcome> outcome = stores[0]->Wait(*ticket, Deadline::After(kLong));
  other.join();
  third.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ(outcome->global_step, 1);
  EXPECT_TRUE(stores[0]->WaitingFor().empty());
  ExpectAll(*stores[0], 3);
}

TEST_P(StoreConformance, StopWakesWhoWaitsForTheFirstValues) {
  Make(2);
  std::int64_t woken = 0;
  std::thread waiter([&] {
    StorePtr store = Open(1);
    EXPECT_EQ(store->WaitUntilInitialized(Deadline::After(kLong)).code(), Code::kCancelled);
    woken = MonotonicNs();
  });
  StorePtr chief = Open(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::int64_t begin = MonotonicNs();
  EXPECT_FALSE(chief->stopped());
  chief->Stop();
  waiter.join();
  EXPECT_TRUE(chief->stopped());
  EXPECT_LT(woken - begin, std::chrono::nanoseconds(kBound).count());
}

TEST_P(StoreConformance, StopEndsEveryWorkerWithinABound) {
  constexpr int kWorkers = 4;
  Make(kWorkers);
  auto stores = OpenAll(kWorkers);
  std::vector<std::thread> threads;
  // In rounds worker 3 never pushes: the others wait for it.
  for (int k = 0; k < (rounds() ? kWorkers - 1 : kWorkers); ++k) {
    threads.emplace_back([&, k] {
      for (;;) {
        const Result<PushOutcome> outcome = PushConstant(*stores[static_cast<std::size_t>(k)], -1);
        if (outcome.ok()) continue;
        EXPECT_EQ(outcome.status().code(), Code::kCancelled) << outcome.status().ToString();
        return;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const std::int64_t begin = MonotonicNs();
  stores[3]->Stop();
  for (std::thread& t : threads) t.join();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(stores[0]->Pull(Selection::Everything(), PullMode::kView).status().code(),
            Code::kCancelled);
  EXPECT_EQ(stores[0]->global_step() > 0, !rounds());
}

// --- Rounds with members that come and go --------------------------------------------------------

TEST_P(StoreConformance, RoundsGoOnWithoutWhoLeft) {
  if (!rounds()) GTEST_SKIP() << "for the round modes";
  Make(3, *ParseOptimizer("adam"));
  std::vector<StorePtr> stores;
  for (int k = 0; k < 3; ++k) stores.push_back(Open(k));
  InitializeForReference(*stores[0]);
  ReferenceModel reference(plan_.variables, plan_.optimizer);
  constexpr int kRounds = 5;
  std::vector<std::thread> threads;
  for (int k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      ParameterStore& store = *stores[static_cast<std::size_t>(k)];
      ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
      for (int round = 1; round <= kRounds; ++round) {
        if (k == 1 && round == 3) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others are waiting
          EXPECT_TRUE(store.Leave().ok());
          return;
        }
        const ParamView view = Pull(store);
        GradientBuffer buffer = store.LendGradient();
        FillTestGradient(store, buffer, k, static_cast<std::uint64_t>(round));
        ASSERT_TRUE(PushAndWait(store, buffer, view.stamp()).ok());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int round = 1; round <= kRounds; ++round) {
    const std::vector<int> members = round < 3 ? std::vector{0, 1, 2} : std::vector{0, 2};
    reference.Step(round, static_cast<std::uint64_t>(round), members);
  }
  ExpectValues(*stores[0], reference, "after a worker left");
}

TEST_P(StoreConformance, RoundsWaitForWhoIsExpectedButNotForEver) {
  if (!rounds()) GTEST_SKIP() << "for the round modes";
  Make(2);
  EngineOptions options = Options();
  options.join_limit = std::chrono::milliseconds(150);
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  EXPECT_GE(MonotonicNs() - begin, 100'000'000) << "it was not expected at all";
  EXPECT_EQ(store->membership()[1].phase, Phase::kEvicted);
  EXPECT_EQ(store->membership()[1].heartbeat_age_ns, 0) << "it never joined";
  ExpectAll(*store, 1);
}

TEST_P(StoreConformance, LateJoinerTakesPartFromItsFirstRoundOn) {
  if (!rounds()) GTEST_SKIP() << "for the round modes";
  Make(2);
  EngineOptions options = Options();
  options.join_limit = std::chrono::milliseconds(1);
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
  StorePtr late = Open(1);
  ASSERT_TRUE(late->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(Pull(*late).version(), 3u);
  std::thread other([&] {
    const Result<PushOutcome> outcome = PushConstant(*late, -5);
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(outcome->applied);
    EXPECT_EQ(outcome->global_step, 4);
  });
  const Result<PushOutcome> outcome = PushConstant(*store, -1);
  other.join();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->version, 4u);
  ExpectAll(*store, 6);  // 3 + mean(1, 5)
}

TEST_P(StoreConformance, GradientThatComesAfterItsRoundWasDecidedIsDropped) {
  if (!rounds()) GTEST_SKIP() << "for the round modes";
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  EngineOptions options = Options();
  options.join_limit = std::chrono::milliseconds(1);
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  StorePtr late = Open(1);
  ASSERT_TRUE(late->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const ParamView view = Pull(*late);
  GradientBuffer buffer = late->LendGradient();
  FillGradient(*late, buffer, -100);
  // The round is decided while `late` computes: it is written out by hand, as worker 0 would do if
  // it had looked a moment before worker 1 joined.
  memory[0].tasks[0].proposal[1][0].store(1);
  const ParamView own = Pull(*store);
  GradientBuffer gradient = store->LendGradient();
  FillGradient(*store, gradient, -1);
  const Result<Ticket> first = store->Push(gradient, own.stamp(), Deadline::After(kLong));
  ASSERT_TRUE(first.ok());
  std::uint64_t decision = memory[0].state->decision.load();
  const std::uint64_t decided = Decision{1, Decision::Unpack(decision).generation, 0}.Pack();
  ASSERT_TRUE(memory[0].state->decision.compare_exchange_strong(decision, decided));
  // The only member does nothing more: who came too late finishes the round on its own.
  const Result<PushOutcome> dropped = PushAndWait(*late, buffer, view.stamp());
  ASSERT_TRUE(dropped.ok()) << dropped.status().ToString();
  EXPECT_FALSE(dropped->applied);
  EXPECT_EQ(late->counters().dropped.load(), 1u);
  ExpectAll(*late, 1);
  const Result<PushOutcome> outcome = store->Wait(*first, Deadline::After(kLong));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->applied);
  ExpectAll(*store, 1);
  // And the next round counts both.
  std::thread other([&] { EXPECT_TRUE(PushConstant(*late, -3).ok()); });
  EXPECT_TRUE(PushConstant(*store, -1).ok());
  other.join();
  ExpectAll(*store, 3);
}

TEST_P(StoreConformance, WhoDiedBetweenDecisionAndUpdateIsStillCountedAndMayComeBack) {
  if (!rounds()) GTEST_SKIP() << "for the round modes";
  Make(1, *ParseOptimizer("adam"));
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  StorePtr store = Open(0);
  InitializeForReference(*store);
  ReferenceModel reference(plan_.variables, plan_.optimizer);
  const ParamView view = Pull(*store);
  GradientBuffer buffer = store->LendGradient();
  FillTestGradient(*store, buffer, 0, 1);
  ASSERT_TRUE(store->Push(buffer, view.stamp(), Deadline::After(kLong)).ok());  // and dies
  store.reset();
  for (const ShardMemory& m : memory) ASSERT_TRUE(MarkDead(m, 0, 1));
  store = Open(0);
  // The chief came back and finds the values: it may not write its gradient before that round is
  // complete.
  EXPECT_TRUE(store->initialized());
  EXPECT_EQ(store->Pull(Selection::Everything(), PullMode::kView).status().code(),
            Code::kFailedPrecondition);
  ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(store->global_step(), 1);
  reference.Step(1, 1, {0});
  ExpectValues(*store, reference, "the round of the life before");
}

// --- Eviction ------------------------------------------------------------------------------------

TEST_P(StoreConformance, EvictedWorkerIsFencedOffUntilItOpensTheStoreAnew) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  auto stores = OpenAll(2);
  const ParamView view = Pull(*stores[1]);
  GradientBuffer buffer = stores[1]->LendGradient();
  FillGradient(*stores[1], buffer, -100);
  ASSERT_TRUE(Evict(memory[0], 1, 1));  // on the lead: that is where members are looked after
  EXPECT_EQ(stores[1]->Pull(Selection::Everything(), PullMode::kView).status().code(),
            Code::kAborted);
  const Result<PushOutcome> late = PushAndWait(*stores[1], buffer, view.stamp());
  EXPECT_EQ(late.status().code(), Code::kAborted) << late.status().ToString();
  EXPECT_THAT(late.status().message(), ::testing::HasSubstr("worker/1"));
  if (rounds()) {
    ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    ExpectAll(*stores[0], 1);
  }
  EXPECT_EQ(stores[1]->Leave().code(), Code::kAborted);
  stores[1] = Open(1);
  ASSERT_NE(stores[1], nullptr);
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(stores[1]->membership()[1].epoch, 2u);
}

TEST_P(StoreConformance, ReplacementOfAnEvictedWorkerNeedsNoGoodbye) {
  // The evicted process may be stopped for ever: it never says Leave(), on no shard.
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  auto stores = OpenAll(2);
  ASSERT_TRUE(Evict(memory[0], 1, 1));
  StorePtr replacement = Open(1);
  ASSERT_NE(replacement, nullptr);
  ASSERT_TRUE(replacement->WaitUntilInitialized(Deadline::After(kLong)).ok());
  std::thread other([&] { EXPECT_TRUE(PushConstant(*replacement, -1).ok()); });
  EXPECT_TRUE(PushConstant(*stores[0], -1).ok());
  other.join();
  if (mode() == Mode::kHogwild || mode() == Mode::kSsp) {
    // The two pushes ran at once: where they met, one of them may be lost.
    const ParamView view = Pull(*stores[0], PullMode::kCopy);
    for (VarId id = 0; id < stores[0]->variables().size(); ++id) {
      for (const float x : view.values(id)) ASSERT_TRUE(x == 1 || x == 2) << x;
    }
  } else {
    ExpectAll(*stores[0], rounds() ? 1 : 2);
  }
  EXPECT_EQ(stores[1]->Pull(Selection::Everything(), PullMode::kView).status().code(),
            Code::kAborted);
}

TEST_P(StoreConformance, FailedOpenLeavesNobodyToWaitFor) {
  if (shards() == 1) GTEST_SKIP() << "one shard is opened whole or not at all";
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  // Another task keeps the last shard's slot joining: its state changes under us for ever.
  std::atomic<bool> done{false};
  auto& state = memory.back().tasks[1].state;
  std::thread restless([&] {
    while (!done) {
      const TaskState seen = TaskState::Unpack(state.load());
      state.store(TaskState{seen.epoch + 1, Phase::kJoining}.Pack());
    }
  });
  const Result<StorePtr> store = host_->Open(1, Options());
  done = true;
  restless.join();
  if (store.ok()) GTEST_SKIP() << "it slipped through";
  EXPECT_EQ(store.status().code(), Code::kAlreadyExists);
  EXPECT_EQ(StateOf(memory[0], 1).phase, Phase::kDone);
}

// --- Claims --------------------------------------------------------------------------------------

TEST_P(StoreConformance, ABlockHeldByALiveTaskHoldsUpOnlyTheLockedMode) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  if (rounds()) GTEST_SKIP() << "see tests/multiprocess";
  auto stores = OpenAll(2);
  BlockState& block = memory[0].blocks[0];
  block.claim.store(Claim{1, 1}.Pack());  // worker 1 stopped in the middle of it
  const std::int64_t begin = MonotonicNs();
  const ParamView view = Pull(*stores[0]);
  GradientBuffer buffer = stores[0]->LendGradient();
  FillGradient(*stores[0], buffer, -1);
  const Result<Ticket> ticket =
      stores[0]->Push(buffer, view.stamp(), Deadline::After(std::chrono::milliseconds(150)));
  if (mode() != Mode::kLocked) {
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    ExpectAll(*stores[0], 1);
    EXPECT_EQ(stores[0]->counters().overlapped_blocks.load(), 1u);
    EXPECT_EQ(block.claim.load(), (Claim{1, 1}.Pack())) << "the claim is still the other's";
    return;
  }
  EXPECT_EQ(ticket.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(ticket.status().message(), ::testing::HasSubstr("worker/1"));
  EXPECT_GE(MonotonicNs() - begin, 150'000'000);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(memory[0].tasks[0].counters.half_applied.load(), 1u);
  // Stop() does not leave it waiting either.
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stores[1]->Stop();
  });
  const Result<PushOutcome> stopped = PushConstant(*stores[0], -1);
  stopper.join();
  EXPECT_EQ(stopped.status().code(), Code::kCancelled) << stopped.status().ToString();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
}

TEST_P(StoreConformance, ABlockOfATaskWhoseLifeIsOverIsTakenOver) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (memory.empty()) GTEST_SKIP() << "this store's memory cannot be seen from here";
  if (rounds()) GTEST_SKIP() << "see tests/multiprocess";
  auto stores = OpenAll(2);
  for (const ShardMemory& m : memory) {
    m.blocks[0].claim.store(Claim{1, 1}.Pack());
    ASSERT_TRUE(MarkDead(m, 1, 1));
  }
  ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
  ExpectAll(*stores[0], 1);
  for (const ShardMemory& m : memory) {
    EXPECT_EQ(m.blocks[0].claim.load(), 0u);
    EXPECT_EQ(m.tasks[0].counters.taken_over_blocks.load(), 1u);
  }
}

}  // namespace passel::testing

#include "conformance/replicas_and_ssp.h"
