// What a profiler sees of faults: marks, and ranges that close all the same.

#include <csignal>
#include <thread>

#include "nvtx/nvtx_job.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::int64_t> Payloads(const std::vector<Call>& calls) {
  std::vector<std::int64_t> payloads;
  for (const Call& call : calls) payloads.push_back(call.payload);
  return payloads;
}

// Kills whoever comes to `point` as the `hit`-th there, once.
void Arm(RecordedJob& job, const std::string& point, int hit) {
  job.sandbox.SetEnv("PASSEL_FAILPOINT",
                     fmt::format("{}:{}:kill:{}", point, hit, job.sandbox.dir().File("killed")));
}

TEST(NvtxFaultTest, AKilledWorkerIsMarkedOnceAndTheOtherGoesOn) {
  RecordedJob job;
  Arm(job, "worker.computed", 40);
  const Outcome outcome = job.Train({"--train_steps=300"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("was killed by SIGKILL (9)"));
  const Recording recording = job.Read();
  CheckWellFormed(recording, /*processes_killed=*/1);
  // Who sees the death first marks it, and nobody else; the supervisor marks the end of its task.
  ASSERT_EQ(recording.Marks("worker_died").size(), 1u);
  ASSERT_EQ(recording.Marks("task_died").size(), 1u);
  const std::int64_t victim = recording.Marks("worker_died")[0].payload;
  EXPECT_EQ(recording.Marks("task_died")[0].payload, victim);
  EXPECT_TRUE(recording.Marks("task_restarted").empty());
  // It died in its 40th step, between computation and push: only the step is open.
  const Thread dead = OnlyThread(recording, fmt::format("worker/{}", victim));
  EXPECT_EQ(dead.open, 1);
  EXPECT_EQ(dead.Named("step").size(), 40u);
  EXPECT_EQ(dead.Named("step").back().end_ns, 0);
  EXPECT_EQ(dead.Named("compute").size(), 40u);
  EXPECT_NE(dead.Named("compute").back().end_ns, 0);
  EXPECT_EQ(dead.Named("push").size(), 39u);
  const Thread other = OnlyThread(recording, fmt::format("worker/{}", 1 - victim));
  EXPECT_EQ(other.open, 0);
  const auto fault = Categories(recording).at("fault");
  for (const Call& mark : recording.Calls("mark")) EXPECT_EQ(mark.category, fault) << mark.message;
}

TEST(NvtxFaultTest, AWorkerThatIsStartedAgainIsASecondProcessOfTheSameName) {
  RecordedJob job;
  Arm(job, "worker.computed", 40);
  const Recording recording = job.Record({"--train_steps=4000", "--max_restarts=1"}, 0, 1);
  ASSERT_EQ(recording.Marks("task_restarted").size(), 1u);
  const std::int64_t victim = recording.Marks("task_restarted")[0].payload;
  const std::vector<Thread> lives = recording.Named(fmt::format("worker/{}", victim));
  ASSERT_EQ(lives.size(), 2u);
  EXPECT_EQ(lives[0].open, 1);
  EXPECT_EQ(lives[1].open, 0);
  // Its second life goes on where the first ended: 39 steps were pushed.
  ASSERT_FALSE(lives[1].Named("step").empty());
  EXPECT_EQ(lives[1].Named("step")[0].call.payload, 40);
}

TEST(NvtxFaultTest, ABlockThatIsTakenOverIsMarked) {
  RecordedJob job;
  Arm(job, "push.claimed", 500);
  const Recording recording = job.Record({"--train_steps=300", "--mode=locked"}, 0, 1);
  EXPECT_EQ(recording.Marks("block_taken_over").size(), 1u);
  EXPECT_EQ(recording.Marks("worker_died").size(), 1u);
  EXPECT_TRUE(recording.Marks("round_taken_over").empty());
}

TEST(NvtxFaultTest, ARoundThatIsTakenOverIsMarkedWithItsNumber) {
  RecordedJob job;
  Arm(job, "round.saved", 200);
  const Recording recording = job.Record({"--train_steps=200", "--mode=barrier"}, 0, 1);
  ASSERT_EQ(recording.Marks("round_taken_over").size(), 1u);
  EXPECT_EQ(recording.Marks("block_taken_over").size(), 1u);
  // It is the round in which the dead worker's last apply is open.
  const std::int64_t victim = recording.Marks("worker_died").at(0).payload;
  const Thread dead = OnlyThread(recording, fmt::format("worker/{}", victim));
  const Node last = dead.Named("apply").back();
  EXPECT_EQ(last.end_ns, 0);
  EXPECT_EQ(recording.Marks("round_taken_over")[0].payload, last.call.payload);
}

TEST(NvtxFaultTest, AnEvictedWorkerIsMarked) {
  RecordedJob job;
  Program train =
      job.sandbox.Start(job.sandbox.Train({"--mode=barrier", "--workers=3", "--pin=none",
                                           "--stall_limit=0.5", "--train_steps=100000000"}));
  ASSERT_TRUE(AllTrain(job.sandbox, 10)) << train.Err();
  const pid_t victim = job.sandbox.TaskPid("worker", 1);
  ASSERT_EQ(::kill(victim, SIGSTOP), 0);
  ASSERT_TRUE(train.WaitFor("worker/1 was evicted", 20)) << train.Err();
  train.Signal(SIGINT);
  EXPECT_EQ(job.sandbox.Finish(train, 10).code, 130);
  const Recording recording = job.Read();
  CheckWellFormed(recording, 1);
  EXPECT_EQ(Payloads(recording.Marks("worker_evicted")), std::vector<std::int64_t>{1});
  EXPECT_NE(recording.Marks("worker_evicted")[0].pid, victim);
}

TEST(NvtxFaultTest, EverySkippedGradientIsMarked) {
  RecordedJob job;
  const Recording recording = job.Record({"--optimizer=sgd", "--learning_rate=1e30",
                                          "--on_nan=skip", "--workers=1", "--train_steps=1000"},
                                         1);
  const auto skipped = job.Report()["skipped"].get<std::size_t>();
  EXPECT_GE(skipped, 900u);
  EXPECT_EQ(recording.Marks("gradient_skipped").size(), skipped);
  EXPECT_EQ(recording.Marks("not_finite").size(), 1u) << "the one that ended the worker";
  // What is skipped is computed, and never pushed.
  const Thread worker = OnlyThread(recording, "worker/0");
  EXPECT_EQ(worker.Named("compute").size(), worker.Named("push").size() + skipped + 1);
}

TEST(NvtxFaultTest, AnErrorWithinAStepClosesItsRanges) {
  RecordedJob job;
  const Recording recording = job.Record(
      {"--optimizer=sgd", "--learning_rate=1e30", "--train_steps=1000", "--workers=1"}, 1);
  EXPECT_EQ(recording.Marks("not_finite").size(), 1u);
  EXPECT_EQ(recording.Marks("stopping").size(), 1u);
  for (const char* name : {"supervisor", "ps/0", "worker/0"}) {
    EXPECT_EQ(OnlyThread(recording, name).open, 0) << name;
  }
}

TEST(NvtxFaultTest, ARefusedJobLeavesNothingOpen) {
  RecordedJob job;
  const Outcome outcome =
      job.sandbox.Run({"train", "--device=cpu",  // the search for GPUs is a process of its own
                       "--data_dir=" + job.sandbox.dir().File("nothing")});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  const Recording recording = job.Read();
  CheckWellFormed(recording);
  EXPECT_TRUE(recording.Calls("push").empty());
  EXPECT_EQ(recording.Calls("domain_create").size(), 1u)
      << "the tool is looked for once, although the program executes itself once more";
}

TEST(NvtxFaultTest, AKilledPsIsMarkedAndShowsItsSecondLife) {
  RecordedJob job;
  Program train = job.sandbox.Start(job.sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(AllTrain(job.sandbox, 10)) << train.Err();
  const pid_t ps = job.sandbox.TaskPid("ps", 0);
  ASSERT_EQ(::kill(ps, SIGKILL), 0);
  ASSERT_NE(job.sandbox.AwaitTask("ps", 0, ps), 0);
  // It answers when it has the arena.
  ASSERT_TRUE(AllTrain(job.sandbox, 20)) << train.Err();
  train.Signal(SIGINT);
  EXPECT_EQ(job.sandbox.Finish(train, 10).code, 130);
  const Recording recording = job.Read();
  CheckWellFormed(recording, 1);
  EXPECT_EQ(recording.Marks("task_died").size(), 1u);
  EXPECT_EQ(recording.Marks("task_restarted").size(), 1u);
  const std::vector<Thread> lives = recording.Named("ps/0");
  ASSERT_EQ(lives.size(), 2u);
  EXPECT_EQ(lives[0].Named("create_arena").size(), 1u);
  EXPECT_TRUE(lives[1].Named("create_arena").empty()) << "it takes the same arena";
}

}  // namespace
}  // namespace passel::testing
