#include "base/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <string>

#include "base/file_descriptor.h"

namespace passel {
namespace {

constexpr std::chrono::milliseconds kShort{50};
constexpr std::chrono::seconds kLong{30};

// `body` in a process of its own, with `fd` as its standard output. Its exit code.
int InChild(int fd, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a child that hangs ends, and the test with it
    ::signal(SIGPIPE, SIG_IGN);
    if (fd >= 0) ::dup2(fd, STDOUT_FILENO);
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

std::string ReadWhatIsThere(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[65536];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

struct Ends {
  FileDescriptor read, write;
};
Ends MakePipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}
Ends MakeSockets() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

TEST(OutputTest, WhatIsReadArrivesInOrderWithoutAWait) {
  for (const auto& make : {MakePipe, MakeSockets}) {
    const Ends ends = make();
    EXPECT_EQ(InChild(ends.write.get(),
                      [] {
                        for (int i = 0; i < 100; ++i) Write(Stream::kOut, fmt::format("{}\n", i));
                        return FlushOutput(Stream::kOut, kLong);
                      }),
              0);
    std::string expected;
    for (int i = 0; i < 100; ++i) expected += fmt::format("{}\n", i);
    EXPECT_EQ(ReadWhatIsThere(ends.read.get()), expected);
  }
}

TEST(OutputTest, NobodyWaitsForAReaderAndASlowOneGetsItAll) {
  for (const auto& make : {MakePipe, MakeSockets}) {
    const Ends ends = make();
    const Ends go = MakePipe();
    const std::string line(99, 'x');
    const pid_t reader = ::fork();
    if (reader == 0) {  // reads when it is told to, and checks
      ::alarm(60);
      const_cast<FileDescriptor&>(ends.write).Reset();
      char start;
      [[maybe_unused]] const auto got = ::read(go.read.get(), &start, 1);
      std::string text;
      char buffer[3000];
      for (ssize_t n; (n = ::read(ends.read.get(), buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(n));
      }
      std::string expected;
      for (int i = 0; i < 9000; ++i) expected += line + "\n";
      ::_exit(text == expected ? 0 : 1);
    }
    EXPECT_EQ(InChild(ends.write.get(),
                      [&] {
                        // 900 KB, of which neither a pipe nor a socket takes the half.
                        for (int i = 0; i < 9000; ++i) Write(Stream::kOut, line + "\n");
                        if (FlushOutput(Stream::kOut, kShort) != ETIMEDOUT) return 100;
                        // Nobody else who has this open file finds it changed.
                        if ((::fcntl(STDOUT_FILENO, F_GETFL) & O_NONBLOCK) != 0) return 101;
                        [[maybe_unused]] const auto put = ::write(go.write.get(), "g", 1);
                        return FlushOutput(Stream::kOut, kLong);
                      }),
              0);
    const_cast<FileDescriptor&>(ends.write).Reset();
    int status = -1;
    EXPECT_EQ(::waitpid(reader, &status, 0), reader);
    EXPECT_EQ(status, 0);
  }
}

TEST(OutputTest, WhatIsTooMuchIsDroppedAndCounted) {
  const Ends ends = MakePipe();
  const int read_end = ends.read.get();
  EXPECT_EQ(InChild(ends.write.get(),
                    [&] {
                      const std::string line(999, 'x');
                      for (int i = 0; i < 3000; ++i) Write(Stream::kOut, line + "\n");
                      ::fcntl(read_end, F_SETFL, O_NONBLOCK);
                      std::string text;
                      char buffer[65536];
                      // Until the thread has written what it had kept.
                      while (FlushOutput(Stream::kOut, kShort) == ETIMEDOUT) {
                        for (ssize_t got; (got = ::read(read_end, buffer, sizeof buffer)) > 0;) {
                          text.append(buffer, static_cast<std::size_t>(got));
                        }
                      }
                      text += ReadWhatIsThere(read_end);
                      const std::size_t kept =
                          static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x')) / 999;
                      if (kept * 1000 < kMaxKeptBytes || kept >= 3000) return 100;
                      const std::string told =
                          fmt::format("passel: {} pieces of output are missing", 3000 - kept);
                      return text.find(told) == std::string::npos ? 101 : 0;
                    }),
            0);
}

TEST(OutputTest, ReadersThatAreGoneAndFullDisksAreTold) {
  Ends ends = MakePipe();
  ends.read.Reset();
  const auto write = [] {
    Write(Stream::kOut, "lost\n");
    Write(Stream::kOut, "lost\n");
    return FlushOutput(Stream::kOut, kLong);
  };
  EXPECT_EQ(InChild(ends.write.get(), write), EPIPE);
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(InChild(full.get(), write), ENOSPC);
  const FileDescriptor none(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(InChild(none.get(), write), 0);
}

TEST(OutputTest, ClosedStreamsBecomeDevNullAndOthersStayWhatTheyAre) {
  const Ends ends = MakePipe();
  EXPECT_EQ(InChild(ends.write.get(),
                    [] {
                      ::close(STDIN_FILENO);
                      ::close(STDERR_FILENO);
                      OpenMissingStreams();
                      char byte;
                      if (::read(STDIN_FILENO, &byte, 1) != 0) return 100;
                      if (::write(STDERR_FILENO, "x", 1) != 1) return 101;
                      const FileDescriptor next(::open("/dev/null", O_RDONLY));
                      if (next.get() <= STDERR_FILENO) return 102;
                      Write(Stream::kOut, "still here\n");
                      return FlushOutput(Stream::kOut, kLong);
                    }),
            0);
  EXPECT_EQ(ReadWhatIsThere(ends.read.get()), "still here\n");
}

}  // namespace
}  // namespace passel
