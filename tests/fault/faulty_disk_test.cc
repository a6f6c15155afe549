// Disks that fail, hang or are full, threads that cannot be started, clocks that jump: what becomes
// of a job that saves. tests/support/fault_shim.cc says how calls of a program are made to fail.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "support/whole_checkpoints.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

const std::vector<std::string> kSmallModel = {"--hidden_units=16", "--batch_size=20"};
const std::vector<std::string> kEndlessJob = With(kSmallModel, {"--train_steps=100000000"});

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer has these calls for itself";
  }
  std::string Folder() { return sandbox_.dir().path() + "/checkpoints"; }
  std::string Log() { return sandbox_.dir().path() + "/hits"; }
  // What is started from now on has this fault, in the folder of checkpoints; "": none.
  void Arm(const std::string& fault, const std::string& path = "/checkpoints") {
    fs::remove(Log());
    sandbox_.SetEnv("LD_PRELOAD", PASSEL_FAULT_SHIM);
    sandbox_.SetEnv("PASSEL_FAULT", fault);
    sandbox_.SetEnv("PASSEL_FAULT_PATH", path);
    sandbox_.SetEnv("PASSEL_FAULT_LOG", Log());
  }
  std::vector<std::string> Job(const std::vector<std::string>& more) {
    return sandbox_.Train(With({"--checkpoint_dir=" + Folder()}, more));
  }
  // Files of a save that never ended are still there.
  void AwaitNoProcess() {
    const Deadline deadline = Deadline::After(Scaled(5.0));
    while (!sandbox_.Processes().empty() && !deadline.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(sandbox_.Processes().empty());
  }
  bool AwaitHit() {
    const Deadline deadline = Deadline::After(Scaled(20.0));
    while (!fs::exists(Log()) && !deadline.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return fs::exists(Log());
  }

  // Makes every `stride`th call that a job makes in its folder fail, from the `first` on. For good:
  // and all that follow that call, too.
  void FailInTurn(const std::string& mode, int error, int first, int stride,
                  bool for_good = false) {
    const std::vector<std::string> flags =
        With(kSmallModel, {"--mode=" + mode, "--ps=2", "--save_steps=10"});
    Arm("");
    ASSERT_EQ(sandbox_.Run(Job(With(flags, {"--train_steps=20"}))).code, 0);
    const std::int64_t former = WholeStep(Folder());
    ASSERT_GE(former, 20);
    const std::string kept = sandbox_.dir().path() + "/kept";
    fs::remove_all(kept);  // of a turn before that failed
    fs::rename(Folder(), kept);
    for (int call = first;; call += stride) {
      SCOPED_TRACE(fmt::format("{}, call {}, {}", mode, call, std::strerror(error)));
      ASSERT_LT(call, 2000);
      fs::remove_all(Folder());
      fs::copy(kept, Folder(), fs::copy_options::recursive);
      Arm(fmt::format("any:{}{}:{}", call, for_good ? "+" : "", error));
      const Outcome end =
          sandbox_.Run(Job(With(flags, {fmt::format("--train_steps={}", former + 30)})));
      ASSERT_THAT(end.code, AnyOf(0, 1, 2)) << end.err;
      ASSERT_LE(end.errors.size(), 1u) << end.err;
      ASSERT_GE(WholeStep(Folder()), former) << end.err;
      const bool hit = fs::exists(Log());
      if (hit) ExpectTold(end, error);
      if (hit && for_good) {
        // Nobody could delete anything: the next job does.
        Arm("");
        const Outcome next =
            sandbox_.Run(Job(With(flags, {fmt::format("--train_steps={}", former + 40)})));
        ASSERT_EQ(next.code, 0) << next.err;
        ASSERT_GE(WholeStep(Folder()), former + 40) << next.err;
        ASSERT_THAT(next.err, Not(HasSubstr("the checkpoint before it is used")));
      }
      ASSERT_EQ(UnfinishedFiles(Folder()), "") << end.err;
      ASSERT_THAT(end.err, Not(HasSubstr("the checkpoint before it is used")));
      ASSERT_EQ(sandbox_.Leftovers(), "");
      if (hit) continue;
      EXPECT_NE(call, first) << "no call has failed at all";
      EXPECT_EQ(end.code, 0) << end.err;
      break;
    }
    Arm("");
    const Outcome last =
        sandbox_.Run(Job(With(flags, {fmt::format("--train_steps={}", former + 40)})));
    EXPECT_EQ(last.code, 0) << last.err;
    fs::remove_all(kept);
    fs::remove_all(Folder());
  }

  // What is said of a call that failed has its path and the system's words. Where nothing is said
  // it did no harm.
  void ExpectTold(const Outcome& end, int error) {
    std::istringstream lines(end.err);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" W ") == line.npos && line.find(" E ") == line.npos) continue;
      ++told_;
      EXPECT_THAT(line, AllOf(HasSubstr(Folder()), HasSubstr(std::strerror(error))))
          << ReadText(Log()) << "exit code " << end.code;
    }
  }

  int told_ = 0;  // sentences about calls that failed
  Sandbox sandbox_;
};

class FaultyDiskTest : public FaultTest {};
class SlowFaultyDiskTest : public FaultTest {};

// "12:34:56.789" of each line that says so: in seconds of the day.
std::vector<double> TimesOf(const std::string& log, const std::string& what) {
  std::vector<double> times;
  for (std::size_t at = 0; (at = log.find(what, at)) != std::string::npos; at += what.size()) {
    const std::size_t line = log.rfind('\n', at) + 1;
    int hours = 0, minutes = 0;
    double seconds = 0;
    if (std::sscanf(log.c_str() + log.find('T', line), "T%d:%d:%lf", &hours, &minutes, &seconds) ==
        3)
      times.push_back(3600.0 * hours + 60.0 * minutes + seconds);
  }
  return times;
}

// Of each save: "saved checkpoint PATH in 34 ms".
std::vector<double> MillisecondsOf(const std::string& log) {
  std::vector<double> took;
  for (std::size_t at = 0; (at = log.find("saved checkpoint ", at)) != std::string::npos; ++at) {
    took.push_back(std::atof(log.c_str() + log.find(" in ", at) + 4));
  }
  return took;
}

// At most --save_secs and one save are lost, also where a save takes longer than that.
TEST_F(SlowFaultyDiskTest, TheTimeOfASaveCountsForTheNext) {
  Arm("fsync:1+:wait2000");
  Program program = sandbox_.Start(Job(With(kEndlessJob, {"--save_secs=6"})));
  std::vector<double> times;
  const Deadline deadline = Deadline::After(Scaled(120.0));
  while (times.size() < 4 && !deadline.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    times = TimesOf(program.Err(), "saved checkpoint");
  }
  program.Signal(SIGKILL);
  program.Wait();
  AwaitNoProcess();
  ASSERT_GE(times.size(), 4u) << program.Err();
  // From its end on it would be 6 s more. A save takes about as long as that, on a busy disk
  // longer.
  const std::vector<double> took = MillisecondsOf(program.Err());
  ASSERT_GE(took.size(), times.size());
  for (std::size_t i = 2; i < times.size(); ++i) {
    const double apart = times[i] - times[i - 1];
    EXPECT_GT(apart, 3) << program.Err();  // the disk is slow
    EXPECT_LT(apart, std::max(6.0, 1e-3 * took[i]) + 4) << program.Err();
  }
}

TEST_F(FaultyDiskTest, WhateverCallFailsTheFormerCheckpointOrTheNewOneIsWhole) {
  constexpr int kStride = 32;
  FailInTurn("barrier", EIO, 1 + static_cast<int>(TestSeed() % kStride), kStride);
}

TEST_F(FaultyDiskTest, OneThatBecomesReadOnlyOrBreaksForGoodKeepsTheFormerCheckpoint) {
  constexpr int kStride = 24;
  for (const int error : {EROFS, EIO}) {
    FailInTurn("barrier", error, 1 + static_cast<int>(TestSeed() % kStride), kStride, true);
  }
  EXPECT_GT(told_, 0);
}

TEST_F(SlowFaultyDiskTest, OneThatBecomesReadOnlyOrBreaksForGoodKeepsTheFormerCheckpoint) {
  for (const int error : {EROFS, EIO}) FailInTurn("hogwild", error, 1, 1, true);
  EXPECT_GT(told_, 0);
}

TEST_F(SlowFaultyDiskTest, WhateverCallFailsTheFormerCheckpointOrTheNewOneIsWhole) {
  for (const int error : {EIO, ENOSPC, EINTR}) FailInTurn("barrier", error, 1, 1);
  for (const int error : {ENOMEM, EDQUOT}) FailInTurn("hogwild", error, 1, 1);
  EXPECT_GT(told_, 0);
}

TEST_F(FaultyDiskTest, WhileItIsSlowTrainingGoesOn) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    fs::remove_all(Folder());
    Arm("fsync:1:wait60000");
    Program program = sandbox_.Start(Job(With(kEndlessJob, {"--mode=" + mode, "--save_steps=50"})));
    ASSERT_TRUE(AwaitHit()) << program.Err();
    EXPECT_TRUE(sandbox_.Advances(500)) << program.Err();
    EXPECT_THAT(program.Err(), Not(HasSubstr("saved checkpoint")));
    program.Signal(SIGKILL);
    program.Wait();
    AwaitNoProcess();
  }
}

TEST_F(FaultyDiskTest, OneThatHangsKeepsNobodyBeyondGrace) {
  const struct {
    const char* fault;
    std::vector<std::string> flags;
  } cases[] = {{"fsync:2+:wait60000", {"--mode=barrier", "--ps=2", "--save_steps=50"}},
               // After the four of the first save: only the last one hangs.
               {"fsync:5+:wait60000", {"--ps=0", "--workers=1", "--save_secs=1000"}}};
  for (const auto& [fault, flags] : cases) {
    SCOPED_TRACE(fault);
    fs::remove_all(Folder());
    Arm(fault);
    Program program = sandbox_.Start(Job(With(With(kEndlessJob, flags), {"--grace=1"})));
    ASSERT_TRUE(flags.back() == "--save_secs=1000" ? program.WaitFor("saved checkpoint")
                                                   : AwaitHit())
        << program.Err();
    program.Signal(SIGTERM);
    const Outcome end = sandbox_.Finish(program, 8);
    EXPECT_EQ(end.code, 143) << end.err;
    EXPECT_THAT(end.err, HasSubstr("the disk has not answered in time, and is left to itself"));
    EXPECT_TRUE(fs::exists(Log()));
    AwaitNoProcess();
  }
}

TEST_F(FaultyDiskTest, WithoutLocksItGetsNoCheckpoints) {
  Arm(fmt::format("fcntl:1+:{}", ENOLCK), ".owner");
  EXPECT_THAT(OnlyError(sandbox_.Run(Job(kSmallModel))),
              AllOf(HasSubstr(Folder() + " cannot get checkpoints"), HasSubstr("No locks"),
                    HasSubstr("name a folder on a file system that has locks")));
}

TEST_F(FaultyDiskTest, ThreadsThatCannotBeStartedEndNoTraining) {
  sandbox_.SetEnv("OPENBLAS_NUM_THREADS", "1");
  sandbox_.SetEnv("OPENBLAS_CORETYPE", "Prescott");
  int trained = 0, hits = 0;
  for (int thread = 1; thread <= 16; thread += 3) {
    fs::remove_all(Folder());
    Arm(fmt::format("pthread_create:{}:{}", thread, EAGAIN));
    const Outcome end = sandbox_.Run(
        Job(With(kSmallModel, {"--mode=barrier", "--ps=2", "--train_steps=60", "--save_steps=5"})));
    SCOPED_TRACE(fmt::format("thread {}: {}", thread, end.err));
    hits += fs::exists(Log()) ? 1 : 0;
    ASSERT_THAT(end.code, AnyOf(0, 2));
    EXPECT_EQ(end.errors.size(), end.code == 0 ? 0u : 1u);
    if (end.code != 0) continue;
    ++trained;
    EXPECT_GE(WholeStep(Folder()), 60);
  }
  EXPECT_GT(trained, 0);
  EXPECT_GT(hits, 1);
}

// Each size of a disk, from one that has room for nothing to one that has room for all.
void FillDisks(Sandbox& sandbox, const std::vector<int>& sizes) {
  const std::string disk = sandbox.dir().path() + "/disk";
  fs::create_directory(disk);
  const std::string script =
      "mount -t tmpfs -o size=$0k none \"$1\" || { echo cannot mount; exit; }\n"
      "disk=$1; shift\n"
      "\"$@\"; echo code $?\n"
      "ls -A $disk/c $disk | grep -F .tmp. && echo left\n"
      "[ ! -e $disk/c/checkpoint ] || \"$1\" eval --model=$disk/c \"$3\" >/dev/null && echo "
      "whole\n";
  bool some = false, none = false;
  for (const int kib : sizes) {
    SCOPED_TRACE(fmt::format("{} KiB", kib));
    Program program = sandbox.StartCommand(With(
        {"unshare", "-m", "sh", "-c", script, std::to_string(kib), disk, PASSEL_PROGRAM},
        sandbox.Train(With(
            kSmallModel,
            {"--train_steps=60", "--save_steps=15", "--ps=2", "--checkpoint_dir=" + disk + "/c",
             "--logs_dir=" + disk + "/l", "--summary_steps=5", "--save=" + disk + "/model"}))));
    const Outcome end = sandbox.Finish(program);
    if (end.out.find("cannot mount") != std::string::npos) GTEST_SKIP() << end.err;
    ASSERT_THAT(end.out, AnyOf(HasSubstr("code 0\n"), HasSubstr("code 1\n"), HasSubstr("code 2\n")))
        << end.err;
    EXPECT_THAT(end.out, AllOf(HasSubstr("whole\n"), Not(HasSubstr("left\n")))) << end.err;
    const bool worked = end.out.find("code 0\n") != std::string::npos;
    if (!worked) {
      EXPECT_THAT(end.err, AnyOf(HasSubstr("free some, or"), HasSubstr("No space left")));
    }
    (worked ? some : none) = true;
  }
  EXPECT_TRUE(some && none);
}

TEST(FullDiskTest, NothingThatWasSavedIsLost) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can mount a small disk";
  Sandbox sandbox;
  FillDisks(sandbox, {64, 290, 380, 2000});
}

TEST(SlowFullDiskTest, NothingThatWasSavedIsLost) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can mount a small disk";
  Sandbox sandbox;
  std::vector<int> sizes;
  for (int i = 1; i <= 64; ++i) sizes.push_back(20 * i);
  FillDisks(sandbox, sizes);
}

using ClockTest = FaultTest;

// As the lines of a log have them.
std::set<std::string> YearsIn(const std::string& log) {
  std::set<std::string> years;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("20")) years.insert(line.substr(0, 4));
  }
  return years;
}

TEST_F(ClockTest, WhenItJumpsNothingHappens) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    fs::remove_all(Folder());
    Arm("");
    sandbox_.SetEnv("PASSEL_CLOCK", "70:0,3600,-3600,315360000,-315360000,1,-1");
    const std::string logs = sandbox_.dir().path() + "/logs";
    Program program = sandbox_.Start(
        Job(With(kEndlessJob, {"--mode=" + mode, "--save_secs=0.05", "--keep_checkpoints=3",
                               "--keep_every_hours=1", "--summary_secs=1", "--logs_dir=" + logs})));
    ASSERT_TRUE(sandbox_.AwaitStep(1)) << program.Err();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // 21 jumps
    // Until a line of the log is of another year: on a slow disk there are few.
    const Deadline limit = Deadline::After(Scaled(20.0));
    while (YearsIn(program.Err()).size() < 2 && !limit.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(sandbox_.Advances(100)) << program.Err();
    const Outcome end = sandbox_.Interrupt(program);
    EXPECT_THAT(end.err, AllOf(Not(HasSubstr(" W ")), Not(HasSubstr(" E "))));
    EXPECT_GE(YearsIn(end.err).size(), 2u) << end.err;
    sandbox_.SetEnv("PASSEL_CLOCK", "");
    const std::int64_t step = WholeStep(Folder());
    EXPECT_GT(step, 0);
    const Outcome next = sandbox_.Run(
        Job(With(kSmallModel, {"--mode=" + mode, fmt::format("--train_steps={}", step + 20)})));
    EXPECT_EQ(next.code, 0) << next.err;
    EXPECT_THAT(next.err, HasSubstr(fmt::format("goes on from {}/model.ckpt-{}", Folder(), step)));
  }
}

}  // namespace
}  // namespace passel::testing
