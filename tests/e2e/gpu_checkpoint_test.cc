// Checkpoints of jobs whose parameters are in the memory of an emulated GPU (--arena device).

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "e2e/emulated_gpu.h"
#include "support/program.h"
#include "train/checkpoint_set.h"
#include "train/checkpoint_words.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

class GpuCheckpointTest : public EmulatedGpuTest {
 protected:
  GpuCheckpointTest() : EmulatedGpuTest("rtx4090-pcie-2") {}
  /// A job that nothing but a checkpoint makes renew its shadow.
  std::vector<std::string> Train(int workers, const std::vector<std::string>& more) {
    return JobOf(
        more, {"--gpus=0", "--workers_per_gpu=" + std::to_string(workers), "--batch_size=32",
               "--arena=device", "--hidden_units=16", "--optimizer=adam", "--learning_rate=0.005",
               "--shadow_interval=3600", "--report=" + Report()});
  }
  std::string Folder(const std::string& name) { return sandbox_.dir().path() + "/" + name; }
  CheckpointSet Newest(const std::string& folder) {
    Result<CheckpointSet> set = CheckpointSet::OpenNewest(Folder(folder));
    EXPECT_TRUE(set.ok()) << set.status().ToString();
    return std::move(*set);
  }
  // So many blocks may hold a part of an update, of all.
  MixedBlocks Mixed(const std::string& folder) {
    return ParseMixedBlocks(Newest(folder).parts()[0].Word(kMixedBlocksKey)).value();
  }
  /// All values are the same.
  void ExpectSame(const std::string& a, const std::string& b) {
    const Outcome outcome = sandbox_.Run({"ckpt", "diff", Folder(a), Folder(b), "--values"});
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  }
  /// Kills the program, and with it all tasks.
  void KillAll(Program& train) {
    train.Signal(SIGKILL);
    train.Wait();
    AwaitEnd();
  }
  void AwaitEnd() {
    EXPECT_TRUE(AwaitTrue([&] { return sandbox_.Processes().empty(); }));
  }
};

// One worker: what it computes is the same each time, and on the CPU but for the order of sums.
TEST_F(GpuCheckpointTest, GoesOnWhereverTheParametersWereAndAreThen) {
  const auto run = [&](const std::string& folder, const char* arena, int steps) {
    const Outcome outcome =
        RunJob(Train(1, {std::string("--arena=") + arena, "--train_steps=" + std::to_string(steps),
                         "--checkpoint_dir=" + Folder(folder), "--validation_size=500",
                         "--worker_eval_set=validation", "--worker_eval_steps=100"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(Newest(folder).global_step(), steps) << outcome.err;
    EXPECT_TRUE(Newest(folder).words().exact);
    return ReadJson(Report()).at("test_loss").get<double>();
  };
  const double whole = run("whole", "device", 300);
  run("same", "device", 150);
  EXPECT_EQ(Newest("same").optimizer().slots.size(), 2u);
  const auto facts = ReadJson(Report()).at("checkpoints");
  EXPECT_EQ(facts.at("best"), "model.ckpt-150");
  EXPECT_GT(facts.at("best_accuracy"), 0.2);
  EXPECT_EQ(run("same", "device", 300), whole);
  ExpectSame("whole", "same");
  run("down", "device", 150);
  EXPECT_NEAR(run("down", "host", 300), whole, 1e-4 * whole);
  run("up", "host", 150);
  EXPECT_NEAR(run("up", "device", 300), whole, 1e-4 * whole);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// The worker renews the shadow while all wait between two steps.
TEST_F(GpuCheckpointTest, ConsistentOnesAreOfOneStep) {
  const std::vector<std::string> flags = {"--train_steps=600", "--slow_worker=0:1ms"};
  ASSERT_EQ(RunJob(Train(1, With(flags, {"--checkpoint_dir=" + Folder("whole")}))).code, 0);
  const auto train = Train(1, With(flags, {"--checkpoint_dir=" + Folder("killed"),
                                           "--save_steps=150", "--checkpoint_consistent"}));
  sandbox_.SetEnv("PASSEL_FAILPOINT", "checkpoint.committed:2:kill:" + Folder("done"));
  EXPECT_EQ(RunJob(train).code, 1000 + SIGKILL);
  sandbox_.SetEnv("PASSEL_FAILPOINT", "");
  AwaitEnd();
  EXPECT_TRUE(Newest("killed").words().exact);
  const std::int64_t step = Newest("killed").global_step();
  const Outcome outcome = RunJob(train);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("/model.ckpt-{}, global step", step)));
  ExpectSame("whole", "killed");
}

// Several workers push while one of them renews the shadow, which nothing but a save makes it do.
TEST_F(GpuCheckpointTest, AreMadeWhileOthersTrain) {
  const auto train = Train(3, {"--ps=2", "--mode=locked", "--train_steps=100000000",
                               "--max_restarts=1", "--slow_worker=0:1ms,1:1ms,2:1ms",
                               "--save_steps=100", "--checkpoint_dir=" + Folder("a")});
  Program killed = sandbox_.Start(train);
  ASSERT_TRUE(killed.WaitFor("saved checkpoint")) << killed.Err();
  ASSERT_TRUE(Advances(400)) << killed.Err();
  KillAll(killed);
  EXPECT_EQ(sandbox_.Run({"ckpt", "verify", Folder("a")}).code, 0);
  const std::int64_t step = Newest("a").global_step();
  EXPECT_FALSE(Newest("a").words().exact);
  EXPECT_EQ(Mixed("a").mixed, Mixed("a").blocks) << "values and slot variables are read apart";

  Program last = sandbox_.Start(train);
  ASSERT_TRUE(last.WaitFor(fmt::format("/model.ckpt-{}, global step", step))) << last.Err();
  ASSERT_TRUE(sandbox_.AwaitStep(step + 50)) << last.Err();
  Interrupt(last);
  EXPECT_GT(Newest("a").global_step(), step);
  EXPECT_EQ(sandbox_.Run({"ckpt", "verify", Folder("a")}).code, 0);
}

// The chief saves, ps/0 while it is gone, and whoever is the last one at the end.
TEST_F(GpuCheckpointTest, OfTasksByHandGoOnToo) {
  const std::vector<std::string> flags = {"--device=cuda",
                                          "--num_gpus=1",
                                          "--arena=device",
                                          "--hidden_units=16",
                                          "--optimizer=adam",
                                          "--batch_size=32",
                                          "--save_steps=50",
                                          "--shadow_interval=3600",
                                          "--slow_worker=0:1ms,1:1ms",
                                          "--checkpoint_dir=" + Folder("hand")};
  const auto task = [&](const char* name, int index, const char* steps) {
    return sandbox_.Start(sandbox_.Task(name, index, 1, 2, With(flags, {steps})));
  };
  const char* const endless = "--train_steps=100000000";
  Program ps = task("ps", 0, endless);
  Program chief = task("worker", 0, endless), other = task("worker", 1, endless);
  ASSERT_TRUE(chief.WaitFor("saved checkpoint " + Folder("hand") + "/model.ckpt-")) << chief.Err();
  chief.Signal(SIGKILL);
  chief.Wait();
  ASSERT_TRUE(ps.WaitFor("saved checkpoint " + Folder("hand") + "/model.ckpt-")) << ps.Err();
  for (Program* program : {&other, &ps}) {
    program->Signal(SIGKILL);
    program->Wait();
  }
  const std::int64_t step = Newest("hand").global_step();
  const std::string enough = fmt::format("--train_steps={}", step + 300);
  Program ps2 = task("ps", 0, enough.c_str());
  Program chief2 = task("worker", 0, enough.c_str()), other2 = task("worker", 1, enough.c_str());
  for (Program* program : {&chief2, &other2, &ps2}) {
    const Outcome outcome = sandbox_.Finish(*program, 60);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_THAT(chief2.Err(), HasSubstr(fmt::format("/model.ckpt-{}, global step", step)));
  EXPECT_GE(Newest("hand").global_step(), step + 300);
  EXPECT_EQ(sandbox_.Run({"ckpt", "verify", Folder("hand")}).code, 0);
}

}  // namespace
}  // namespace passel::testing
