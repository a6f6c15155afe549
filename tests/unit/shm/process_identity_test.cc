// Who is alive: zombies are not, a re-used pid is not, and what cannot be read is not known.

#include "base/process_identity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

namespace passel {
namespace {

TEST(ProcessIdentity, OfThisProcessIsAliveAndStable) {
  const ProcessIdentity self = SelfIdentity();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_NE(self.start_time, 0u);
  EXPECT_NE(self.pid_namespace, 0u);
  EXPECT_EQ(self, IdentityOf(::getpid()));
  EXPECT_EQ(ProbeLiveness(self), Liveness::kAlive);
}

TEST(ProcessIdentity, ZombieAndReapedProcessAreDead) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessIdentity who = IdentityOf(child);
  ASSERT_EQ(who.pid, child);
  EXPECT_EQ(ProbeLiveness(who), Liveness::kAlive);
  ::kill(child, SIGSTOP);
  EXPECT_EQ(ProbeLiveness(who), Liveness::kAlive) << "stopped is not dead";
  ::kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ProbeLiveness(who), Liveness::kDead) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(ProbeLiveness(who), Liveness::kDead);
  EXPECT_EQ(IdentityOf(child).pid, 0);
}

TEST(ProcessIdentity, PidThatBelongsToAnotherProcessByNowIsDead) {
  ProcessIdentity before = SelfIdentity();
  before.start_time -= 1;
  EXPECT_EQ(ProbeLiveness(before), Liveness::kDead);
}

TEST(ProcessIdentity, OfAnotherPidNamespaceIsNotKnown) {
  ProcessIdentity elsewhere = SelfIdentity();
  elsewhere.pid_namespace += 1;
  EXPECT_EQ(ProbeLiveness(elsewhere), Liveness::kUnknown);
}

TEST(ProcessIdentity, NobodyIsDead) {
  EXPECT_EQ(ProbeLiveness(ProcessIdentity{}), Liveness::kDead);
}

TEST(ProcessIdentity, CommandNameWithParenthesesAndSpacesIsRead) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open("/proc/self/comm", O_WRONLY);
    (void)!::write(fd, "a) Z 1 (b", 9);
    ::pause();
    ::_exit(0);
  }
  for (int i = 0; i < 1000; ++i) {
    char path[64];
    char comm[32] = {};
    std::snprintf(path, sizeof path, "/proc/%d/comm", static_cast<int>(child));
    const int fd = ::open(path, O_RDONLY);
    (void)!::read(fd, comm, sizeof comm - 1);
    ::close(fd);
    if (std::string(comm) == "a) Z 1 (b\n") break;
    ::usleep(1000);
  }
  const ProcessIdentity who = IdentityOf(child);
  EXPECT_EQ(ProbeLiveness(who), Liveness::kAlive);
  EXPECT_GE(who.start_time, SelfIdentity().start_time);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessIdentity, ShortOfDescriptorsNobodyIsTakenForDead) {
  const ProcessIdentity self = SelfIdentity();
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Liveness liveness = ProbeLiveness(self);
  const ProcessIdentity unread = SelfIdentity();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(liveness, Liveness::kUnknown);
  EXPECT_EQ(unread.pid, 0);
}

}  // namespace
}  // namespace passel
