// What a hostile or broken process of the same user can send: the ps drops it and serves the
// others.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>

#include "base/memory_file.h"
#include "base/random.h"
#include "tests/unit/cluster/damage.h"
#include "tests/unit/shm/ps_thread.h"

namespace passel::shm::testing {
namespace {

std::vector<std::string> Garbage() {
  const std::string hello = Hello().dump();
  std::vector<std::string> texts = {
      "x",
      std::string(1, '\0'),
      "{",
      "{}",
      "[]",
      "null",
      "17",
      "\"hello\"",
      "{\"hello\":1}",
      "{\"hello\":1e300}",
      "{\"hello\":\"1\",\"role\":3}",
      "{\"hello\":1,\"hello\":2}",
      "\xff\xfe{\"hello\":1}",
      "{\"role\":\"\xc3\x28\"}",
      std::string(30'000, '['),
      std::string(30'000, '[') + std::string(30'000, ']'),
      "{\"a\":" + std::string(25'000, '[') + std::string(25'000, ']') + "}",
      std::string(kMaxMessageBytes, 'a'),
      hello.substr(0, hello.size() / 2),
      hello + hello,
  };
  for (const char* field : {"hello", "role", "index", "cluster", "structure", "layout"}) {
    for (const char* value :
         {"null", "-1", "1e300", "[]", "{}", "\"\"", "true", "2147483648", "9223372036854775807",
          "-9223372036854775808", "18446744073709551616"}) {
      nlohmann::json changed = Hello();
      changed[field] = nlohmann::json::parse(value);
      texts.push_back(changed.dump());
    }
  }
  return texts;
}

TEST(AttackTest, GarbageInsteadOfAHelloIsRefused) {
  PsThread ps;
  for (const std::string& text : Garbage()) {
    RawConnection raw(ps);
    ASSERT_TRUE(raw.Send(text));
    EXPECT_TRUE(raw.ReceiveRefusal().has_value()) << text.substr(0, 200);
  }
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, RandomChangesOfAHelloGetNobodyIn) {
  PsThread ps;
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = passel::testing::Damaged(Hello().dump(), random);
    RawConnection raw(ps);
    ASSERT_TRUE(raw.Send(text));
    const auto answer = raw.Receive();
    // It may still be a good hello; then a proof is asked for.
    if (answer && answer->contains("nonce")) {
      raw.Send(R"({"proof":"00"})");
      EXPECT_TRUE(raw.ReceiveRefusal().has_value());
    }
  }
  EXPECT_TRUE(ps.Serves());
}

// The connection of whoever asks in another way than the protocol says is closed.
TEST(AttackTest, RequestsThatSayOtherThingsAreRefused) {
  PsThread ps;
  for (const char* request :
       {R"({"ask":"arena","wait":"yes"})", R"({"ask":"arena","wait":false,"wait":true})",
        R"({"ask":"arena","wait":false,"now":1})", R"({"ask":"arena","wait":false}x)",
        R"({"ask":"get_data","key":7})", R"({"ask":"status","values":true})",
        R"({"ask":"snapshot","values":1})", R"({"ask":"set_mode","mode":["ssp"]})",
        R"({"ask":"scale","workers":"3"})", R"({"ask":"scale","workers":1.5})",
        R"({"ask":["status"]})"}) {
    Result<RendezvousClient> client = ps.Connect(Role::kWorker, 1);
    ASSERT_TRUE(client.ok()) << client.status().message();
    const std::string text = request;
    ASSERT_TRUE(SendMessage(client->fd(),
                            {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, {},
                            Soon())
                    .ok());
    const Result<Message> answer = ReceiveMessage(client->fd(), Soon());
    ASSERT_TRUE(answer.ok()) << request;
    const std::string said(answer->bytes.begin(), answer->bytes.end());
    EXPECT_THAT(said, ::testing::HasSubstr(fmt::format("\"error\":{}", int{int(Code::kDataLoss)})))
        << request;
  }
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, GarbageOfAProvenPeerIsRefused) {
  PsThread ps;
  for (const std::string& text : Garbage()) {
    Result<RendezvousClient> client = ps.Connect(Role::kWorker, 1);
    ASSERT_TRUE(client.ok()) << client.status().message();
    const std::span<const std::uint8_t> bytes{reinterpret_cast<const std::uint8_t*>(text.data()),
                                              text.size()};
    ASSERT_TRUE(SendMessage(client->fd(), bytes, {}, Soon()).ok());
    const Result<Message> answer = ReceiveMessage(client->fd(), Soon());
    if (answer.ok()) {
      const std::string said(answer->bytes.begin(), answer->bytes.end());
      EXPECT_THAT(said, ::testing::HasSubstr("error")) << text.substr(0, 200);
    }
  }
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, OversizedMessageIsRefused) {
  PsThread ps;
  RawConnection raw(ps);
  const std::string big(kMaxMessageBytes + 1, ' ');
  ASSERT_EQ(::send(raw.fd(), big.data(), big.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(big.size()));
  EXPECT_TRUE(raw.ReceiveRefusal().has_value());
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, DescriptorsThatNobodyAskedForAreClosed) {
  PsThread ps;
  ASSERT_TRUE(ps.Serves());
  const std::size_t before = OpenDescriptors();
  {
    FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const std::vector<int> four(4, null.get());
    for (int i = 0; i < 100; ++i) {
      RawConnection raw(ps);
      ASSERT_TRUE(raw.Send("{}", four));
      EXPECT_TRUE(raw.ReceiveRefusal().has_value());
    }
    // A proven peer, too.
    Result<RendezvousClient> client = ps.Connect(Role::kWorker, 1);
    ASSERT_TRUE(client.ok());
    const std::string text = R"({"ask":"status"})";
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(SendMessage(client->fd(),
                              {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
                              four, Soon())
                      .ok());
      ASSERT_TRUE(ReceiveMessage(client->fd(), Soon()).ok());
    }
    // Far more than a message may carry: the kernel keeps what does not fit.
    RawConnection raw(ps);
    std::vector<int> many(200, null.get());
    char byte = 'x';
    iovec piece{&byte, 1};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * many.size()));
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * many.size());
    std::memcpy(CMSG_DATA(c), many.data(), sizeof(int) * many.size());
    ASSERT_EQ(::sendmsg(raw.fd(), &header, MSG_NOSIGNAL), 1);
    EXPECT_TRUE(raw.ReceiveRefusal().has_value());
  }
  ASSERT_TRUE(ps.Serves());
  // The server closes its end of the last connection when it looks at it next.
  const Deadline deadline = Soon();
  while (OpenDescriptors() > before && !deadline.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LE(OpenDescriptors(), before);
}

TEST(AttackTest, DataFilesAreKeptInLimitedNumber) {
  PsThread ps;
  Result<RendezvousClient> client = ps.Connect(Role::kWorker, 1);
  ASSERT_TRUE(client.ok());
  const std::size_t before = OpenDescriptors();
  FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int i = 0; i < 100; ++i) {
    (void)client->OfferData(std::to_string(i), null.get(), Soon());
  }
  EXPECT_LE(OpenDescriptors(), before + 16);
}

TEST(AttackTest, PlansThatAreNoneAreRefused) {
  PsThread ps;
  Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
  ASSERT_TRUE(chief.ok());
  for (const std::string& text : {std::string("{}"), std::string("x"), std::string("[]"),
                                  std::string(100'000, '['), std::string("{\"mode\":7}")}) {
    const Result<FileDescriptor> arena = chief->ProposePlan(text, Soon());
    EXPECT_EQ(arena.status().code(), Code::kInvalidArgument) << arena.status().message();
  }
  // Not sealed: it could change while it is read.
  FileDescriptor open(::memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::write(open.get(), "{}", 2), 2);
  const int fds[] = {open.get()};
  const std::string request = R"({"ask":"plan"})";
  ASSERT_TRUE(SendMessage(chief->fd(),
                          {reinterpret_cast<const std::uint8_t*>(request.data()), request.size()},
                          fds, Soon())
                  .ok());
  const Result<Message> answer = ReceiveMessage(chief->fd(), Soon());
  ASSERT_TRUE(answer.ok());
  EXPECT_THAT(std::string(answer->bytes.begin(), answer->bytes.end()),
              ::testing::HasSubstr("seals"));
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, CrowdOfIdleConnectionsKeepsNobodyOut) {
  PsThread ps;
  std::vector<RawConnection> idle;
  for (int i = 0; i < 200; ++i) idle.emplace_back(ps);
  EXPECT_TRUE(ps.Serves());
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, CrowdOfHalfFinishedHandshakesKeepsNobodyOut) {
  PsThread ps;
  std::vector<RawConnection> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(ps);
    slow.back().Send(Hello().dump());
  }
  EXPECT_TRUE(ps.Serves());
}

TEST(AttackTest, CrowdOfControlConnectionsIsCut) {
  PsThread ps;
  std::vector<RawConnection> control;
  for (int i = 0; i < 200; ++i) {
    control.emplace_back(ps);
    ASSERT_TRUE(control.back().Send(Hello(Role::kControl).dump()));
    ASSERT_TRUE(control.back().Receive().has_value());
  }
  EXPECT_TRUE(ps.Serves());
  int open = 0;
  for (RawConnection& c : control) {
    if (c.Send(R"({"ask":"status"})") && c.Receive().has_value()) ++open;
  }
  EXPECT_LE(open, RendezvousServer::kMaxPending);
  EXPECT_GT(open, 0);
}

TEST(AttackTest, PeersThatComeAndGoLeaveNoDescriptors) {
  PsThread ps;
  ASSERT_TRUE(ps.Serves());
  const std::size_t before = OpenDescriptors();
  for (int i = 0; i < 500; ++i) {
    RawConnection raw(ps);
    if (i % 3 != 0) raw.Send(Hello().dump());
  }
  // Connections are accepted in order: after this one, none of the others is still to come.
  ASSERT_TRUE(ps.Serves());
  const Deadline deadline = Soon();
  while (OpenDescriptors() > before && !deadline.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LE(OpenDescriptors(), before);
  EXPECT_TRUE(ps.Serves());
}

constexpr uid_t kNobody = 65534;

// Runs `f` in a child process as another user; its exit code.
int AsNobody(const std::function<int()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(99);
    ::_exit(f());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OtherUserTest, IsRefusedBeforeAByteIsRead) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  PsThread ps;
  const std::string name = EndpointName(ps.job(), Role::kPs, 0);
  const std::string hello = Hello(Role::kControl).dump();
  const int got = AsNobody([&] {
    Result<FileDescriptor> socket = ConnectAbstract(name, Soon());
    if (!socket.ok()) return 1;
    const std::span<const std::uint8_t> bytes{reinterpret_cast<const std::uint8_t*>(hello.data()),
                                              hello.size()};
    (void)SendMessage(socket->get(), bytes, {}, Soon());
    return ReceiveMessage(socket->get(), Soon()).status().code() == Code::kUnavailable ? 0 : 2;
  });
  EXPECT_EQ(got, 0);
  EXPECT_TRUE(ps.Serves());
}

TEST(OtherUserTest, SquatterOnTheNameIsNamedAndNotTrusted) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string job = fmt::format("squatted-{}", ::getpid());
  const std::string name = EndpointName(job, Role::kPs, 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(99);
    const Result<FileDescriptor> listening = ListenAbstract(name);
    [[maybe_unused]] const auto put = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const JobToken token = JobToken::Generate();
  const Result<RendezvousClient> client =
      RendezvousClient::Connect({job, Role::kWorker, 0, kCluster}, Role::kPs, 0, &token, Soon());
  EXPECT_EQ(client.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(client.status().message(), ::testing::HasSubstr(std::to_string(squatter)));
  EXPECT_THAT(client.status().message(), ::testing::HasSubstr("65534"));
  const Status taken = Listen(job, Role::kPs, 0).status();
  EXPECT_EQ(taken.code(), Code::kPermissionDenied);
  EXPECT_THAT(taken.message(), ::testing::HasSubstr("65534"));
  ::kill(squatter, SIGKILL);
  ::waitpid(squatter, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace passel::shm::testing
