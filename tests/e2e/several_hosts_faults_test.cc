// What becomes of a job on two hosts when the ps or the way between them is gone for a while.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "e2e/hosts_job.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SeveralHostsFaultsTest : public SeveralHostsTest {
 protected:
  // Of worker/1; -1 while nobody says.
  static int Steps(HostsJob& job) {
    const nlohmann::json steps =
        job.sandbox().Status().value("/arena/workers/1/local_steps"_json_pointer, nlohmann::json());
    return steps.is_number() ? steps.get<int>() : -1;
  }
  // Of worker/1, while it trains; after it the worker goes on.
  void PullFor(HostsJob& job, std::chrono::milliseconds time) {
    job.StartAll();
    ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"))
        << job["worker/1"].Err();
    ASSERT_TRUE(job.sandbox().Advances(20));
    ASSERT_TRUE(hosts_->Cable(false));
    std::this_thread::sleep_for(time);
    ASSERT_TRUE(hosts_->Cable(true));
    EXPECT_TRUE(SecondWorkerSteps(job)) << job["worker/1"].Err();
  }
  // Waits until it has made some more.
  static bool SecondWorkerSteps(HostsJob& job) {
    const Deadline deadline = Deadline::After(Scaled(30.0));
    int first = -1;
    while (!deadline.Expired()) {
      const int now = Steps(job);
      if (first < 0) first = now;
      if (first >= 0 && now >= first + 5) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
};

using SlowSeveralHostsFaultsTest = SeveralHostsFaultsTest;

// Of the newest checkpoint in the folder.
int NewestStep(const std::string& folder) {
  const std::string index = ReadText(folder + "/checkpoint"), name = "model.ckpt-";
  int newest = -1;
  for (std::size_t at = 0; (at = index.find(name, at)) != index.npos;) {
    at += name.size();
    newest = std::max(newest, std::atoi(index.c_str() + at));
  }
  return newest;
}

// The other workers go on meanwhile: at once, or when the round has dropped the one that is away.
// It comes back by itself. Of two leases the shorter counts.
TEST_F(SeveralHostsFaultsTest, ASilentWorkerHoldsRoundsUpForTheLeaseAndComesBack) {
  for (const char* mode : {"locked", "barrier"}) {
    SCOPED_TRACE(mode);
    HostsJob job =
        Job(1, 2, {"worker/1"}, With(kEndless, {std::string("--mode=") + mode, "--ps_wait=100"}));
    job.Start("ps/0", {"--lease=1.5"});
    ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
    job.Start("worker/0");
    job.Start("worker/1");
    ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete"));
    ASSERT_TRUE(job.sandbox().Advances(20));
    ASSERT_TRUE(hosts_->Cable(false));
    EXPECT_TRUE(job["ps/0"].WaitFor("worker/1 is gone: ")) << job["ps/0"].Err();
    EXPECT_TRUE(job["worker/1"].WaitFor("ps/0 at 10.77.0.1:2222 is gone: "));
    EXPECT_TRUE(job.sandbox().Advances(50, 20)) << job["ps/0"].Err();
    ASSERT_TRUE(hosts_->Cable(true));
    EXPECT_TRUE(job["worker/1"].WaitFor("ps/0 is back")) << job["worker/1"].Err();
    EXPECT_TRUE(SecondWorkerSteps(job)) << job["worker/1"].Err();
    job.Stop();
    job.ExpectEnd(130);
  }
}

// With the limits that tasks have by themselves. Rounds stand still meanwhile.
TEST_F(SeveralHostsFaultsTest, ACableThatIsOutForLessThanTheLeaseCostsTimeAlone) {
  HostsJob job = Job(1, 2, {"worker/1"}, With(kEndless, {"--mode=barrier"}));
  PullFor(job, std::chrono::milliseconds(11'500));
  EXPECT_THAT(job["ps/0"].Err(), Not(HasSubstr("died")));
  job.Stop();
  job.ExpectEnd(130);
}

// Nor is it for the worker to end when it was out for longer: it has --ps_wait to come back.
TEST_F(SlowSeveralHostsFaultsTest, WhoIsBackWithinThePsWaitGoesOn) {
  for (const char* mode : {"hogwild", "barrier"}) {
    for (const char* by : {"", "tcp;ofi_rxm"}) {
      SCOPED_TRACE(fmt::format("{} {}", mode, by));
      std::vector<std::string> flags = With(kEndless, {std::string("--mode=") + mode});
      if (*by != 0) flags.push_back(std::string("--fabric_provider=") + by);
      HostsJob job = Job(1, 2, {"worker/1"}, flags);
      PullFor(job, std::chrono::seconds(19));
      job.Stop();
      job.ExpectEnd(130);
    }
  }
}

// Nobody has kept its memory: what was trained since the newest checkpoint is lost, and said.
TEST_F(SeveralHostsFaultsTest, AKilledPsWhoseWorkersAreElsewhereGoesOnFromItsCheckpoint) {
  HostsJob job = Job(1, 2, {"worker/0", "worker/1"},
                     {"--start_wait=20", "--mode=barrier", "--ps_wait=100", "--save_steps=20"});
  const std::string folder = job.sandbox().dir().File("checkpoints");
  const auto flags = [&](int steps) -> std::vector<std::string> {
    return {"--checkpoint_dir=" + folder, fmt::format("--train_steps={}", steps)};
  };
  job.StartAll(flags(100'000'000));
  ASSERT_TRUE(job["ps/0"].WaitFor("saved checkpoint")) << job["ps/0"].Err();
  ASSERT_TRUE(job.sandbox().Advances(50));
  job.Kill("ps/0");
  for (const char* task : {"worker/0", "worker/1"}) {
    EXPECT_TRUE(job[task].WaitFor("ps/0 at 10.77.0.1:2222 is gone: ", 4)) << job[task].Err();
  }
  const int newest = NewestStep(folder);
  ASSERT_GT(newest, 0);
  const int steps = newest + 60;
  job.Start("ps/0", flags(steps));
  for (const char* task : {"worker/0", "worker/1"}) {
    EXPECT_THAT(job.OnlyErrorOf(task, 143),
                AllOf(HasSubstr("ps/0 was started again without its values"),
                      HasSubstr("training had reached global step")));
  }
  for (const char* task : {"worker/0", "worker/1"}) job.Start(task, flags(steps));
  job.ExpectEnd();
  EXPECT_THAT(job["worker/0"].Err(), HasSubstr(fmt::format("goes on from {0}/model.ckpt-{1}, "
                                                           "global step {1}",
                                                           folder, newest)));
  EXPECT_THAT(job["ps/0"].Err(),
              HasSubstr(fmt::format("saved checkpoint {}/model.ckpt-{} ", folder, steps)));
}

// As the name service says where it is now; a worker of its new host's has kept its memory.
TEST_F(SeveralHostsFaultsTest, APsThatComesBackOnAnotherAddressIsFoundByItsName) {
  if (!TwoHosts::HasAddressBooks()) GTEST_SKIP() << "nothing can be mounted here";
  constexpr const char* kNewAddress = "10.77.0.9";
  ASSERT_TRUE(hosts_->AddAddress(kNewAddress));
  // In rounds no update is cut in half, which would end worker/1 with 143.
  HostsJob job = Job(1, 2, {"worker/1"}, With(kEndless, {"--mode=barrier", "--ps_wait=100"}));
  job.Name("ps/0", "parameters.test");
  WriteText(job.AddressBook(), fmt::format("{} parameters.test\n", TwoHosts::kHere));
  job.StartAll();
  ASSERT_TRUE(job["worker/1"].WaitFor("Session initialization complete")) << job["worker/1"].Err();
  ASSERT_TRUE(job.sandbox().Advances(20));
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("listens at 10.77.0.1:2222"));
  job.Kill("ps/0");
  WriteText(job.AddressBook(), fmt::format("{} parameters.test\n", kNewAddress));
  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor("took the arena")) << job["ps/0"].Err();
  EXPECT_TRUE(SecondWorkerSteps(job)) << job["worker/1"].Err();
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("listens at 10.77.0.9:2222"));
  job.Stop();
  job.ExpectEnd(130);
}

}  // namespace
}  // namespace passel::testing
