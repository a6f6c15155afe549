// Checkpoints of programs in C: what they have, who goes on from them, and what passel ckpt makes
// of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "capi/job.h"
#include "support/program.h"
#include "support/whole_checkpoints.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome Alone(Sandbox& sandbox, long steps, int features,
              const std::vector<std::string>& settings) {
  Program program =
      sandbox.StartCommand(With({PASSEL_LEAST_SQUARES, std::to_string(steps),
                                 std::to_string(features), sandbox.dir().path() + "/fit"},
                                settings));
  return sandbox.Finish(program, 30);
}

TEST(CapiCheckpoints, AJobAloneGoesOnAsIfItHadNeverEnded) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    const std::string folder = sandbox.dir().path() + "/train", fit = sandbox.dir().path() + "/fit";
    const std::vector<std::string> settings = {"optimizer=adam", "learning_rate=0.01",
                                               "mode=" + mode};
    const std::vector<std::string> saving = With(settings, {"checkpoint_dir=" + folder});
    ASSERT_EQ(Alone(sandbox, 200, kFeatures, settings).code, 0);
    const Fit undisturbed = ReadFit(fit);
    sandbox.SetEnv("SAVE_EVERY", "40");
    const Outcome first = Alone(sandbox, 100, kFeatures, saving);
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(first.out, "saved 40\nsaved 80\n");
    EXPECT_EQ(WholeStep(folder), 100);
    const Outcome second = Alone(sandbox, 100, kFeatures, saving);
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_EQ(second.out, "saved 140\nsaved 180\n");
    const Fit both = ReadFit(fit);
    EXPECT_EQ(both.global_step, 200);
    EXPECT_EQ(both.values, undisturbed.values) << "slot variables, too";

    // Values with which it has found no finite loss take nobody's place.
    sandbox.SetEnv("LOSS", "nan");
    const Outcome diverged = Alone(sandbox, 100, kFeatures, saving);
    EXPECT_EQ(diverged.code, 2);
    EXPECT_THAT(diverged.err, HasSubstr("loss or gradient of worker/0 was not finite at global "
                                        "step 240: lower learning_rate"));
    EXPECT_EQ(WholeStep(folder), 200);
    sandbox.SetEnv("LOSS", "0.5");

    // Another place to begin with, and none at all.
    const Outcome from = Alone(
        sandbox, 10, kFeatures,
        With(settings, {"checkpoint_dir=" + folder + "2", "resume=" + folder + "/model.ckpt-80"}));
    EXPECT_EQ(from.code, 0) << from.err;
    EXPECT_EQ(ReadFit(fit).global_step, 90);
    const Outcome anew = Alone(sandbox, 10, kFeatures, With(saving, {"resume=never"}));
    EXPECT_EQ(anew.code, 2);
    EXPECT_THAT(anew.err, HasSubstr("passel_open: 1: "));

    // Of other variables, and of another optimizer.
    const Outcome other = Alone(sandbox, 10, kFeatures + 1, saving);
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, AllOf(HasSubstr("passel_open: 1: "), HasSubstr("model.ckpt-200"),
                                 HasSubstr("\"w\" is [3] there and [4] in the job"),
                                 HasSubstr("use another checkpoint_dir"), Not(HasSubstr("--"))));
    const Outcome sgd =
        Alone(sandbox, 10, kFeatures, {"optimizer=sgd", "checkpoint_dir=" + folder});
    EXPECT_EQ(sgd.code, 2);
    EXPECT_THAT(sgd.err, HasSubstr("the slot variables of adam"));
    EXPECT_EQ(WholeStep(folder), 200) << "nothing was lost";
  }
}

TEST(CapiCheckpoints, PasselCkptKnowsThem) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().path() + "/train", fit = sandbox.dir().path() + "/fit";
  sandbox.SetEnv("SAVE_EVERY", "20");
  ASSERT_EQ(Alone(sandbox, 50, kFeatures, {"checkpoint_dir=" + folder}).code, 0);
  EXPECT_THAT(sandbox.Run({"ckpt", "ls", folder}).out,
              AllOf(HasSubstr("model.ckpt-20 "), HasSubstr("model.ckpt-50 ")));
  const Outcome show = sandbox.Run({"ckpt", "show", folder});
  EXPECT_EQ(show.code, 0) << show.err;
  EXPECT_THAT(show.out, AllOf(HasSubstr("model            own"),
                              HasSubstr("variables        {\"w\":[3],\"b\":[]}"),
                              HasSubstr("w/Adam_1"), HasSubstr("exact            true")));
  EXPECT_EQ(sandbox.Run({"ckpt", "verify", folder}).code, 0);
  EXPECT_EQ(sandbox.Run({"ckpt", "diff", folder + "/model.ckpt-20", folder}).code, 1);
  for (const std::string name : {"/values.safetensors", "/values.npz"}) {
    const Outcome exported = sandbox.Run({"ckpt", "export", folder, sandbox.dir().path() + name});
    EXPECT_EQ(exported.code, 0) << exported.err;
  }
  const std::string values = sandbox.dir().path() + "/values.safetensors";
  const Outcome same = sandbox.Run({"ckpt", "diff", "--values", folder, values});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, HasSubstr("2 of 2 tensors are the same"));
  EXPECT_THAT(OnlyError(sandbox.Run({"eval", "--data_dir", Digits(), "--params", folder})),
              HasSubstr("a program's own model, which passel cannot compute"));
  // A byte of the values is another one.
  const std::string file = folder + "/model.ckpt-50.safetensors";
  std::fstream changed(file, std::ios::in | std::ios::out | std::ios::binary);
  changed.seekp(-1, std::ios::end);
  changed.put('x');
  changed.close();
  EXPECT_EQ(sandbox.Run({"ckpt", "verify", folder}).code, 1);
  const Outcome resumed = Alone(sandbox, 10, kFeatures, {"checkpoint_dir=" + folder});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(ReadFit(fit).global_step, 50) << "from the one before, which is whole";
}

// Until a checkpoint of a later step is there.
bool AwaitSaved(const std::string& folder, std::int64_t later_than) {
  const auto limit = std::chrono::steady_clock::now() + Scaled(20.0);
  const auto newest = [&] {
    const Result<CheckpointIndex> index = ReadCheckpointIndex(folder);
    return index.ok() && !index->kept.empty()
               ? StepOfCheckpoint(index->kept.back().name).value_or(-1)
               : -1;
  };
  while (newest() <= later_than && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return newest() > later_than;
}

// All processes are killed at once, and started again.
void KillAll(const std::string& mode, int ps) {
  SCOPED_TRACE(mode);
  Job job(2, {"mode=" + mode, "save_steps=50"}, ps);
  const std::string folder = job.sandbox().dir().path() + "/train";
  job.Set("checkpoint_dir=" + folder);
  job.StartPs({"--checkpoint_dir=" + folder});
  for (int i = 0; i < 2; ++i) job.StartWorker(i, kEndless);
  ASSERT_TRUE(AwaitSaved(folder, 0));
  job.KillPs();
  for (int i = 0; i < 2; ++i) job.Kill(i);
  const std::int64_t saved = WholeStep(folder);
  EXPECT_GT(saved, 0);
  job.StartPs({"--checkpoint_dir=" + folder});
  for (int i = 0; i < 2; ++i) job.StartWorker(i, 100);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(0);
  const std::int64_t steps = mode == "barrier" ? 100 : 200;
  EXPECT_EQ(std::max(ReadFit(job.Out(0)).global_step, ReadFit(job.Out(1)).global_step),
            saved + steps);
  EXPECT_EQ(WholeStep(folder), saved + steps) << "the last one, by whoever ended last";
  EXPECT_EQ(UnfinishedFiles(folder), "");
}
TEST(CapiCheckpoints, AHogwildJobThatIsKilledAsAWholeGoesOn) { KillAll("hogwild", 2); }
TEST(CapiCheckpoints, ABarrierJobThatIsKilledAsAWholeGoesOn) { KillAll("barrier", 1); }

// The other ps waits until ps/0 has its arena.
TEST(CapiCheckpoints, TheLastOneOfAJobThatIsOverBeforePs0HoldsAllArenas) {
  Job job(2, {"mode=hogwild"}, 2);
  const std::string folder = job.sandbox().dir().path() + "/train";
  job.Set("checkpoint_dir=" + folder);
  job.sandbox().SetEnv("PASSEL_FAILPOINT", "keeper.hold:1:sleep1500");  // ps/0 alone passes it
  job.StartPs({"--checkpoint_dir=" + folder});
  job.StartWorker(0, 10);
  job.StartWorker(1, 500);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(0);
  EXPECT_EQ(WholeStep(folder), 510);
  EXPECT_EQ(UnfinishedFiles(folder), "");
}

// While the chief is dead ps/0 saves; it knows nothing of the program but its variables.
TEST(CapiCheckpoints, PsSavesWhileTheChiefIsGone) {
  Job job(2, {"mode=hogwild"});
  const std::string folder = job.sandbox().dir().path() + "/train";
  job.Set("checkpoint_dir=" + folder);
  job.StartPs({"--checkpoint_dir=" + folder, "--save_steps=50"});
  for (int i = 0; i < 2; ++i) job.StartWorker(i, kEndless);
  ASSERT_TRUE(AwaitSaved(folder, -1));
  job.Kill(0);
  const std::int64_t before = WholeStep(folder);
  EXPECT_TRUE(AwaitSaved(folder, before));
  EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
  job.ExpectDone(1);
  job.ExpectPsEnds(130);
  EXPECT_EQ(WholeStep(folder), ReadFit(job.Out(1)).global_step);
  EXPECT_THAT(job.sandbox().Run({"ckpt", "show", folder}).out, HasSubstr("{\"w\":[3],\"b\":[]}"));
}

// The chief asks for checkpoints while another trains.
TEST(CapiCheckpoints, TheChiefSavesWhenItWantsTo) {
  for (const std::string mode : {"hogwild", "barrier", "replicas", "consistent"}) {
    SCOPED_TRACE(mode);
    const bool consistent = mode == "consistent";
    Job job(2, {consistent ? "checkpoint_consistent=true" : "mode=" + mode, "keep_checkpoints=0"});
    const std::string folder = job.sandbox().dir().path() + "/train";
    job.Set("checkpoint_dir=" + folder);
    job.sandbox().SetEnv("SAVE_EVERY", "30");
    job.StartPs();
    for (int i = 0; i < 2; ++i) job.StartWorker(i, 90);
    std::vector<std::int64_t> saved;
    const Outcome chief = job.FinishWorker(0);
    EXPECT_EQ(chief.code, 0) << chief.err;
    job.ExpectDone(1);
    job.ExpectPsEnds(0);
    std::istringstream lines(chief.out);
    for (std::string word; lines >> word >> word;) saved.push_back(std::stoll(word));
    ASSERT_EQ(saved.size(), 3u) << chief.out;
    EXPECT_GE(saved[0], 30);
    EXPECT_GE(saved[1], saved[0] + 30);
    if (mode == "barrier") {
      EXPECT_EQ(saved, (std::vector<std::int64_t>{30, 60, 90}));
    }
    if (!consistent && mode != "barrier") continue;
    for (const std::int64_t step : saved) {
      const Outcome show =
          job.sandbox().Run({"ckpt", "show", folder + "/model.ckpt-" + std::to_string(step)});
      EXPECT_EQ(show.code, 0) << show.err;
      EXPECT_THAT(show.out, HasSubstr("exact            true"));
    }
  }
}

}  // namespace
}  // namespace passel::testing
