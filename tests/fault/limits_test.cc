// Limits of the system that a job runs into: one sentence each, and no crash.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "support/program.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `passel arguments...`, which are $@ of the shell commands `before`: these may set others.
Outcome RunBehind(Sandbox& sandbox, const std::string& before,
                  const std::vector<std::string>& arguments) {
  Program program = sandbox.StartCommand(
      With({"sh", "-c", before + "; exec \"$@\"", "sh", PASSEL_PROGRAM}, arguments));
  return sandbox.Finish(program);
}

// The one sentence of a job that is refused.
std::string Refusal(Sandbox& sandbox, const std::string& before,
                    const std::vector<std::string>& arguments) {
  const Outcome outcome = RunBehind(sandbox, before, arguments);
  EXPECT_EQ(outcome.code, 2) << before << ": " << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 1u) << before << ": " << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
  return outcome.errors.empty() ? "" : outcome.errors[0];
}

TEST(LimitTest, StackThatIsTooSmallIsRefusedAndASoftLimitIsRaised) {
  Sandbox sandbox;
  for (const std::vector<std::string>& arguments :
       {sandbox.Train({"--train_steps=20"}), std::vector<std::string>{"--version"},
        sandbox.Task("ps", 0, 1, 1)}) {
    EXPECT_THAT(Refusal(sandbox, "ulimit -s 64", arguments),
                AllOf(HasSubstr("65536 bytes"), HasSubstr("262144"), HasSubstr("ulimit -s")));
  }
  sandbox.SetEnv("OPENBLAS_NUM_THREADS", "1");  // else it is executed once more because of that
  sandbox.SetEnv("OPENBLAS_CORETYPE", "Prescott");
  const Outcome raised =
      RunBehind(sandbox, "ulimit -S -s 64", sandbox.Train({"--train_steps=20", "--evaluator"}));
  EXPECT_EQ(raised.code, 0) << raised.err;
  if (!kSanitized) {
    const Outcome least =
        RunBehind(sandbox, "ulimit -s 256", sandbox.Train({"--train_steps=20", "--evaluator"}));
    EXPECT_EQ(least.code, 0) << least.err;
  }
}

TEST(LimitTest, ProcessesAndThreadsThatMayNotBeStartedAreNamed) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become a user who has no process yet";
  if (kSanitized) GTEST_SKIP() << "a sanitizer starts threads of its own";
  Sandbox sandbox;
  const int user = 61000 + ::getpid() % 4000;
  const auto limit = [user](int processes) {
    return fmt::format(
        "set -- setpriv --reuid={0} --regid={0} --clear-groups prlimit --nproc={1}:{1} "
        "\"$@\"",
        user, processes);
  };
  const auto job = [&](std::vector<std::string> more) {  // its data can be read by everybody
    more.insert(more.begin(),
                {"train", "--fake_data", "--train_steps=20", "--job_id=" + sandbox.job()});
    return more;
  };
  const std::vector<std::string> whole = job({});
  EXPECT_THAT(Refusal(sandbox, limit(1), whole),
              AllOf(HasSubstr("cannot start a thread"), HasSubstr("is 1 processes and threads"),
                    HasSubstr("ulimit -u")));
  EXPECT_THAT(Refusal(sandbox, limit(4), whole),
              AllOf(HasSubstr("cannot start worker/1"), HasSubstr("ulimit -u")));
  // It and the thread that answers passel ctl.
  const Outcome alone = RunBehind(sandbox, limit(2), job({"--ps=0", "--workers=1"}));
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(
      Refusal(sandbox, limit(2), job({"--ps=0", "--workers=1", "--threads_per_worker=2"})),
      AllOf(HasSubstr("matrix library"), HasSubstr("1 more thread"), HasSubstr("ulimit -u")));
}

TEST(LimitTest, SoftLimitOfDescriptorsIsRaisedForManyTasks) {
  Sandbox sandbox;
  const Outcome outcome =
      RunBehind(sandbox, "ulimit -S -n 40", sandbox.Train({"--workers=8", "--train_steps=20"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(
      Refusal(sandbox, "ulimit -n 40", sandbox.Train({"--workers=8"})),
      AllOf(HasSubstr("cannot start worker/"), HasSubstr("open files"), HasSubstr("ulimit -n")));
}

void UseUpProcessorTime(const std::vector<std::string>& processes) {
  Sandbox sandbox;
  EXPECT_THAT(
      Refusal(sandbox, "ulimit -t 2", sandbox.Train(With(processes, {"--train_steps=100000000"}))),
      AllOf(HasSubstr("1 s of processor time"), HasSubstr("ulimit -t")));
}

TEST(LimitTest, ProcessorTimeThatIsUsedUpEndsTheJobWithASentence) {
  UseUpProcessorTime({"--workers=1"});
}
TEST(SlowLimitTest, ProcessorTimeThatIsUsedUpEndsAJobWithoutAPsWithASentence) {
  UseUpProcessorTime({"--ps=0", "--workers=1"});
}

TEST(LimitTest, AddressSpaceAndDataThatAreTooSmallAreNamedBeforeTraining) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer reserves terabytes of address space";
  Sandbox sandbox;
  const std::vector<std::string> job = sandbox.Train({"--train_steps=20"});
  EXPECT_THAT(Refusal(sandbox, "ulimit -d 50000", job),
              AllOf(HasSubstr("51200000 bytes of data"), HasSubstr("ulimit -d")));
  EXPECT_THAT(Refusal(sandbox, "ulimit -v 200000", job),
              AllOf(HasSubstr("204800000 bytes of address space"), HasSubstr("ulimit -v")));
}

// A group of processes with a limit of memory; needs root and the memory controller, v1 or v2.
class MemoryGroup {
 public:
  MemoryGroup() {
    for (const auto& [parent, limit] : {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                        std::pair("/sys/fs/cgroup", "memory.max")}) {
      path_ = fmt::format("{}/passel-test-{}", parent, ::getpid());
      std::error_code error;
      if (!std::filesystem::create_directory(path_, error)) continue;
      limit_ = path_ + "/" + limit;
      if (std::filesystem::exists(limit_, error)) return;
      ::rmdir(path_.c_str());
    }
    limit_.clear();
  }
  ~MemoryGroup() {
    if (usable()) ::rmdir(path_.c_str());
  }
  bool usable() const { return !limit_.empty(); }
  void Limit(std::size_t bytes) const { WriteText(limit_, std::to_string(bytes)); }
  std::string Enter() const { return fmt::format("echo $$ > {}/cgroup.procs", path_); }
  // Processes that the kernel has killed; nothing if it does not count them.
  std::optional<int> Killed() const {
    for (const char* name : {"/memory.oom_control", "/memory.events"}) {
      std::istringstream lines(ReadText(path_ + name));
      std::string key;
      int value = 0;
      while (lines >> key >> value) {
        if (key == "oom_kill") return value;
      }
    }
    return std::nullopt;
  }

 private:
  std::string path_, limit_;
};

TEST(LimitTest, MemoryOfACgroupThatIsTooSmallIsToldBeforeTheKernelKills) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is not in the estimate";
  const MemoryGroup group;
  if (!group.usable()) GTEST_SKIP() << "no cgroup with the memory controller can be made here";
  Sandbox sandbox;
  std::set<int> codes;
  for (const std::size_t mib : {8, 11, 14, 17, 20, 23, 26, 40}) {
    group.Limit(mib << 20);
    const Outcome outcome =
        RunBehind(sandbox, group.Enter(), sandbox.Train({"--train_steps=100", "--evaluator"}));
    codes.insert(outcome.code);
    if (outcome.code == 0) continue;
    EXPECT_EQ(outcome.code, 2) << mib << " MiB: " << outcome.err;
    ASSERT_EQ(outcome.errors.size(), 1u) << mib << " MiB: " << outcome.err;
    EXPECT_THAT(outcome.errors[0], AllOf(HasSubstr("cgroup /passel-test"), HasSubstr("bytes free"),
                                         HasSubstr(std::to_string(mib << 20))));
  }
  EXPECT_THAT(codes, ::testing::ElementsAre(0, 2));
  EXPECT_EQ(group.Killed().value_or(0), 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// The kernel tells nobody why it killed: what it counts does.
TEST(LimitTest, WorkerThatTheKernelKillsForLackOfMemoryIsNamedWithThatCause) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is not in the estimate";
  const MemoryGroup group;
  if (!group.usable()) GTEST_SKIP() << "no cgroup with the memory controller can be made here";
  if (!group.Killed()) GTEST_SKIP() << "the kernel does not count its victims here";
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r");
  group.Limit(std::size_t{200} << 20);
  Program train = sandbox.StartCommand(
      With({"sh", "-c", group.Enter() + "; exec \"$@\"", "sh", PASSEL_PROGRAM},
           sandbox.Train({"--train_steps=100000000", "--max_restarts=1", "--report=" + report})));
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  // It is to be the first victim when another process of the group takes too much.
  WriteText(fmt::format("/proc/{}/oom_score_adj", sandbox.TaskPid("worker", 1)), "1000");
  Program other =
      sandbox.StartCommand({"sh", "-c", group.Enter() + "; exec head -c 300m /dev/zero | tail"});
  EXPECT_TRUE(train.WaitFor("worker/1 was killed by SIGKILL (9), out of memory? (oom_kill of "))
      << train.Err() << group.Killed().value_or(-1);
  sandbox.Finish(other);
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  sandbox.Interrupt(train);
  EXPECT_THAT(ReadJson(report)["deaths"][0]["cause"].get<std::string>(),
              HasSubstr("out of memory?"));
}

}  // namespace
}  // namespace passel::testing
