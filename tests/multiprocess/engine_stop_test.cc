// Workers that are stopped, not killed, at every named place of every mode, for a part of what the
// others bear with, for a little more, and for long; and then go on.

#include "multiprocess/stopped_job.h"
#include "support/sanitized.h"

namespace passel::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);  // only its plan is used here

namespace {

using Jobs = std::vector<std::unique_ptr<StoppedJob>>;

// Drives them all, some at a time, one of them starting at a time: a worker that starts is no
// small load.
void RunAll(Jobs& jobs) {
  constexpr int kAtOnce = 24;
  std::size_t over = 0;
  while (over < jobs.size()) {
    over = 0;
    int active = 0;
    bool starting = false;
    for (const auto& job : jobs) {
      job->Turn();
      over += job->over();
      starting |= job->starting();
      active += !job->waiting() && !job->over();
    }
    if (!starting && active < kAtOnce) {
      const auto next =
          std::find_if(jobs.begin(), jobs.end(), [](const auto& job) { return job->waiting(); });
      if (next != jobs.end()) (*next)->Start();
    }
    ::usleep(1000);
  }
}

// Each place once per factor, shards and ways of eviction in turn, or all of them.
void Add(Jobs& jobs, std::span<const StopPlace> places, std::span<const double> factors,
         std::span<const int> shards) {
  std::size_t turn = 0;
  for (const double factor : factors) {
    for (const StopPlace& place : places) {
      const std::size_t combinations = 2 * shards.size();
      for (std::size_t i = 0; i < combinations; ++i) {
        const bool chosen = i == turn % combinations;
        // A worker follows on shards other than the lead.
        const int on =
            std::string(place.failpoint) == "join.follow" ? shards.back() : shards[i / 2];
        if (ManyTurns() || chosen) {
          jobs.push_back(std::make_unique<StoppedJob>(
              place, factor, i % 2 == 0 ? Eviction::kKill : Eviction::kFence, on));
        }
      }
      ++turn;
    }
  }
}

// The short ones first: what holds up who looks after all of them makes them longer.
constexpr double kFactors[] = {0.5, 6, 1.5};
constexpr int kShards[] = {1, 3};

constexpr StopPlace kAtOnce[] = {
    {"hogwild", "", "sgd", "push.claimed", 100, false},
    {"hogwild", "", "sgd", "push.before_version", 5, false},
    // A block that nobody else gets to write is held up.
    {"hogwild", "", "adam", "push.claimed", 100, true},
    {"hogwild", "", "adam", "push.before_version", 5, false},
    {"locked", "", "sgd", "push.claimed", 100, true},
    {"locked", "", "sgd", "push.before_version", 5, false},
    {"ssp=2", "", "sgd", "push.claimed", 100, true},
    {"ssp=2", "", "sgd", "push.before_version", 5, true},
    {"ssp=2", "", "sgd", "ssp.completed", 5, true},
};

TEST(EngineStops, InTheModesThatApplyAtOnce) {
  Jobs jobs;
  Add(jobs, kAtOnce, kFactors, kShards);
  RunAll(jobs);
}

class RoundStops : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundStops, AtEveryPlaceOfARound) {
  const char* const mode = GetParam();
  const bool backup = std::string(mode) == "replicas=2";
  const char* const optimizer = backup ? "sgd" : "adam";
  // Where two of three make a round complete, nobody waits for who holds no block.
  const StopPlace places[] = {
      {mode, "", optimizer, "round.arrived", 5, !backup},
      {mode, "", optimizer, "round.decided", 2, !backup},
      {mode, "", optimizer, "round.saving", 30, true},
      {mode, "", optimizer, "round.saved", 30, true},
      {mode, "", optimizer, "round.piece", 20, true},
      {mode, "", optimizer, "round.applied", 20, true},
      {mode, "", optimizer, "round.before_finish", 5, !backup},
  };
  Jobs jobs;
  Add(jobs, places, kFactors, kShards);
  RunAll(jobs);
}

INSTANTIATE_TEST_SUITE_P(Modes, RoundStops,
                         ::testing::Values("barrier", "replicas=2", "replicas=3", "replicas=5"),
                         [](const auto& test) { return NameOf(test.param); });

// Who has said that it ended its last step is not waited for before the next mode begins, but in
// it.
TEST(EngineStops, InAChangeOfTheMode) {
  Jobs jobs;
  for (const auto& [from, to] :
       {std::pair{"locked", "barrier"}, std::pair{"barrier", "locked"},
        std::pair{"hogwild", "ssp=1"}, std::pair{"replicas=5", "replicas=2"}}) {
    const bool waits = std::string(to) != "locked" && std::string(to) != "replicas=2";
    const StopPlace places[] = {
        {from, to, "sgd", "mode.due", 1, true},
        {from, to, "sgd", "mode.arrived", 1, waits},
        {from, to, "sgd", "mode.prepared", 1, waits},
        {from, to, "sgd", "mode.published", 1, waits},
    };
    Add(jobs, places, kFactors, kShards);
  }
  RunAll(jobs);
}

// A worker that comes again and is kept from running at every step of its joining.
TEST(EngineStops, WhileAWorkerJoins) {
  constexpr double kJoinFactors[] = {0.5, 1.5};
  constexpr int kJoinShards[] = {1, 2};
  Jobs jobs;
  for (const char* mode : {"locked", "barrier", "ssp=2"}) {
    const bool rounds = std::string(mode) == "barrier";
    const bool waits = std::string(mode) != "locked";
    const char* const optimizer = rounds ? "adam" : "sgd";
    const StopPlace places[] = {
        {mode, "", optimizer, "join.claimed", 1, rounds},
        {mode, "", optimizer, "join.before_identity", 1, rounds},
        {mode, "", optimizer, "join.before_clock", 1, rounds},
        {mode, "", optimizer, "join.clock", 1, waits},
        {mode, "", optimizer, "join.before_mode", 1, waits},
        {mode, "", optimizer, "join.before_running", 1, waits},
        {mode, "", optimizer, "join.running", 1, waits},
        {mode, "", optimizer, "join.follow", 1, waits},
    };
    Add(jobs, places, kJoinFactors, kJoinShards);
  }
  RunAll(jobs);
}

// One is in the middle of what the others wait for when all are frozen. They thaw first, and it has
// not kept them waiting for long, as far as they can know.
TEST(EngineStops, JobThatIsFrozenAsAWholeEvictsNobody) {
  constexpr int kLimitMs = kSanitized ? 3000 : 1000;
  constexpr StopPlace kPlaces[] = {
      {"hogwild", "", "adam", "push.claimed", 100, true},
      {"locked", "", "sgd", "push.claimed", 100, true},
      {"barrier", "", "adam", "round.arrived", 5, true},
      {"barrier", "", "adam", "round.saved", 30, true},
      {"replicas=2", "", "sgd", "round.saved", 30, true},
      {"replicas=5", "", "sgd", "round.arrived", 5, true},
      {"ssp=2", "", "sgd", "ssp.completed", 5, true},
      {"locked", "barrier", "sgd", "mode.due", 1, true},
  };
  constexpr int kWorkers = 3;
  struct Frozen {
    std::unique_ptr<EngineJob> job;
    std::vector<Child> workers;
  };
  std::vector<Frozen> all;
  for (const StopPlace& place : kPlaces) {
    SCOPED_TRACE(std::string(place.mode) + ", " + place.failpoint);
    StorePlan plan = PlanIn(Setting(place.mode), 1, kWorkers);
    plan.optimizer = *ParseOptimizer(place.optimizer);
    Frozen frozen{std::make_unique<EngineJob>(plan, true, kLimitMs), {}};
    frozen.job->SetPace(5000, 50);
    for (int k = 0; k < kWorkers; ++k) {
      frozen.workers.push_back(frozen.job->Start(
          k, 0,
          k == 1 ? std::string(place.failpoint) + ":" + std::to_string(place.hits) + ":stop" : ""));
    }
    if (place.changes()) {
      ASSERT_TRUE(Await(kPatience, [&] { return frozen.job->AllTakePart(); }));
      ASSERT_TRUE(WishForMode(frozen.job->memory(0), Setting(place.wanted)).ok());
    }
    ASSERT_TRUE(frozen.workers[1].WaitStopped(kPatience));
    ASSERT_EQ(frozen.workers[1].code(), -1000);
    ::usleep(50'000);  // the others come to wait for it
    for (const std::size_t k : {0, 2}) frozen.workers[k].Kill(SIGSTOP);
    all.push_back(std::move(frozen));
  }
  ::usleep(1500 * kLimitMs);
  for (Frozen& frozen : all) {
    for (const std::size_t k : {0, 2}) frozen.workers[k].Kill(SIGCONT);
  }
  ::usleep(20'000);
  for (Frozen& frozen : all) frozen.workers[1].Kill(SIGCONT);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(std::string(kPlaces[i].mode) + ", " + kPlaces[i].failpoint);
    EngineJob& job = *all[i].job;
    EXPECT_TRUE(job.GetsOn());
    for (int k = 0; k < kWorkers; ++k) {
      EXPECT_EQ(StateOf(job.memory(0), k), (TaskState{1, Phase::kRunning})) << "worker " << k;
    }
    job.Stop();
    for (Child& worker : all[i].workers) EXPECT_EQ(worker.End(), 0);
  }
}

}  // namespace
}  // namespace passel::testing
