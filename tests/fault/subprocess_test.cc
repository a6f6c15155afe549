// Children that cannot outlive their parent (src/base/subprocess.h).

#include "base/subprocess.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/program.h"

namespace passel::testing {
namespace {

Result<Subprocess> Shell(const std::string& script, SpawnOptions options = {}) {
  options.executable = "/bin/sh";
  options.name = "sh";
  options.arguments = {"-c", script};
  return Subprocess::Spawn(options);
}

ExitState Ended(Subprocess& process) {
  Result<ExitState> exit = process.Reap(Deadline::After(Scaled(10.0)));
  EXPECT_TRUE(exit.ok()) << exit.status().message();
  return exit.ok() ? *exit : ExitState{};
}

bool Exists(pid_t pid) { return ::kill(pid, 0) == 0; }

bool Vanishes(pid_t pid) {
  const Deadline deadline = Deadline::After(Scaled(2.0));
  while (!deadline.Expired()) {
    const std::string stat = ReadText(fmt::format("/proc/{}/stat", pid));
    if (!Exists(pid) || stat.find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST(SubprocessTest, ExitIsToldAsCodeOrSignal) {
  Result<Subprocess> code = Shell("exit 7");
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(Ended(*code).ToString(), "exited with 7");
  Result<Subprocess> signal = Shell("kill -9 $$");
  ASSERT_TRUE(signal.ok());
  EXPECT_EQ(Ended(*signal).ToString(), "was killed by SIGKILL (9)");
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV (11)");
}

TEST(SubprocessTest, ProgramThatIsNotThereIsAnErrorOfTheSpawn) {
  SpawnOptions options;
  options.executable = "/no/such/program";
  const Result<Subprocess> process = Subprocess::Spawn(options);
  ASSERT_FALSE(process.ok());
  EXPECT_NE(process.status().message().find("/no/such/program"), std::string::npos);
}

TEST(SubprocessTest, RunningOneIsNotReapedAndTheDeadlineHolds) {
  Result<Subprocess> process = Shell("exec sleep 100");
  ASSERT_TRUE(process.ok());
  EXPECT_FALSE(process->TryReap().has_value());
  EXPECT_EQ(process->Reap(Deadline::After(std::chrono::milliseconds(20))).status().code(),
            Code::kDeadlineExceeded);
  process->Signal(SIGTERM);
  EXPECT_EQ(Ended(*process).code, SIGTERM);
  EXPECT_EQ(Ended(*process).code, SIGTERM) << "told again";
}

TEST(SubprocessTest, DestructionKillsTheWholeGroup) {
  TempDir dir;
  pid_t grandchild = 0;
  {
    Result<Subprocess> process = Shell("sleep 100 & echo $! > " + dir.File("pid") + ".new; mv " +
                                       dir.File("pid") + ".new " + dir.File("pid") + "; wait");
    ASSERT_TRUE(process.ok());
    const Deadline deadline = Deadline::After(Scaled(5.0));
    while (grandchild == 0 && !deadline.Expired()) {
      grandchild = std::atoi(ReadText(dir.File("pid")).c_str());
    }
    ASSERT_NE(grandchild, 0);
    EXPECT_EQ(::getpgid(process->pid()), process->pid());
    EXPECT_EQ(::getpgid(grandchild), process->pid());
    EXPECT_NE(::getpgid(0), process->pid());
  }
  EXPECT_TRUE(Vanishes(grandchild));
}

TEST(SubprocessTest, AbandonedOneIsNeitherKilledNorWaitedFor) {
  pid_t pid = 0;
  {
    Result<Subprocess> process = Shell("exec sleep 100");
    ASSERT_TRUE(process.ok());
    pid = process->pid();
    process->Abandon();
    process->Signal(SIGKILL);
    EXPECT_FALSE(process->TryReap().has_value());
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "it runs";
  ::kill(pid, SIGKILL);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST(SubprocessTest, ChildDiesWithItsParent) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Result<Subprocess> process = Shell("exec sleep 100");
    const pid_t pid = process.ok() ? process->pid() : 0;
    [[maybe_unused]] const auto put = ::write(ready[1], &pid, sizeof pid);
    ::pause();
    ::_exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_NE(child, 0);
  EXPECT_TRUE(Exists(child));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(Vanishes(child));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(SubprocessTest, OnlyNamedDescriptorsAreInheritedUnderTheirNumbers) {
  TempDir dir;
  FileDescriptor wanted(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  FileDescriptor other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnOptions options;
  options.inherited_fds = {wanted.get()};
  Result<Subprocess> process =
      Shell(fmt::format("test -e /proc/self/fd/{} && ! test -e /proc/self/fd/{}", wanted.get(),
                        other.get()),
            options);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(Ended(*process).code, 0);
  EXPECT_NE(::fcntl(wanted.get(), F_GETFD) & FD_CLOEXEC, 0) << "the parent's own flag is as it was";
}

TEST(SubprocessTest, EnvironmentIsOursWithReplacements) {
  ::setenv("PASSEL_TEST_KEPT", "kept", 1);
  ::setenv("PASSEL_TEST_REPLACED", "old", 1);
  SpawnOptions options;
  options.environment = {"PASSEL_TEST_REPLACED=new", "PASSEL_TEST_ADDED=1"};
  Result<Subprocess> process = Shell(
      "test $PASSEL_TEST_KEPT$PASSEL_TEST_REPLACED$PASSEL_TEST_ADDED = keptnew1 && "
      "test $(env | grep -c PASSEL_TEST_REPLACED) = 1",
      options);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(Ended(*process).code, 0);
}

TEST(SubprocessTest, SignalsAreAsAtLogin) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  ::signal(SIGINT, SIG_IGN);
  Result<Subprocess> process = Shell("exec sleep 100");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGINT, SIG_DFL);
  ASSERT_TRUE(process.ok());
  const std::string status = ReadText(fmt::format("/proc/{}/status", process->pid()));
  EXPECT_NE(status.find("SigBlk:\t0000000000000000"), std::string::npos) << status;
  process->Signal(SIGINT);
  EXPECT_EQ(Ended(*process).code, SIGINT);
}

TEST(SubprocessTest, CpusAreTheGivenOnes) {
  const std::vector<int> usable = UsableCpus();
  SpawnOptions options;
  options.cpus = {usable.back()};
  Result<Subprocess> process = Shell("exec sleep 100", options);
  ASSERT_TRUE(process.ok());
  const std::string status = ReadText(fmt::format("/proc/{}/status", process->pid()));
  EXPECT_NE(status.find(fmt::format("Cpus_allowed_list:\t{}\n", usable.back())), std::string::npos);
}

// A root with the given files below it.
class FakeRoot {
 public:
  explicit FakeRoot(const std::map<std::string, std::string>& files) {
    for (const auto& [path, text] : files) {
      const std::filesystem::path full = dir_.path() + path;
      std::filesystem::create_directories(full.parent_path());
      WriteText(full, text);
    }
  }
  std::size_t Cpus() const { return UsableCpus(dir_.path()).size(); }

 private:
  TempDir dir_;
};

TEST(UsableCpusTest, WithoutQuotaAllOfTheMask) {
  const std::size_t all = FakeRoot({}).Cpus();
  EXPECT_GE(all, 1u);
  EXPECT_EQ(
      FakeRoot({{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}})
          .Cpus(),
      all);
}

TEST(UsableCpusTest, QuotaOfAnyAncestorCounts) {
  if (FakeRoot({}).Cpus() < 2) GTEST_SKIP() << "one processor: no quota is smaller";
  EXPECT_EQ(FakeRoot({{"/proc/self/cgroup", "0::/a/b/c\n"},
                      {"/sys/fs/cgroup/a/cpu.max", "150000 100000\n"},
                      {"/sys/fs/cgroup/a/b/c/cpu.max", "900000 100000\n"}})
                .Cpus(),
            1u);
  EXPECT_EQ(
      FakeRoot({{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "200000 100000\n"}})
          .Cpus(),
      2u);
  EXPECT_EQ(
      FakeRoot({{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "50000 100000\n"}})
          .Cpus(),
      1u)
      << "half a processor is one";
  EXPECT_EQ(FakeRoot({{"/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/a\n"},
                      {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n"},
                      {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}})
                .Cpus(),
            1u);
}

}  // namespace
}  // namespace passel::testing
