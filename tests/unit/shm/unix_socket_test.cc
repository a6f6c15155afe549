// Abstract sockets: descriptors travel, limits hold, peers die, deadlines end.

#include "base/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "base/memory_file.h"

namespace passel {
namespace {

using std::chrono::milliseconds;

Deadline Soon(int ms = 5000) { return Deadline::After(milliseconds(ms)); }

std::string UniqueName(const char* what) {
  return "passel-test." + std::to_string(::getpid()) + "." + what;
}

struct Pair {
  FileDescriptor listener, client, server;
};
Pair Connect(const char* what) {
  Pair pair;
  const std::string name = UniqueName(what);
  pair.listener = ListenAbstract(name).value();
  pair.client = ConnectAbstract(name, Soon()).value();
  pair.server = AcceptConnection(pair.listener.get()).value();
  return pair;
}

TEST(UnixSocket, MessagesKeepTheirBordersAndCarryDescriptors) {
  const Pair pair = Connect("borders");
  const FileDescriptor file = CreateConstantFile("t", "content", 7).value();
  const std::vector<std::uint8_t> first = {1, 2, 3};
  const std::vector<std::uint8_t> second = {4};
  const int fds[] = {file.get(), file.get()};
  ASSERT_TRUE(SendMessage(pair.client.get(), first, fds, Soon()).ok());
  ASSERT_TRUE(SendMessage(pair.client.get(), second, {}, Soon()).ok());
  Result<Message> got = ReceiveMessage(pair.server.get(), Soon());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->bytes, first);
  ASSERT_EQ(got->fds.size(), 2u);
  char text[8] = {};
  EXPECT_EQ(::pread(got->fds[1].get(), text, 7, 0), 7);
  EXPECT_STREQ(text, "content");
  EXPECT_EQ(::fcntl(got->fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  got = ReceiveMessage(pair.server.get(), Soon());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->bytes, second);
  EXPECT_TRUE(got->fds.empty());
}

TEST(UnixSocket, LargestMessageArrivesAndALargerOneIsAnError) {
  const Pair pair = Connect("limits");
  std::vector<std::uint8_t> bytes(kMaxMessageBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i % 251);
  const std::vector<int> fds(kMaxMessageFds, STDERR_FILENO);
  ASSERT_TRUE(SendMessage(pair.client.get(), bytes, fds, Soon()).ok());
  Result<Message> got = ReceiveMessage(pair.server.get(), Soon());
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->bytes, bytes);
  EXPECT_EQ(got->fds.size(), kMaxMessageFds);
  // What our own sender never sends.
  bytes.resize(kMaxMessageBytes + 1);
  ASSERT_EQ(::send(pair.client.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(ReceiveMessage(pair.server.get(), Soon()).status().code(), Code::kDataLoss);
}

TEST(UnixSocket, DescriptorsBeyondTheLimitAreRefusedAndNotKept) {
  const Pair pair = Connect("fds");
  constexpr int kMany = 40;
  char byte = 1;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMany)] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int) * kMany);
  for (int i = 0; i < kMany; ++i) {
    const int fd = STDERR_FILENO;
    std::memcpy(CMSG_DATA(c) + static_cast<std::size_t>(i) * sizeof fd, &fd, sizeof fd);
  }
  const int lowest = FileDescriptor(::dup(STDERR_FILENO)).get();
  ASSERT_EQ(::sendmsg(pair.client.get(), &header, 0), 1);
  EXPECT_EQ(ReceiveMessage(pair.server.get(), Soon()).status().code(), Code::kDataLoss);
  EXPECT_EQ(FileDescriptor(::dup(STDERR_FILENO)).get(), lowest) << "descriptors were leaked";
}

TEST(UnixSocket, NameIsHeldByOneAndFreeWhenItsHolderIsGone) {
  const std::string name = UniqueName("name");
  {
    const Result<FileDescriptor> first = ListenAbstract(name);
    ASSERT_TRUE(first.ok());
    const Result<FileDescriptor> second = ListenAbstract(name);
    EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  }
  EXPECT_EQ(ConnectAbstract(name, Soon()).status().code(), Code::kNotFound);
  EXPECT_TRUE(ListenAbstract(name).ok());
}

TEST(UnixSocket, NamesHaveTheirLimits) {
  EXPECT_TRUE(ListenAbstract(std::string(107, 'n')).ok());
  for (const std::size_t size : {std::size_t{0}, std::size_t{108}, std::size_t{5000}}) {
    EXPECT_EQ(ListenAbstract(std::string(size, 'n')).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(ConnectAbstract(std::string(size, 'n'), Soon()).status().code(),
              Code::kInvalidArgument);
  }
}

TEST(UnixSocket, WaitingEndsAtTheDeadline) {
  const Pair pair = Connect("deadline");
  std::int64_t begin = MonotonicNs();
  EXPECT_EQ(ReceiveMessage(pair.server.get(), Soon(60)).status().code(), Code::kDeadlineExceeded);
  EXPECT_GE(MonotonicNs() - begin, 60'000'000);
  EXPECT_LT(MonotonicNs() - begin, 5'000'000'000);
  // A peer that does not read.
  const std::vector<std::uint8_t> bytes(kMaxMessageBytes);
  Status status;
  for (int i = 0; i < 10'000 && status.ok(); ++i) {
    begin = MonotonicNs();
    status = SendMessage(pair.client.get(), bytes, {}, Soon(60));
  }
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_GE(MonotonicNs() - begin, 60'000'000);
  EXPECT_EQ(AcceptConnection(pair.listener.get()).status().code(), Code::kNotFound);
}

TEST(UnixSocket, ClosedPeerIsUnavailableOnceItsMessagesAreRead) {
  Pair pair = Connect("closed");
  const std::vector<std::uint8_t> bytes = {7};
  ASSERT_TRUE(SendMessage(pair.client.get(), bytes, {}, Soon()).ok());
  pair.client.Reset();
  EXPECT_TRUE(ReceiveMessage(pair.server.get(), Soon()).ok());
  EXPECT_EQ(ReceiveMessage(pair.server.get(), Soon()).status().code(), Code::kUnavailable);
  EXPECT_EQ(SendMessage(pair.server.get(), bytes, {}, Soon()).code(), Code::kUnavailable);
}

TEST(UnixSocket, DeathOfThePeerEndsAWaitAtOnce) {
  const std::string name = UniqueName("death");
  const FileDescriptor listener = ListenAbstract(name).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<FileDescriptor> fd = ConnectAbstract(name, Soon());
    ::pause();
    ::_exit(fd.ok() ? 0 : 1);
  }
  Result<FileDescriptor> server = AcceptConnection(listener.get());
  for (int i = 0; i < 2000 && !server.ok(); ++i) {
    ::usleep(1000);
    server = AcceptConnection(listener.get());
  }
  ASSERT_TRUE(server.ok());
  const Result<PeerCredentials> peer = GetPeerCredentials(server->get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, child);
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->gid, ::getgid());
  std::thread killer([child] {
    ::usleep(50'000);
    ::kill(child, SIGKILL);
  });
  const std::int64_t begin = MonotonicNs();
  EXPECT_EQ(ReceiveMessage(server->get(), Soon(20'000)).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicNs() - begin, 5'000'000'000);
  killer.join();
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace passel
