// What a store over messages promises beside the conformance suite: no memory is shared, a step is
// one request and one answer, updates are applied once whatever is repeated, and a ps that comes
// back with its memory is found again.

#include <sys/stat.h>

#include <fstream>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "conformance/heap_host.h"
#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"

namespace passel::testing {
namespace {

using std::chrono::milliseconds;

// "device:inode" of everything that a process maps shared.
std::set<std::string> SharedMappings(const std::string& process) {
  std::set<std::string> shared;
  std::ifstream maps("/proc/" + process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device, inode;
    words >> range >> access >> offset >> device >> inode;
    if (access.ends_with("s")) shared.insert(device + ":" + inode);
  }
  return shared;
}

TEST(RemoteStore, SharesNoMemoryWithThePs) {
  RemoteHost host(TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)));
  auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  const std::set<std::string> theirs = SharedMappings(std::to_string(host.ps(0).pid()));
  EXPECT_FALSE(theirs.empty()) << "the arena";
  for (const std::string& ours : SharedMappings("self")) EXPECT_EQ(theirs.count(ours), 0u) << ours;
}

// Not after the time that a ps may take to come.
TEST(RemoteStore, WhoIsRefusedAtTheDoorIsToldAtOnce) {
  int asked = 0;
  const auto refused = fabric::OpenRemoteStore(
      TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)), 0,
      {[&](Deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
        ++asked;
        return PermissionDenied("ps/0 at 10.0.0.1:2222: it has another job token");
      }},
      {});
  EXPECT_EQ(refused.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("another job token"));
  EXPECT_EQ(asked, 1);
}

// A program with fewer variables than ps.
TEST(RemoteStore, PsWithoutAnyVariableAreNoObstacle) {
  for (const Mode mode : kAllModes) {
    SCOPED_TRACE(ModeName(mode));
    const StorePlan plan = TestPlan(mode, 8, 1, Sgd(1.0));
    ASSERT_EQ(plan.variables.ShardFloats(7), 0u);
    RemoteHost host(plan);
    auto store = OpenOn(host, 0);
    ASSERT_NE(store, nullptr);
    InitializeTo(*store, 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
    const auto view = store->Pull(PullMode::kView);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    for (VarId id = 0; id < store->variables().size(); ++id) {
      EXPECT_THAT(view->values(id), ::testing::Each(3.0F));
    }
  }
}

TEST(RemoteStore, AStepIsOneRequestAndOneAnswer) {
  for (const Mode mode : kAllModes) {
    SCOPED_TRACE(ModeName(mode));
    RemoteHost host(TestPlan(mode, 1, 1, *ParseOptimizer("adam")));
    std::function<fabric::MessageCount()> count;
    auto opened = host.Open(0, Engine(), &count);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    ParameterStore& store = **opened;
    InitializeTo(store, 0);
    ASSERT_TRUE(PushConstant(store, -1).ok());  // the first pull brings nothing along
    const fabric::MessageCount before = count();
    constexpr int kSteps = 20;
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_TRUE(PushConstant(store, -1).ok());
      (void)store.global_step();
      (void)store.stopped();
    }
    EXPECT_EQ(count().sent - before.sent, static_cast<std::uint64_t>(kSteps));
    EXPECT_EQ(count().received - before.received, static_cast<std::uint64_t>(kSteps));
    opened->reset();
    EXPECT_EQ(count().sent, 0u) << "of no store";
  }
}

// With several ps one request to each, and what is for the lead alone.
TEST(RemoteStore, AStepOfSeveralPsIsOneRequestToEachAndOneToCount) {
  for (const std::uint64_t shards : {2, 3}) {
    for (const bool lead_is_here : {false, true}) {
      for (const Mode mode : kAllModes) {
        const std::uint64_t reached = shards - (lead_is_here ? 1 : 0);
        SCOPED_TRACE(std::string(ModeName(mode)) + " on " + std::to_string(shards) +
                     (lead_is_here ? ", lead here" : ""));
        RemoteHost host(TestPlan(mode, static_cast<int>(shards), 1, *ParseOptimizer("adam")));
        if (lead_is_here) host.shares = [](int, int shard) { return shard == 0; };
        std::function<fabric::MessageCount()> count;
        auto opened = host.Open(0, Engine(), &count);
        ASSERT_TRUE(opened.ok()) << opened.status().ToString();
        InitializeTo(**opened, 0);
        ASSERT_TRUE(PushConstant(**opened, -1).ok());
        const std::uint64_t before = count().sent;
        constexpr std::uint64_t kSteps = 20;
        for (std::uint64_t i = 0; i < kSteps; ++i) ASSERT_TRUE(PushConstant(**opened, -1).ok());
        const std::uint64_t sent = count().sent - before;
        // Rounds: gradient and update; arrive, await, finish. Else: update; count.
        const std::uint64_t of_lead = IsRoundMode(mode) ? 3 : 1;
        const std::uint64_t per_step =
            (IsRoundMode(mode) ? 2 * reached : reached) + (lead_is_here ? 0 : of_lead);
        EXPECT_GE(sent, kSteps * per_step);
        EXPECT_LT(sent, kSteps * (per_step + 1)) << "a few may have been repeated";
      }
    }
  }
}

// ssp: what comes with an update was read before the worker waited.
TEST(RemoteStore, WhoHasWaitedForASlowerWorkerHasItsUpdates) {
  for (const bool lead_is_here : {false, true}) {
    for (const int shards : {2, 3}) {
      SCOPED_TRACE(std::to_string(shards) + (lead_is_here ? ", lead here" : ""));
      StorePlan plan = TestPlan(Mode::kSsp, shards, 2, Sgd(1.0));
      plan.mode.number = 1;
      RemoteHost host(plan);
      if (lead_is_here) host.shares = [](int, int shard) { return shard == 0; };
      auto fast = OpenOn(host, 0);
      auto slow = OpenOn(host, 1);
      InitializeTo(*fast, 0);
      ASSERT_TRUE(slow->WaitUntilInitialized(Deadline::After(kLong)).ok());
      for (int round = 0; round < 5; ++round) {
        if (round == 0) {
          ASSERT_TRUE(PushConstant(*fast, -1).ok());
        }
        const Result<Ticket> ticket = PushOnly(*fast, -1);
        ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
        ASSERT_TRUE(PushConstant(*slow, -1).ok());
        ASSERT_TRUE(fast->Wait(*ticket, Deadline::After(kLong)).ok());
        const Result<ParamView> view = fast->Pull(PullMode::kView);
        ASSERT_TRUE(view.ok()) << view.status().ToString();
        for (VarId id = 0; id < fast->variables().size(); ++id) {
          for (const float x : view->values(id)) {
            ASSERT_EQ(x, 3 + 2 * round) << fast->variables()[id].name;
          }
        }
        EXPECT_EQ(fast->counters().max_clock_lead.load(), 1u);
      }
    }
  }
}

// At each pull of c steps there are c - s of every other worker, on each ps.
TEST(RemoteStore, ValuesThatComeWithAnUpdateAreNoOlderThanSspAllows) {
  constexpr int kWorkers = 3, kSteps = 150;
  for (const int bound : {1, 3}) {
    SCOPED_TRACE(bound);
    StorePlan plan = TestPlan(Mode::kSsp, 2, kWorkers, Sgd(1.0));
    plan.mode.number = bound;
    RemoteHost host(plan);
    host.shares = [](int worker, int shard) { return worker == 2 && shard == 0; };
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (int k = 0; k < kWorkers; ++k) stores.push_back(OpenOn(host, k));
    InitializeTo(*stores[0], 0);
    for (int k = 1; k < kWorkers; ++k) {
      ASSERT_TRUE(
          stores[static_cast<std::size_t>(k)]->WaitUntilInitialized(Deadline::After(kLong)).ok());
    }
    std::atomic<int> too_old{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < kWorkers; ++k) {
      threads.emplace_back([&, k] {
        std::mt19937 random(static_cast<unsigned>(k));
        ParameterStore& store = *stores[static_cast<std::size_t>(k)];
        for (int c = 0; c < kSteps; ++c) {
          const Result<ParamView> view = store.Pull(PullMode::kCopy);
          ASSERT_TRUE(view.ok()) << view.status().ToString();
          const int others = (kWorkers - 1) * std::max(0, c - bound);
          for (VarId id = 0; id < store.variables().size(); ++id) {
            for (const float x : view->values(id)) too_old += x < static_cast<float>(c + others);
          }
          if (random() % 4 == 0) std::this_thread::sleep_for(milliseconds(random() % 4));
          GradientBuffer gradient = store.LendGradient();
          FillGradient(store, gradient, -1);
          const Result<Ticket> ticket = store.Push(gradient, view->stamp(), Deadline::After(kLong));
          ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
          ASSERT_TRUE(store.Wait(*ticket, Deadline::After(kLong)).ok());
        }
        EXPECT_LE(store.counters().max_clock_lead.load(), static_cast<std::uint64_t>(bound));
        EXPECT_TRUE(store.Leave().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::uint64_t overlapped = 0;
    for (const ShardMemory& memory : host.Memory()) {
      for (int k = 0; k < kWorkers; ++k) {
        overlapped += memory.tasks[k].counters.overlapped_blocks.load();
      }
    }
    // Of two updates that met one may be lost: as in hogwild.
    if (overlapped == 0) {
      EXPECT_EQ(too_old.load(), 0);
    }
  }
}

// Who waits for others in a round is told that its gradient has arrived.
TEST(RemoteStore, AStepOfARoundOfSeveralWorkersIsAtMostOneMessageMore) {
  RemoteHost host(TestPlan(Mode::kBarrier, 1, 2, Sgd(1.0)));
  std::function<fabric::MessageCount()> counts[2];
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int k = 0; k < 2; ++k) {
    auto opened = host.Open(k, Engine(), &counts[k]);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    stores.push_back(std::move(*opened));
  }
  InitializeTo(*stores[0], 0);
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  constexpr std::uint64_t kSteps = 20;
  const auto train = [&](int k, std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) ASSERT_TRUE(PushConstant(*stores[k], -1).ok());
  };
  const auto both = [&](std::uint64_t steps) {
    std::thread other([&] { train(1, steps); });
    train(0, steps);
    other.join();
  };
  both(1);
  const fabric::MessageCount before[2] = {counts[0](), counts[1]()};
  both(kSteps);
  std::uint64_t received = 0;
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(counts[k]().sent - before[k].sent, kSteps);
    received += counts[k]().received - before[k].received;
  }
  EXPECT_GE(received, 2 * kSteps);
  EXPECT_LE(received, 3 * kSteps) << "who arrives last is told at once";
  ExpectAll(*stores[0], 1 + kSteps);
}

TEST(RemoteStore, AnUpdateThatIsRepeatedIsAppliedOnce) {
  for (const int shards : {1, 3}) {
    for (const Mode mode : kAtOnceModes) {
      SCOPED_TRACE(std::string(ModeName(mode)) + " on " + std::to_string(shards));
      RemoteHost host(TestPlan(mode, shards, 1, Sgd(1.0)), {.repeat = 1000});
      auto store = OpenOn(host, 0);
      InitializeTo(*store, 0);
      for (int i = 1; i <= 30; ++i) {
        const Result<PushOutcome> outcome = PushConstant(*store, -1);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        EXPECT_EQ(outcome->global_step, i);
        EXPECT_EQ(outcome->version, static_cast<Version>(i));
        EXPECT_EQ(outcome->staleness, 0u);
      }
      ExpectAll(*store, 30);
      EXPECT_EQ(store->counters().pushes_begun.load(), 30u);
      // Who saves on the host of ps/0 hears of a loss that was not finite.
      const auto& there = host.Memory()[0].tasks[0].counters.not_finite_at;
      EXPECT_EQ(there.load(), 0);
      store->counters().not_finite_at.store(31);
      ASSERT_TRUE(PushConstant(*store, -1).ok());
      EXPECT_EQ(there.load(), 31);
    }
  }
}

TEST(RemoteStore, AWorkerGoesOnWhenItsPsComesBack) {
  for (const Mode mode : kAtOnceModes) {
    SCOPED_TRACE(ModeName(mode));
    RemoteHost host(TestPlan(mode, 1, 2, Sgd(1.0)));
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (int k = 0; k < 2; ++k) stores.push_back(OpenOn(host, k));
    InitializeTo(*stores[0], 0);
    ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
    for (int i = 1; i <= 3; ++i) {
      for (auto& store : stores) {
        for (int n = 0; n < 4; ++n) ASSERT_TRUE(PushConstant(*store, -1).ok());
      }
      host.ps(0).Kill();
      // Who asks meanwhile waits.
      auto asks = std::async(std::launch::async, [&] { return PushConstant(*stores[0], -1); });
      std::this_thread::sleep_for(milliseconds(50));
      host.ps(0).Start();
      const Result<PushOutcome> outcome = asks.get();
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_EQ(outcome->global_step, 9 * i);
      ExpectAll(*stores[1], 9.0F * static_cast<float>(i));
      EXPECT_EQ(stores[0]->membership()[1].epoch, 1u + static_cast<std::uint32_t>(i));
    }
    EXPECT_EQ(stores[0]->counters().local_steps.load(), 15u);
    ASSERT_TRUE(PullLatest(*stores[0]).ok());
    EXPECT_EQ(stores[0]->membership()[0].local_steps, 15u);
    EXPECT_TRUE(stores[1]->Leave().ok());
  }
}

TEST(RemoteStore, AnUpdateThatEndedBeforeThePsDiedIsAnsweredFromItsMemory) {
  RemoteHost host(TestPlan(Mode::kLocked, 1, 1, Sgd(1.0)), {}, 0, "request.ended:3:kill");
  auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  for (int i = 1; i <= 2; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
  auto third = std::async(std::launch::async, [&] { return PushConstant(*store, -1); });
  host.ps(0).AwaitEnd();
  host.ps(0).Start();
  const Result<PushOutcome> outcome = third.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ(outcome->global_step, 3);
  EXPECT_EQ(outcome->version, 3u);
  ExpectAll(*store, 3);
  EXPECT_EQ(store->counters().half_applied.load(), 0u);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  ExpectAll(*store, 4);
}

TEST(RemoteStore, AnUpdateThatWasCutInHalfEndsTheWorkersLifeAndIsCountedOnce) {
  for (const char* failpoint : {"push.claimed:25:kill", "push.before_version:2:kill"}) {
    SCOPED_TRACE(failpoint);
    RemoteHost host(TestPlan(Mode::kLocked, 1, 1, Sgd(1.0)), {}, 0, failpoint);
    auto store = OpenOn(host, 0);
    InitializeTo(*store, 0);
    std::future<Result<PushOutcome>> cut;
    ASSERT_TRUE(PushConstant(*store, -1).ok());
    cut = std::async(std::launch::async, [&] { return PushConstant(*store, -1); });
    host.ps(0).AwaitEnd();
    host.ps(0).Start();
    const Result<PushOutcome> outcome = cut.get();
    EXPECT_EQ(outcome.status().code(), Code::kAborted) << outcome.status().ToString();
    EXPECT_THAT(outcome.status().message(), ::testing::HasSubstr("applied in part"));
    EXPECT_EQ(store->counters().half_applied.load(), 1u);
    EXPECT_TRUE(store->LeaveForNow().ok());
    store = OpenOn(host, 0);
    ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
    EXPECT_EQ(store->counters().half_applied.load(), 1u);
    EXPECT_EQ(store->global_step(), 1);
    ASSERT_TRUE(PushConstant(*store, -1).ok());
    EXPECT_EQ(store->global_step(), 2);
  }
}

TEST(RemoteStore, ARoundThatThePsDiedInIsFinishedByTheNext) {
  // Killed at any other time, too.
  for (const char* failpoint : {"", "round.arrived:4:kill", "round.decided:2:kill",
                                "round.piece:9:kill", "round.before_finish:2:kill"}) {
    SCOPED_TRACE(failpoint);
    RemoteHost host(TestPlan(Mode::kBarrier, 1, 2, *ParseOptimizer("adam")), {}, 0, failpoint);
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (int k = 0; k < 2; ++k) stores.push_back(OpenOn(host, k));
    InitializeForReference(*stores[0]);
    ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
    constexpr int kRounds = 30;
    std::vector<std::future<void>> workers;
    for (int k = 0; k < 2; ++k) {
      workers.push_back(std::async(std::launch::async, [&, k] {
        ParameterStore& store = *stores[static_cast<std::size_t>(k)];
        for (int round = 1; round <= kRounds; ++round) {
          const auto view = store.Pull(PullMode::kView);
          ASSERT_TRUE(view.ok()) << view.status().ToString();
          GradientBuffer buffer = store.LendGradient();
          FillTestGradient(store, buffer, k, static_cast<std::uint64_t>(round));
          const auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
          ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
          const auto outcome = store.Wait(*ticket, Deadline::After(kLong));
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          EXPECT_EQ(outcome->global_step, round);
        }
      }));
    }
    if (*failpoint == 0) {
      while (stores[0]->global_step() < 2) std::this_thread::sleep_for(milliseconds(1));
      host.ps(0).Kill();
    } else {
      host.ps(0).AwaitEnd();
    }
    host.ps(0).Start();
    for (auto& worker : workers) worker.get();
    ReferenceModel reference(stores[0]->variables(), *ParseOptimizer("adam"));
    for (int round = 1; round <= kRounds; ++round) {
      reference.Step(round, static_cast<std::uint64_t>(round), {0, 1});
    }
    ExpectValues(*stores[0], reference, failpoint);
  }
}

// Of several shards ps/0 gives lives, and cannot know what was lost with another ps.
TEST(RemoteStore, AWorkerOfSeveralShardsStartsAgainWhenAnotherPsThanTheFirstCameBack) {
  for (const Mode mode : {Mode::kLocked, Mode::kBarrier}) {
    SCOPED_TRACE(ModeName(mode));
    RemoteHost host(TestPlan(mode, 3, 1, Sgd(1.0)));
    auto store = OpenOn(host, 0);
    InitializeTo(*store, 0);
    for (int i = 1; i <= 6; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
    host.ps(0).Kill();
    host.ps(0).Start();
    for (int i = 1; i <= 2; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
    host.ps(1).Kill();
    host.ps(1).Start();
    const Result<PushOutcome> outcome = PushConstant(*store, -1);
    EXPECT_EQ(outcome.status().code(), Code::kAborted) << outcome.status().ToString();
    EXPECT_TRUE(store->LeaveForNow().ok());
    store = OpenOn(host, 0);
    ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
    const auto view = store->Pull(PullMode::kView);
    ASSERT_TRUE(view.ok());
    // Outside rounds its last push went to all, and the one that came back refused it.
    EXPECT_EQ(view->values(0)[0], IsRoundMode(mode) ? 8 : 9);
    EXPECT_EQ(store->global_step(), 8);
    ASSERT_TRUE(PushConstant(*store, -1).ok());
  }
}

TEST(RemoteStore, NobodyGoesOnWithAPsThatHasLostItsValues) {
  const StorePlan plan = TestPlan(Mode::kLocked, 3, 1, Sgd(1.0));
  for (const int lost : {0, 1}) {
    SCOPED_TRACE(lost);
    RemoteHost host(plan);
    auto store = OpenOn(host, 0);
    InitializeTo(*store, 0);
    ASSERT_TRUE(PushConstant(*store, -1).ok());
    host.ps(lost).Kill();
    host.ps(lost).LoseArena();
    host.ps(lost).Start();
    EXPECT_EQ(PushConstant(*store, -1).status().code(), Code::kAborted);
    (void)store->LeaveForNow();
    store.reset();
    const auto again = host.Open(0, Engine());
    EXPECT_EQ(again.status().code(), Code::kDataLoss) << again.status().ToString();
    EXPECT_THAT(again.status().message(), ::testing::HasSubstr("ps/" + std::to_string(lost)));
  }
}

TEST(RemoteStore, AJobGoesOnFromWhereAnotherWas) {
  for (const int shards : {1, 3}) {
    SCOPED_TRACE(shards);
    const StorePlan plan = TestPlan(Mode::kHogwild, shards, 1, *ParseOptimizer("momentum"));
    JobProgress progress;
    progress.global_step = 40;
    progress.workers = {{7, 2, 30}};
    progress.shards.assign(static_cast<std::size_t>(shards), {40, 40});
    const auto fill = [](VarId id, int k, std::span<float> values) {
      for (float& x : values) x = static_cast<float>(id) + 100.0F * static_cast<float>(k);
    };
    // What the same job makes of it in this process.
    HeapHost near(plan);
    RemoteHost far(plan);
    std::vector<std::vector<float>> values[2];
    StoreHost* const hosts[] = {&near, &far};
    for (int h = 0; h < 2; ++h) {
      auto store = hosts[h]->Open(0, Engine());
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      const Status restored = (*store)->Restore(progress, fill);
      ASSERT_TRUE(restored.ok()) << restored.ToString();
      EXPECT_EQ((*store)->Restore(progress, fill).code(), Code::kFailedPrecondition);
      const Result<PushOutcome> outcome = PushConstant(**store, -1);
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_EQ(outcome->global_step, 41);
      EXPECT_EQ(outcome->version, 41u);
      const auto view = PullLatest(**store);
      ASSERT_TRUE(view.ok());
      for (VarId id = 0; id < plan.variables.size(); ++id) {
        values[h].emplace_back(view->values(id).begin(), view->values(id).end());
      }
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

TEST(RemoteStore, AWorkerThatIsGoneIsTakenForDeadAfterTheGrace) {
  RemoteHost host(TestPlan(Mode::kBarrier, 1, 2, Sgd(1.0)), {}, 0, "", milliseconds(200));
  auto store = OpenOn(host, 0);
  auto other = OpenOn(host, 1);
  InitializeTo(*store, 0);
  ASSERT_TRUE(other->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const std::int64_t begin = MonotonicNs();
  other.reset();  // and says nothing
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  EXPECT_GE(MonotonicNs() - begin, 150'000'000);
  EXPECT_EQ(store->membership()[1].phase, Phase::kDead);
  // Its successor need not wait for that, however soon it comes.
  constexpr std::uint32_t kLives = 200;
  for (std::uint32_t life = 2; life <= kLives; ++life) {
    other.reset();
    other = OpenOn(host, 1);
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(store->membership()[1].epoch, life);
  }
}

TEST(RemoteStore, AnotherPlanIsRefused) {
  RemoteHost host(TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)));
  const StorePlan other = TestPlan(Mode::kHogwild, 1, 1, Sgd(2.0));
  const auto opened = fabric::OpenRemoteStore(
      other, 0, {[&](Deadline deadline) { return host.ps(0).Connect(0, deadline); }}, {});
  EXPECT_EQ(opened.status().code(), Code::kFailedPrecondition) << opened.status().ToString();
}

TEST(RemoteStore, APsThatIsNotThereIsNamedAtTheDeadline) {
  fabric::ClientOptions options;
  options.answer_limit = milliseconds(150);
  const auto nobody = [](Deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
    return NotFound("nobody listens");
  };
  const auto opened =
      fabric::OpenRemoteStore(TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)), 0, {nobody}, options);
  EXPECT_EQ(opened.status().code(), Code::kUnavailable);
  EXPECT_THAT(opened.status().message(), ::testing::HasSubstr("ps/0"));
  EXPECT_THAT(opened.status().message(), ::testing::HasSubstr("nobody listens"));
}

}  // namespace
}  // namespace passel::testing
