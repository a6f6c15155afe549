// What whole jobs tell a profiler when all goes well.

#include <algorithm>
#include <set>

#include "nvtx/nvtx_job.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// Every step of this worker has exactly `children`, with the step as payload; the steps count from
// 1 without a gap. The last may have found that the job is over, and has pulled only.
void CheckSteps(const Thread& worker, const std::string& children, std::int64_t local_steps) {
  const std::vector<Node> steps = worker.Named("step");
  ASSERT_GE(steps.size(), static_cast<std::size_t>(local_steps)) << worker.name;
  ASSERT_LE(steps.size(), static_cast<std::size_t>(local_steps) + 1) << worker.name;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}, step {}", worker.name, i + 1));
    EXPECT_EQ(steps[i].call.payload, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(steps[i].parent, -1);
    if (i == static_cast<std::size_t>(local_steps)) {
      EXPECT_TRUE(children.starts_with(worker.Children(steps[i]))) << worker.Children(steps[i]);
      continue;
    }
    EXPECT_EQ(worker.Children(steps[i]), children);
    for (const int child : steps[i].children) {
      EXPECT_EQ(worker.ranges[static_cast<std::size_t>(child)].call.payload, steps[i].call.payload);
    }
  }
}

// The messages of all ranges directly inside ranges called `outer`, each once.
std::set<std::string> Inside(const Thread& thread, const std::string& outer) {
  std::set<std::string> found;
  for (const Node& node : thread.Named(outer)) {
    for (const int child : node.children) {
      found.insert(thread.ranges[static_cast<std::size_t>(child)].call.message);
    }
  }
  return found;
}

std::int64_t LocalSteps(const nlohmann::json& report, int worker) {
  return report["workers"][static_cast<std::size_t>(worker)]["local_steps"];
}

TEST(NvtxJobTest, HogwildWorkersPullComputeAndPushInEveryStep) {
  RecordedJob job;
  const std::string model = job.sandbox.dir().File("m.safetensors");
  const Outcome outcome = job.Train({"--train_steps=120", "--save=" + model});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("NVTX")));
  const Recording recording = job.Read();
  CheckWellFormed(recording);
  EXPECT_THAT(recording.ThreadNames(),
              ElementsAre("fetch arenas", "ps/0", "supervisor", "worker/0", "worker/1"));
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    const std::int64_t steps = LocalSteps(job.Report(), w);
    CheckSteps(worker, "pull compute push", steps);
    // The worker itself applies what it pushes, once.
    for (const Node& push : worker.Named("push")) EXPECT_EQ(worker.Children(push), "apply");
    EXPECT_EQ(worker.Named("apply").size(), static_cast<std::size_t>(steps));
    for (const Node& compute : worker.Named("compute")) {
      EXPECT_EQ(worker.Children(compute), "gather forward backward");
    }
    EXPECT_TRUE(worker.Named("wait").empty()) << "nobody waits in hogwild";
    EXPECT_EQ(worker.Named("attach").size(), 1u);
    EXPECT_EQ(worker.Named("await_values").size(), 1u);
    EXPECT_EQ(worker.Named("map_data").size(), 1u);
    EXPECT_EQ(worker.Named("initialize").size(), w == 0 ? 1u : 0u) << "the chief does it";
    EXPECT_TRUE(worker.Named("evaluate").empty()) << "the supervisor does it";
  }
  // Both workers' updates are numbered together, each number once.
  std::set<std::int64_t> updates;
  for (const Call& apply : recording.Calls("push", "apply")) {
    EXPECT_TRUE(updates.insert(apply.payload).second) << apply.payload;
  }
  EXPECT_EQ(*updates.begin(), 1);
  EXPECT_EQ(*updates.rbegin(), static_cast<std::int64_t>(updates.size()));
  EXPECT_TRUE(recording.Calls("mark").empty()) << "a job without faults has no marks";

  const Thread ps = OnlyThread(recording, "ps/0");
  EXPECT_GE(ps.Named("serve").size(), 4u);
  EXPECT_EQ(ps.Named("create_arena").size(), 1u);
  EXPECT_THAT(Inside(ps, "serve"), Contains("create_arena"));
  EXPECT_GE(ps.Named("watch").size(), 1u);

  const Thread supervisor = OnlyThread(recording, "supervisor");
  EXPECT_EQ(supervisor.Named("start_task").size(), 3u);
  EXPECT_EQ(supervisor.Named("end_tasks").size(), 1u);
  ASSERT_EQ(supervisor.Named("load_data").size(), 1u);
  // 7000 images of 784 bytes and a label.
  EXPECT_GE(supervisor.Named("load_data")[0].call.payload, 7000 * 785);
  ASSERT_EQ(supervisor.Named("evaluate").size(), 1u);
  EXPECT_GE(supervisor.Named("evaluate")[0].call.payload, 120);
  ASSERT_EQ(supervisor.Named("save").size(), 1u);
  EXPECT_EQ(supervisor.Named("save")[0].call.payload, 79510 * 4);
  // Begun by the supervisor's thread, ended by the one that fetches.
  const std::vector<Call> fetch = recording.Calls("start", "fetch_arenas");
  const std::vector<Call> ends = recording.Calls("end");
  ASSERT_EQ(fetch.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_NE(fetch[0].tid, ends[0].tid);
  EXPECT_EQ(fetch[0].pid, ends[0].pid);
}

TEST(NvtxJobTest, AJobShowsEveryRangeOfTheTableThatItsKindHas) {
  RecordedJob job;
  // Slow enough for the evaluator to come in time.
  const Recording recording =
      job.Record({"--train_steps=60", "--mode=barrier", "--evaluator", "--slow_worker=0:40ms",
                  "--save=" + job.sandbox.dir().File("m.safetensors")});
  // Of the other kinds of jobs alone.
  const std::set<std::string> elsewhere = {"launch",        "await_device", "shadow",
                                           "await_slowest", "change_mode",  "snapshot"};
  for (const TableEntry& entry : EventTable()) {
    if (entry.kind == EventKind::kMark) continue;
    const char* const op = entry.kind == EventKind::kSpan ? "start" : "push";
    EXPECT_EQ(recording.Calls(op, entry.name).empty(), elsewhere.contains(entry.name))
        << entry.name;
  }
  // The evaluator copies the values and evaluates them.
  const Thread evaluator = OnlyThread(recording, "evaluator/0");
  EXPECT_GE(evaluator.Named("evaluate").size(), 1u);
  EXPECT_EQ(evaluator.Named("pull").size(), evaluator.Named("evaluate").size());
  // The last values are evaluated by the supervisor.
  EXPECT_EQ(OnlyThread(recording, "supervisor").Named("evaluate").back().call.payload, 60);
}

TEST(NvtxJobTest, BarrierShowsWaitsRoundsAndWhoApplied) {
  RecordedJob job;
  const Recording recording = job.Record({"--train_steps=80", "--mode=barrier"});
  std::set<std::int64_t> applied;
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    CheckSteps(worker, "pull compute push wait", 80);
    for (const Node& push : worker.Named("push")) EXPECT_EQ(worker.Children(push), "");
    for (const Node& wait : worker.Named("wait")) {
      // Who comes when the others have applied everything has nothing left to do.
      EXPECT_THAT(worker.Children(wait), AnyOf("await_round", "await_round apply"));
      for (const int child : wait.children) {
        EXPECT_EQ(worker.ranges[static_cast<std::size_t>(child)].call.payload, wait.call.payload)
            << "round and local step are the same here";
      }
    }
    for (const Node& apply : worker.Named("apply")) applied.insert(apply.call.payload);
  }
  EXPECT_EQ(applied.size(), 80u) << "every round was applied by somebody";
  // A round lasts from a worker's arrival to its end: one span for each worker.
  std::map<std::int64_t, int> rounds;
  for (const Call& round : recording.Calls("start", "round")) ++rounds[round.payload];
  EXPECT_EQ(rounds.size(), 80u);
  for (const auto& [round, spans] : rounds) EXPECT_EQ(spans, 2) << round;
}

TEST(NvtxJobTest, ReplicasMarkEveryDroppedGradient) {
  RecordedJob job;
  const Recording recording =
      job.Record({"--train_steps=100", "--mode=replicas", "--replicas_to_aggregate=1"});
  const auto dropped = job.Report()["dropped"].get<std::size_t>();
  EXPECT_EQ(recording.Marks("gradient_dropped").size(), dropped);
  for (int w = 0; w < 2; ++w) {
    CheckSteps(OnlyThread(recording, fmt::format("worker/{}", w)), "pull compute push wait",
               LocalSteps(job.Report(), w));
  }
}

TEST(NvtxJobTest, BoundedStalenessShowsTheWaitForThoseBehind) {
  RecordedJob job;
  const Recording recording =
      job.Record({"--train_steps=100", "--mode=ssp", "--staleness_bound=1"});
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    CheckSteps(worker, "pull compute push wait", LocalSteps(job.Report(), w));
    EXPECT_THAT(Inside(worker, "wait"), ElementsAre("await_slowest"));
    EXPECT_THAT(Inside(worker, "push"), ElementsAre("apply"));
  }
}

TEST(NvtxJobTest, EachShardIsAppliedOncePerPush) {
  RecordedJob job;
  const Recording recording = job.Record({"--train_steps=60", "--ps=2", "--mode=locked"});
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    CheckSteps(worker, "pull compute push", LocalSteps(job.Report(), w));
    for (const Node& push : worker.Named("push")) EXPECT_EQ(worker.Children(push), "apply apply");
  }
  EXPECT_THAT(recording.ThreadNames(), IsSupersetOf({"ps/0", "ps/1"}));
}

TEST(NvtxJobTest, ChangeOfModeIsWishedAtThePsAndSeenByTheWorkers) {
  RecordedJob job;
  Program train = job.sandbox.Start(job.sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(AllTrain(job.sandbox, 10)) << train.Err();
  const Outcome set = job.sandbox.Run({"ctl", "set-mode", job.sandbox.job(), "barrier"});
  EXPECT_EQ(set.code, 0) << set.err;
  train.Signal(SIGINT);
  EXPECT_EQ(job.sandbox.Finish(train, 10).code, 130);
  const Recording recording = job.Read();
  CheckWellFormed(recording);
  ASSERT_EQ(recording.Marks("mode_wished").size(), 1u);
  EXPECT_EQ(recording.Marks("mode_wished")[0].payload, 1);
  for (int w = 0; w < 2; ++w) {
    const Thread worker = OnlyThread(recording, fmt::format("worker/{}", w));
    EXPECT_GE(worker.Named("change_mode").size(), 1u);
  }
  EXPECT_EQ(recording.Marks("stopping").size(), 1u) << "by the supervisor";
}

TEST(NvtxJobTest, OneProcessIsAWorkerWithItsTowers) {
  RecordedJob job;
  const Recording recording =
      job.Record({"--train_steps=40", "--ps=0", "--workers=1", "--towers=2"});
  EXPECT_THAT(recording.ThreadNames(), ElementsAre("control", "tower/1", "worker/0"));
  const Thread worker = OnlyThread(recording, "worker/0");
  CheckSteps(worker, "pull compute push", 40);
  const Thread tower = OnlyThread(recording, "tower/1");
  EXPECT_EQ(tower.Named("backward").size(), 40u) << "its share of every batch";
}

TEST(NvtxJobTest, TasksByHandShowTheirAttendants) {
  RecordedJob job;
  const std::vector<std::string> flags = {"--train_steps=60", "--start_wait=20"};
  std::vector<Program> tasks;
  tasks.push_back(job.sandbox.Start(job.sandbox.Task("ps", 0, 1, 2, flags)));
  tasks.push_back(job.sandbox.Start(job.sandbox.Task("worker", 0, 1, 2, flags)));
  tasks.push_back(job.sandbox.Start(job.sandbox.Task("worker", 1, 1, 2, flags)));
  for (Program& task : tasks) {
    const Outcome outcome = job.sandbox.Finish(task, 20);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  const Recording recording = job.Read();
  CheckWellFormed(recording);
  EXPECT_THAT(recording.ThreadNames(), ElementsAre("attendant of worker/0", "attendant of worker/1",
                                                   "ps/0", "worker/0", "worker/1"));
  EXPECT_EQ(recording.Calls("push", "load_data").size(), 1u) << "one reads the data for all";
  EXPECT_EQ(recording.Calls("push", "evaluate").size(), 2u) << "each tells of its own";
}

}  // namespace
}  // namespace passel::testing
