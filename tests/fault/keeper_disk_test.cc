// A disk that hangs under ps/0 of a job by hand, which saves while the chief is gone: the job is
// served all the same, and ps/0 ends when it is told to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "support/hand_started.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

class KeeperDiskTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer has these calls for itself";
    Sandbox& sandbox = job_.sandbox();
    sandbox.SetEnv("PASSEL_FAULT", GetParam());
    sandbox.SetEnv("PASSEL_FAULT_PATH", "/checkpoints");
    sandbox.SetEnv("PASSEL_FAULT_LOG", log_);
    sandbox.SetEnv("LD_PRELOAD", PASSEL_FAULT_SHIM);
    job_.Start("ps/0");
    sandbox.SetEnv("LD_PRELOAD", "");
    job_.Start("worker/0");
    job_.Start("worker/1");
    ASSERT_TRUE(job_["worker/0"].WaitFor("saved checkpoint")) << job_["worker/0"].Err();
    job_.Kill("worker/0");
    const Deadline deadline = Deadline::After(Scaled(20.0));
    while (!std::filesystem::exists(log_)) {
      ASSERT_FALSE(deadline.Expired()) << job_["ps/0"].Err();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  TempDir dir_;
  const std::string log_ = dir_.File("hits");
  HandStarted job_{1,
                   2,
                   {"--hidden_units=16", "--batch_size=20", "--train_steps=100000000",
                    "--save_secs=0.2", "--checkpoint_dir=" + dir_.path() + "/checkpoints"}};
};

TEST_P(KeeperDiskTest, Ps0ServesTheJobAndEndsWhenItIsTold) {
  ASSERT_TRUE(job_.Advances(200)) << job_["ps/0"].Err();
  if (std::string(GetParam()).starts_with("fsync")) {
    // The chief that comes back is told whose the folder is.
    job_.Start("worker/0", "", {"--start_wait=1"});
    EXPECT_EQ(job_.Finish("worker/0").code, 143) << job_["worker/0"].Err();
    ASSERT_TRUE(job_.Advances(200)) << job_["ps/0"].Err();
  }
  // The first ends the service, the others what it waits for then.
  const Deadline deadline = Deadline::After(Scaled(8.0));
  while (job_["ps/0"].Running() && !deadline.Expired()) {
    job_["ps/0"].Signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_FALSE(job_["ps/0"].Running()) << job_["ps/0"].Err();
  const Outcome end = job_.Finish("ps/0", 1);
  EXPECT_EQ(end.code, 143) << end.err;
  EXPECT_THAT(end.err, HasSubstr("the disk has not answered in time, and is left to itself"));
  EXPECT_THAT(end.err, HasSubstr("the workers keep the arena"));
  job_.Kill("worker/1");
}

INSTANTIATE_TEST_SUITE_P(Disks, KeeperDiskTest,
                         ::testing::Values("open:1+:wait60000", "fsync:1+:wait60000"),
                         [](const auto& test) {
                           return std::string(test.param).starts_with("open") ? "AsItIsOpened"
                                                                              : "InASave";
                         });

}  // namespace
}  // namespace passel::testing
