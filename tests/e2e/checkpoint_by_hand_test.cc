// Jobs by hand of which a part is killed: who saves, and what the rest goes on from.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "support/hand_started.h"
#include "train/checkpoint_set.h"
#include "train/saved_model.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kByHand = {"--hidden_units=16", "--batch_size=20"};

std::string FolderIn(Sandbox& place) { return place.dir().path() + "/checkpoints"; }

std::int64_t NewestStepIn(const std::string& folder) {
  const Result<CheckpointSet> set = CheckpointSet::OpenNewest(folder);
  return set.ok() ? set->global_step() : -1;
}

std::vector<std::vector<float>> ValuesIn(const std::string& folder) {
  const Result<SavedModel> model = LoadModel(folder);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return model.ok() ? model->values : std::vector<std::vector<float>>();
}

bool AwaitNewest(const std::string& folder, std::int64_t step, double seconds = 20) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  while (NewestStepIn(folder) < step) {
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// The chief is killed at a certain step, and worker/1 trains alone to the end.
void TrainWithoutChief(const std::string& folder, const std::string& point, int steps) {
  HandStarted job(
      2, 2,
      With(kByHand, {"--mode=barrier", "--start_wait=20", fmt::format("--train_steps={}", steps),
                     "--checkpoint_dir=" + folder}));
  for (const char* ps : {"ps/0", "ps/1"}) job.Start(ps);
  job.Start("worker/0", point + ":kill");
  job.Start("worker/1");
  EXPECT_EQ(job.Finish("worker/1", 30).code, 0) << job["worker/1"].Err();
  EXPECT_EQ(job.Finish("worker/0").code, 1000 + SIGKILL) << job["worker/0"].Err();
  job.AskToStop();  // ps/0 would wait 10 s for the chief
  const Outcome ps = job.Finish("ps/0");
  EXPECT_EQ(ps.code, 130) << ps.err;
  EXPECT_THAT(ps.err, HasSubstr(fmt::format("saved checkpoint {}/model.ckpt-{} ", folder, steps)));
  job["ps/1"].Signal(SIGINT);
  EXPECT_EQ(job.Finish("ps/1").code, 130);
  EXPECT_EQ(job.sandbox().Leftovers(), "");
}

TEST(CheckpointByHandTest, WithoutAChiefTheLastStepIsSavedAndGoneOnFrom) {
  Sandbox place;
  const std::string whole = place.dir().path() + "/whole", parts = place.dir().path() + "/parts";
  TrainWithoutChief(whole, "worker.computed:50", 500);
  TrainWithoutChief(parts, "worker.computed:50", 300);
  ASSERT_EQ(NewestStepIn(parts), 300);
  const Result<CheckpointSet> set = CheckpointSet::OpenNewest(parts);
  EXPECT_TRUE(set.ok() && set->words().exact);
  TrainWithoutChief(parts, "worker.computed:1", 500);
  EXPECT_EQ(NewestStepIn(whole), 500);
  EXPECT_EQ(ValuesIn(whole), ValuesIn(parts));
}

TEST(CheckpointByHandTest, WhileTheChiefIsAwayPs0Saves) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    Sandbox place;
    const std::string folder = FolderIn(place);
    // Whoever takes over saves at once, however often that happens.
    const bool by_steps = mode == "hogwild";
    HandStarted job(2, 2,
                    With(With(kByHand, kEndless),
                         {"--mode=" + mode, by_steps ? "--save_steps=100" : "--save_secs=3600",
                          "--checkpoint_dir=" + folder}));
    job.StartAll();
    if (by_steps) {
      ASSERT_TRUE(AwaitNewest(folder, 100)) << job["worker/0"].Err();
    } else {
      ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
      ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
    }
    EXPECT_THAT(job["ps/0"].Err(), Not(HasSubstr("saved checkpoint")));
    job.Kill("worker/0");
    ASSERT_TRUE(job["ps/0"].WaitFor("worker/0 is gone: checkpoints are saved by ps/0"))
        << job["ps/0"].Err();
    ASSERT_TRUE(job["ps/0"].WaitFor("saved checkpoint")) << job["ps/0"].Err();
    const std::int64_t newest = NewestStepIn(folder);
    // It comes back: values stay as they are, and the folder is its own again.
    job.Start("worker/0");
    ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
    EXPECT_THAT(job["worker/0"].Err(), Not(HasSubstr("goes on from")));
    EXPECT_GT(NewestStepIn(folder), newest);
    // All are stopped without it.
    job.Kill("worker/0");
    const std::int64_t step = job.sandbox().GlobalStep();
    job["ps/0"].Signal(SIGINT);
    EXPECT_EQ(job.Finish("worker/1").code, 130);
    EXPECT_EQ(job.Finish("ps/0").code, 130) << job["ps/0"].Err();
    EXPECT_EQ(job.Finish("ps/1").code, 130);
    EXPECT_GE(NewestStepIn(folder), step) << job["ps/0"].Err();
    EXPECT_EQ(job.sandbox().Leftovers(), "");
  }
}

TEST(CheckpointByHandTest, WhatIsDrainedWithoutAChiefIsSaved) {
  Sandbox place;
  const std::string folder = FolderIn(place);
  HandStarted job(2, 2, With(With(kByHand, kEndless), {"--checkpoint_dir=" + folder}));
  job.StartAll();
  ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
  job.Kill("worker/0");
  std::this_thread::sleep_for(Scaled(0.6));  // until ps/0 has looked
  ASSERT_TRUE(job.Advances(100)) << job["worker/1"].Err();
  const std::int64_t step = job.sandbox().GlobalStep();
  for (const char* task : {"worker/1", "ps/1", "ps/0"}) job[task].Signal(SIGTERM);
  for (const char* task : {"worker/1", "ps/1", "ps/0"}) {
    EXPECT_EQ(job.Finish(task).code, 143) << task << job[task].Err();
  }
  EXPECT_THAT(job["ps/0"].Err(),
              HasSubstr("no worker is left that keeps the arena: the job goes on from what " +
                        folder + " has\n"));
  EXPECT_GE(NewestStepIn(folder), step) << job["ps/0"].Err();
  const Result<CheckpointSet> set = CheckpointSet::OpenNewest(folder);
  EXPECT_TRUE(set.ok() && set->words().exact) << job["ps/0"].Err();
}

// It has all values mapped, and nobody else saves them.
TEST(CheckpointByHandTest, AChiefWhosePsDoesNotComeBackSavesWhatItHas) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    Sandbox place;
    const std::string folder = FolderIn(place);
    HandStarted job(
        2, 2,
        With(With(kByHand, kEndless),
             {"--mode=" + mode, "--ps_wait=1", "--save_secs=3600", "--checkpoint_dir=" + folder}));
    job.StartAll();
    ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
    ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
    const std::int64_t step = job.sandbox().GlobalStep();
    ASSERT_GT(step, NewestStepIn(folder));
    job.Kill("ps/0");
    for (const char* worker : {"worker/0", "worker/1"}) {
      EXPECT_THAT(job.OnlyErrorOf(worker, 143), HasSubstr("--ps_wait"));
    }
    EXPECT_GE(NewestStepIn(folder), step) << job["worker/0"].Err();
    job["ps/1"].Signal(SIGTERM);
    EXPECT_EQ(job.Finish("ps/1", 20).code, 143);
  }
}

TEST(CheckpointByHandTest, APsWhoseArenaPs0HoldsLosesNothing) {
  HandStarted job(2, 2, With(kByHand, kEndless));
  job.StartAll();
  ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
  std::this_thread::sleep_for(Scaled(0.6));  // until ps/0 has looked
  const std::int64_t step = job.sandbox().GlobalStep();
  for (const char* task : {"worker/0", "worker/1", "ps/1"}) job.Kill(task);
  ASSERT_TRUE(job.Start("ps/1").WaitFor("took the arena of a former ps/1 over from ps/0"))
      << job["ps/1"].Err();
  for (const char* worker : {"worker/0", "worker/1"}) job.Start(worker);
  for (const char* worker : {"worker/0", "worker/1"}) {
    ASSERT_TRUE(job[worker].WaitFor("training step ")) << job[worker].Err();
  }
  EXPECT_TRUE(job.sandbox().AwaitStep(step + 50)) << job["worker/0"].Err();
  job.Stop({"ps/0", "ps/1", "worker/0", "worker/1"});
}

TEST(CheckpointByHandTest, WhenPs0HasLostItsValuesAllGoBackTogether) {
  Sandbox place;
  const std::string folder = FolderIn(place);
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    HandStarted job(
        3, 2,
        With(With(kByHand, kEndless), {"--mode=" + mode, "--checkpoint_dir=" + folder + mode}));
    job.StartAll();
    ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
    const std::int64_t saved = NewestStepIn(folder + mode);
    ASSERT_TRUE(job.sandbox().AwaitStep(saved + 200)) << job["worker/0"].Err();
    for (const char* task : {"worker/0", "worker/1", "ps/0"}) job.Kill(task);
    for (const char* task : {"ps/0", "worker/1", "worker/0"}) job.Start(task);
    ASSERT_TRUE(
        job["worker/0"].WaitFor(fmt::format(" to {} (model.ckpt-{}), which costs ", saved, saved)))
        << job["worker/0"].Err();
    const std::string chief = job["worker/0"].Err();
    EXPECT_THAT(chief, AllOf(HasSubstr("ps/0 has lost its values while ps/"),
                             HasSubstr("all ps go back from global step ")));
    const std::size_t costs = chief.find("which costs ");
    EXPECT_GE(std::atoll(chief.c_str() + costs + 12), 150);
    EXPECT_THAT(job["ps/1"].Err(), HasSubstr("ps/1 gives up its values"));
    for (const char* worker : {"worker/0", "worker/1"}) {
      EXPECT_TRUE(job[worker].WaitFor("training step 100 done")) << job[worker].Err();
    }
    ASSERT_TRUE(job.Advances(100));
    job.Stop({"ps/0", "ps/1", "ps/2", "worker/0", "worker/1"});
    EXPECT_GT(NewestStepIn(folder + mode), saved + 100);
  }
}

// Nobody finds a worker with --existing_servers, which holds the arenas of a ps that comes back.
TEST(CheckpointByHandTest, NothingIsSetBackUnderAWorkerThatStillTrains) {
  Sandbox place;
  const std::string folder = FolderIn(place);
  HandStarted job(2, 2, With(With(kByHand, kEndless), {"--checkpoint_dir=" + folder}));
  for (const char* task : {"ps/0", "ps/1", "worker/0"}) job.Start(task);
  job.Start("worker/1", "", {"--existing_servers", "--ps_wait=3"});
  ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
  ASSERT_TRUE(job["worker/1"].WaitFor("training step 100 done")) << job["worker/1"].Err();
  for (const char* task : {"worker/0", "ps/0"}) job.Kill(task);
  for (const char* task : {"ps/0", "worker/0"}) job.Start(task);
  EXPECT_TRUE(job["worker/0"].WaitFor("still trains on the values of ps/1"))
      << job["worker/0"].Err();
  // It finds that its ps is gone, and leaves.
  EXPECT_EQ(job.Finish("worker/1").code, 143) << job["worker/1"].Err();
  EXPECT_TRUE(job["worker/0"].WaitFor("all ps go back from global step ")) << job["worker/0"].Err();
  job.Start("worker/1");
  ASSERT_TRUE(job.Advances(100)) << job["worker/0"].Err();
  job.Stop({"ps/0", "ps/1", "worker/0", "worker/1"});
}

// PASSEL_TEST_KILLS: how many.
TEST(SlowCheckpointByHandTest, AllKilledAtRandomInstantsTheNewestIsWhole) {
  const char* const asked = std::getenv("PASSEL_TEST_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 20;
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  Sandbox place;
  std::map<std::string, std::int64_t> before;
  const std::vector<std::string> modes = {"hogwild", "barrier"};
  for (int kill = 0; kill < kills; ++kill) {
    const std::string mode = modes[static_cast<std::size_t>(kill) % modes.size()];
    SCOPED_TRACE(fmt::format("seed {}, kill {}, {}", seed, kill, mode));
    const std::string folder = FolderIn(place) + mode;
    HandStarted job(2, 2,
                    With(With(kByHand, kEndless),
                         {"--mode=" + mode, "--save_steps=20", "--checkpoint_dir=" + folder}));
    job.StartAll();
    ASSERT_TRUE(job["worker/0"].WaitFor("saved checkpoint")) << job["worker/0"].Err();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    std::vector<std::string> tasks = {"worker/0", "worker/1", "ps/0", "ps/1"};
    std::shuffle(tasks.begin(), tasks.end(), random);
    for (const std::string& task : tasks) job[task].Signal(SIGKILL);
    for (const std::string& task : tasks) job[task].Wait();
    const std::string err = job["worker/0"].Err();
    const std::string name = "/model.ckpt-";
    const std::size_t last = err.rfind(name, err.rfind("saved checkpoint") + 400);
    ASSERT_NE(last, std::string::npos);
    const std::int64_t said = std::atoll(err.c_str() + last + name.size());
    const std::int64_t newest = NewestStepIn(folder);
    ASSERT_GE(newest, said) << err;
    if (before.contains(mode)) {
      ASSERT_GT(newest, before[mode]) << err;
    }
    before[mode] = newest;
  }
}

// The monitored session program by its own flags, killed as a whole.
TEST(CheckpointByHandTest, TheMonitoredProgramGoesOnWhereItWas) {
  Sandbox place;
  const std::string folder = FolderIn(place);
  const std::vector<std::string> flags = {"--preset=monitored", "--logs_dir=" + folder,
                                          "--hidden_units=16",  "--batch_size=20",
                                          "--save_steps=100",   "--start_wait=20"};
  const auto start = [&](int steps) {
    auto job =
        std::make_unique<HandStarted>(1, 2, With(flags, {fmt::format("--train_steps={}", steps)}));
    job->StartAll();
    return job;
  };
  {
    const auto job = start(100'000'000);
    ASSERT_TRUE(AwaitNewest(folder, 300)) << (*job)["worker/0"].Err();
    for (const char* task : {"worker/0", "worker/1", "ps/0"}) job->Kill(task);
  }
  const std::int64_t newest = NewestStepIn(folder);
  const auto job = start(static_cast<int>(newest) + 500);
  for (const char* task : {"worker/0", "worker/1", "ps/0"}) {
    EXPECT_EQ(job->Finish(task, 30).code, 0) << task << (*job)[task].Err();
  }
  EXPECT_THAT((*job)["worker/0"].Err(),
              HasSubstr(fmt::format("model.ckpt-{}, global step {}", newest, newest)));
  EXPECT_GE(NewestStepIn(folder), newest + 500);
}

TEST(CheckpointByHandTest, AJobThatEpochsOrLocalStepsHaveEndedSaysSo) {
  for (const std::string rule : {"--local_steps=40", "--epochs=1"}) {
    SCOPED_TRACE(rule);
    Sandbox place;
    const std::string folder = FolderIn(place);
    const auto train = place.Train({rule, "--hidden_units=16", "--batch_size=100", "--mode=barrier",
                                    "--workers=2", "--checkpoint_dir=" + folder});
    ASSERT_EQ(place.Run(train).code, 0);
    const std::int64_t step = NewestStepIn(folder);
    const auto values = ValuesIn(folder);
    const Outcome again = place.Run(train);
    EXPECT_EQ(again.code, 0) << again.err;
    std::string words = rule;
    words[words.find('=')] = ' ';
    EXPECT_THAT(again.err, HasSubstr("is of a job that is finished: each worker has made the "
                                     "steps of " +
                                     words + "; raise"));
    EXPECT_EQ(NewestStepIn(folder), step);
    EXPECT_EQ(ValuesIn(folder), values);
  }
}

TEST(CheckpointByHandTest, AnotherLifeOfTheJobIsWaitedFor) {
  Sandbox place;
  const std::string folder = FolderIn(place);
  const auto train = place.Train({"--ps=0", "--workers=1", "--hidden_units=16",
                                  "--train_steps=100000000", "--checkpoint_dir=" + folder});
  Program frozen = place.Start(train);
  ASSERT_TRUE(frozen.WaitFor("saved checkpoint")) << frozen.Err();
  frozen.Signal(SIGSTOP);
  const std::string error = OnlyError(place.Run(With(train, {"--start_wait=1"})), 143);
  EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("folder of process {} on ", frozen.pid())),
                           HasSubstr("another life of this job, which has not ended within 1 s")));
  // One that ends meanwhile makes room.
  Program next = place.Start(train);
  ASSERT_TRUE(next.WaitFor("another life of this job: waiting for its end")) << next.Err();
  frozen.Signal(SIGKILL);
  frozen.Wait();
  EXPECT_TRUE(next.WaitFor("goes on from")) << next.Err();
  place.Interrupt(next);
}

}  // namespace
}  // namespace passel::testing
