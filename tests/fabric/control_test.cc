// The control connection between hosts: who is let in and what each learns of the other, and when
// each notices that the other is gone.

#include "fabric/control_case.h"

#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "base/clock.h"
#include "cluster/json_message.h"
#include "fabric/control/failure_limit.h"

namespace passel::testing {
namespace {

using fabric::ControlConnection;
using fabric::ControlOptions;
using fabric::ControlServerOptions;
using fabric::TaskFacts;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Control = ControlCase;

TEST_F(Control, BothLearnWhoTheOtherIs) {
  Start();
  ControlOptions options = Options(5);
  options.me.address = {9, 9};
  auto connection = Open(options);
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  const TaskFacts& ps = (*connection)->peer();
  EXPECT_EQ(ps.Name(), "ps/0");
  EXPECT_EQ(ps.address, (std::vector<std::uint8_t>{1, 2, 3}));
  EXPECT_NE(ps.life, 0u);
  EXPECT_EQ(ps.tags, (std::vector<std::uint64_t>{ps.life, 7}));
  EXPECT_TRUE((*connection)->status().ok());
  EXPECT_EQ(doorman_.present(), 1u);
  connection->reset();
  EXPECT_EQ(doorman_.AwaitGone(1), "it has left");
}

TEST_F(Control, SixthVersionOfTheInternetToo) {
  Start([](ControlServerOptions& options) {
    options.listen = {TcpAddress::Loopback(0), TcpAddress::Loopback(0, true)};
  });
  ASSERT_EQ(server_->addresses().size(), 2u);
  auto connection = Open(OptionsTo(server_->addresses()[1]));
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  EXPECT_THAT(server_->addresses()[1].ToString(), HasSubstr("[::1]:"));
}

TEST_F(Control, ListensOnLoopbackUnlessItIsTold) {
  Start();
  EXPECT_TRUE(server_->addresses()[0].loopback());
}

TEST_F(Control, WithoutTokenNobodyIsAskedOrLetIn) {
  Start();
  ControlOptions options = Options();
  options.key = {};
  const auto none = Open(options);
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  options.key.token = JobToken::Generate();
  const auto other = Open(options);
  EXPECT_EQ(other.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(other.status().message(),
              AllOf(HasSubstr("ps/0 at 127.0.0.1:"), HasSubstr("has another job token")));
  options.key = {.token = {}, .insecure_no_auth = true};
  EXPECT_EQ(Open(options).status().code(), Code::kPermissionDenied);
  ControlServerOptions server;
  server.me = FactsOf(Role::kPs, 0);
  EXPECT_EQ(fabric::ControlServer::Start(server, doorman_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(doorman_.present(), 0u);
}

TEST_F(Control, WithoutAuthenticationOnlyIfBothSaySo) {
  Start(
      [](ControlServerOptions& options) { options.key = {.token = {}, .insecure_no_auth = true}; });
  EXPECT_EQ(Open(Options()).status().code(), Code::kPermissionDenied);
  ControlOptions options = Options();
  options.key = {.token = {}, .insecure_no_auth = true};
  EXPECT_TRUE(Open(options).ok());
}

TEST_F(Control, WhatMayNotDifferIsSaidToWhoHasTheToken) {
  Start();
  ControlOptions options = Options(2);
  options.me.cluster = 98;
  const auto refused = Open(options);
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(),
              AllOf(HasSubstr("worker/2"), HasSubstr("0000000000000062"),
                    HasSubstr("0000000000000063"), HasSubstr("--ps_hosts")));
  for (const int index : {-1, 100'000}) {
    const auto nobody = Open(Options(index));
    EXPECT_EQ(nobody.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(nobody.status().message(), HasSubstr("worker/" + std::to_string(index)));
  }
  options = Options();
  options.peer_index = 1;
  EXPECT_THAT(Open(options).status().message(), HasSubstr("it is ps/0 of job job"));
  options = Options();
  options.me.role = Role::kPs;
  EXPECT_THAT(Open(options).status().message(), HasSubstr("ps/0 lets no ps in"));
  doorman_.RefuseWith(AlreadyExists("worker/0 is there"));
  const auto twice = Open(Options());
  EXPECT_EQ(twice.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(twice.status().message(), HasSubstr("worker/0 is there"));
}

TEST_F(Control, FactsAreOfTheOneWhoHasProvedTheToken) {
  Start();
  FileDescriptor socket = Raw();
  const fabric::TcpClientHandshake handshake({.token = token_}, {"job", Role::kWorker, 0});
  ASSERT_TRUE(SendNow(socket.get(), handshake.hello()).ok());
  fabric::AnswerBytes answer;
  for (std::size_t got = 0; got < answer.size();) {
    ASSERT_TRUE(AwaitReady(socket.get(), POLLIN, Deadline::After(kLate)));
    const auto came = ReceiveNow(socket.get(), std::span(answer).subspan(got));
    ASSERT_TRUE(came.ok());
    got += *came;
  }
  fabric::StreamKeys keys;
  const auto proof = handshake.Prove(answer, &keys);
  ASSERT_TRUE(proof.ok()) << proof.status().ToString();
  ASSERT_TRUE(SendNow(socket.get(), *proof).ok());
  fabric::Channel channel(std::move(socket), keys);
  ASSERT_TRUE(
      channel.SendJson(fabric::FactsJson(FactsOf(Role::kEvaluator, 0)), Deadline::After(kLate))
          .ok());
  const auto said = channel.ReceiveJson(Deadline::After(kLate));
  ASSERT_TRUE(said.ok()) << said.status().ToString();
  EXPECT_EQ(ErrorOf(*said).code(), Code::kPermissionDenied);
  EXPECT_THAT(ErrorOf(*said).message(), HasSubstr("evaluator/0 has proved to be worker/0"));
  EXPECT_EQ(doorman_.present(), 0u);
}

TEST_F(Control, NobodyThereIsSaidWithTheAddress) {
  Start();
  ControlOptions options = Options();
  server_.reset();
  const auto nobody = Open(options);
  EXPECT_EQ(nobody.status().code(), Code::kUnavailable);
  EXPECT_THAT(nobody.status().message(), AllOf(HasSubstr("127.0.0.1"), HasSubstr("refused")));
}

TEST_F(Control, OfSeveralAddressesTheOneThatAnswersIsTaken) {
  Start();
  ControlOptions options = Options();
  options.address.host = "ps.example";
  options.resolver = [this](const HostPort& host) -> Result<std::vector<TcpAddress>> {
    EXPECT_EQ(host.host, "ps.example");
    // A port where nobody listens, then the right one.
    return std::vector<TcpAddress>{TcpAddress::Loopback(1), server_->addresses()[0]};
  };
  EXPECT_TRUE(Open(options).ok());
  options.resolver = [](const HostPort&) -> Result<std::vector<TcpAddress>> {
    return Unavailable("the host ps.example cannot be found");
  };
  EXPECT_THAT(Open(options).status().message(), HasSubstr("cannot be found"));
}

// --- The end ------------------------------------------------------------------------------------

/// Told once why the other side is gone.
struct Ended {
  std::promise<std::string> promise;
  std::function<void(const Status&)> told = [this](const Status& why) {
    promise.set_value(why.message());
  };
  std::string Await(std::chrono::nanoseconds limit) {
    std::future<std::string> future = promise.get_future();
    return future.wait_for(limit) == std::future_status::ready ? future.get() : "";
  }
};

TEST_F(Control, EndOfAServerIsNoticedAtOnceAndEndsItsPipes) {
  Start();
  Ended ended;
  ControlOptions options = Options();
  options.gone = ended.told;
  auto connection = Open(options);
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  auto pipe = (*connection)->MakePipe(Deadline::After(kLate));
  ASSERT_TRUE(pipe.ok()) << pipe.status().ToString();
  server_.reset();
  EXPECT_THAT(ended.Await(kSoon), AllOf(HasSubstr("ps/0 at 127.0.0.1"), HasSubstr("has left")));
  EXPECT_EQ((*pipe)->Receive(Deadline::After(kSoon)).status().code(), Code::kUnavailable);
  EXPECT_EQ((*connection)->status().code(), Code::kUnavailable);
  EXPECT_FALSE((*connection)->MakePipe(Deadline::After(kLate)).ok());
}

TEST_F(Control, ConnectionThatIsResetIsNoticedOnBothSides) {
  Start();
  for (const bool reset : {true, false}) {
    TcpFaultProxy proxy(server_->addresses()[0]);
    Ended ended;
    ControlOptions options = OptionsTo(proxy.address());
    options.gone = ended.told;
    auto connection = Open(options);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    proxy.CutAll(reset);
    EXPECT_NE(ended.Await(kSoon), "");
    EXPECT_NE(doorman_.AwaitGone(reset ? 1 : 2, kSoon), "");
  }
}

// Nothing ends, and nothing comes: a cable that was pulled, in one direction or in both.
TEST_F(Control, SilenceIsNoticedAfterTheLease) {
  const fabric::LeaseOptions lease = {milliseconds(600), milliseconds(100)};
  Start([&](ControlServerOptions& options) { options.lease = lease; });
  std::size_t gone = 0;
  for (const bool both : {true, false}) {
    TcpFaultProxy proxy(server_->addresses()[0]);
    Ended ended;
    ControlOptions options = OptionsTo(proxy.address());
    options.lease = lease;
    options.gone = ended.told;
    auto connection = Open(options);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    std::this_thread::sleep_for(2 * lease.lease);
    EXPECT_TRUE((*connection)->status().ok()) << "beats keep it alive";
    EXPECT_EQ(doorman_.AwaitGone(gone + 1, milliseconds(1)), "");
    TcpFaults hole;
    hole.hole = true;
    proxy.Set(both ? hole : TcpFaults(), hole);
    EXPECT_THAT(ended.Await(kLate), HasSubstr("silent for 0.6 s"));
    EXPECT_NE(doorman_.AwaitGone(++gone), "");
  }
}

TEST(LivenessTest, GoesByTheMonotonicClockAlone) {
  ScopedFakeClock clock;
  constexpr std::int64_t kSecond = 1'000'000'000;
  fabric::Liveness liveness({std::chrono::seconds(15), std::chrono::seconds(3)});
  EXPECT_FALSE(liveness.BeatDue());
  clock.AdvanceNs(3 * kSecond - 1);
  EXPECT_FALSE(liveness.BeatDue());
  EXPECT_EQ(liveness.Next().Remaining().count(), 1);
  clock.AdvanceNs(1);
  EXPECT_TRUE(liveness.BeatDue());
  liveness.Said();
  EXPECT_FALSE(liveness.BeatDue());
  clock.AdvanceNs(12 * kSecond - 1);
  EXPECT_FALSE(liveness.Lost());
  liveness.Heard();
  clock.AdvanceNs(15 * kSecond - 1);
  EXPECT_FALSE(liveness.Lost());
  clock.AdvanceNs(1);
  EXPECT_TRUE(liveness.Lost());
}

TEST(FailureLimitTest, ThreeAtOnceThenThreeASecondOfEachAddress) {
  ScopedFakeClock clock;
  fabric::FailureLimit limit(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limit.MayTry("a")) << i;
    limit.Failed("a");
  }
  EXPECT_FALSE(limit.MayTry("a"));
  EXPECT_TRUE(limit.MayTry("b"));
  clock.AdvanceNs(333'333'333);
  EXPECT_TRUE(limit.MayTry("a"));
  limit.Failed("a");
  EXPECT_FALSE(limit.MayTry("a"));
  for (int i = 0; i < 5000; ++i) limit.Failed("c" + std::to_string(i));
  EXPECT_LE(limit.size(), fabric::FailureLimit::kMostAddresses);
}

// --- Pipes --------------------------------------------------------------------------------------

TEST_F(Control, PipesCarryMessagesOfAnySize) {
  Start();
  auto connection = Open(Options());
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  auto ours = (*connection)->MakePipe(Deadline::After(kLate));
  ASSERT_TRUE(ours.ok()) << ours.status().ToString();
  const std::unique_ptr<fabric::Pipe> theirs = doorman_.AwaitPipe();
  ASSERT_NE(theirs, nullptr);
  const std::vector<std::uint8_t> header(fabric::kMaxHeaderBytes, 42);
  for (const std::size_t floats : {0, 1, 4096, 4097, 300'000}) {
    std::vector<float> bulk(floats), got(floats);
    for (std::size_t i = 0; i < floats; ++i) bulk[i] = static_cast<float>(i);
    std::thread sender([&] { EXPECT_TRUE((*ours)->Send(header, bulk).ok()); });
    const auto arrival = theirs->Receive(Deadline::After(kLate));
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    EXPECT_EQ(arrival->header, header);
    ASSERT_EQ(arrival->bulk_floats, floats);
    EXPECT_TRUE(theirs->ReadBulk(got).ok());
    EXPECT_EQ(got, bulk);
    sender.join();
  }
  // What is not read is skipped.
  const std::vector<float> bulk(10'000, 1);
  ASSERT_TRUE(theirs->Send({header.data(), 1}, bulk).ok());
  ASSERT_TRUE(theirs->Send({header.data(), 2}, {}).ok());
  std::vector<float> some(100);
  ASSERT_TRUE((*ours)->Receive(Deadline::After(kLate)).ok());
  EXPECT_EQ(*(*ours)->ReadSome(some, Deadline::After(kLate)), 100u);
  const auto second = (*ours)->Receive(Deadline::After(kLate));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->header.size(), 2u);
  EXPECT_EQ((*ours)->Receive(Deadline::After(milliseconds(1))).status().code(),
            Code::kDeadlineExceeded);
}

TEST_F(Control, ConnectorFindsAServerThatCameBack) {
  Start();
  const std::uint16_t port = server_->addresses()[0].port();
  const fabric::Connector connector = fabric::MakeTcpConnector(Options(1));
  ASSERT_TRUE(connector(Deadline::After(kLate)).ok());
  EXPECT_NE(doorman_.AwaitPipe(), nullptr);
  server_.reset();
  Start([&](ControlServerOptions& options) { options.port = port; });
  Status status = Unavailable("not yet");
  for (const Deadline deadline = Deadline::After(kLate); !status.ok() && !deadline.Expired();) {
    status = connector(Deadline::After(kLate)).status();
  }
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_NE(doorman_.AwaitPipe(), nullptr);
}

// The other side is to know that this one lives, though it asks for nothing.
TEST_F(Control, LineThatIsCutIsMadeAnewAtOnce) {
  Start();
  TcpFaultProxy proxy(server_->addresses()[0]);
  fabric::ControlLine line(OptionsTo(proxy.address()));
  ASSERT_TRUE(line.Connect(Deadline::After(kLate)).ok());
  std::size_t cuts = 0;
  for (const bool reset : {true, false}) {
    proxy.CutAll(reset);
    EXPECT_NE(doorman_.AwaitGone(++cuts, kSoon), "");
    const Deadline deadline = Deadline::After(kLate);
    while (doorman_.present() == 0 && !deadline.Expired()) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(doorman_.present(), 1U);
  }
  server_.reset();  // the line ends, also while it looks for somebody
}

// It answers to the same name, and knows none of the connections of the one before.
TEST_F(Control, PipeOfAnUnknownConnectionIsRefused) {
  Start();
  const std::unique_ptr<fabric::ControlServer> before = std::move(server_);
  std::atomic<bool> moved{false};
  ControlOptions options = OptionsTo(before->addresses()[0], 1);
  Start();
  options.address.host = "ps.example";
  options.resolver = [&](const HostPort&) -> Result<std::vector<TcpAddress>> {
    return std::vector<TcpAddress>{(moved ? server_ : before)->addresses()[0]};
  };
  const fabric::Connector connector = fabric::MakeTcpConnector(options);
  ASSERT_TRUE(connector(Deadline::After(kLate)).ok());
  moved = true;
  const auto refused = connector(Deadline::After(kLate));
  EXPECT_EQ(refused.status().code(), Code::kNotFound);
  EXPECT_THAT(refused.status().message(), HasSubstr("worker/1 has no control connection to ps/0"));
  const auto again = connector(Deadline::After(kLate));
  EXPECT_TRUE(again.ok()) << again.status().ToString();
}

TEST_F(Control, PipesOfOneConnectionAreCounted) {
  Start([](ControlServerOptions& options) { options.most_pipes = 2; });
  auto connection = Open(Options());
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  auto first = (*connection)->MakePipe(Deadline::After(kLate));
  auto second = (*connection)->MakePipe(Deadline::After(kLate));
  ASSERT_TRUE(first.ok() && second.ok());
  const auto third = (*connection)->MakePipe(Deadline::After(kLate));
  EXPECT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.status().message(), HasSubstr("worker/0 has 2 pipes to ps/0, and may have 2"));
  EXPECT_NE(doorman_.AwaitPipe(), nullptr);  // and it is gone at once
  EXPECT_TRUE((*connection)->MakePipe(Deadline::After(kLate)).ok());
}

TEST_F(Control, PipeThatStandsStillInAMessageEnds) {
  Start();
  TcpFaultProxy proxy(server_->addresses()[0]);
  ControlOptions options = OptionsTo(proxy.address());
  options.stall_limit = milliseconds(300);
  auto connection = Open(options);
  ASSERT_TRUE(connection.ok());
  auto pipe = (*connection)->MakePipe(Deadline::After(kLate));
  ASSERT_TRUE(pipe.ok());
  const std::unique_ptr<fabric::Pipe> theirs = doorman_.AwaitPipe();
  ASSERT_NE(theirs, nullptr);
  // One byte in 100 ms: no frame is ever whole within the limit.
  TcpFaults drip;
  drip.bytes_per_second = 10;
  proxy.Set({}, drip);
  const std::vector<std::uint8_t> header(500, 1);
  ASSERT_TRUE(theirs->Send(header, {}).ok());
  const auto arrival = (*pipe)->Receive(Deadline::After(kLate));
  EXPECT_EQ(arrival.status().code(), Code::kUnavailable);
  EXPECT_THAT(arrival.status().message(), HasSubstr("stands still"));
}

// --- A bad network, and bad people ---------------------------------------------------------------

TEST_F(Control, HandshakeThatIsCutAtAnyByteLeavesNobodyInside) {
  Start([](ControlServerOptions& options) { options.failures_per_second = 1000; });
  TcpFaultProxy proxy(server_->addresses()[0]);
  constexpr std::size_t kHandshake = 96 + 32 + 60;  // and a part of the facts
  for (std::size_t cut = 0; cut < kHandshake + 75; ++cut) {
    const bool up = cut < kHandshake;
    TcpFaults fault;
    fault.cut_after = up ? cut : cut - kHandshake;
    fault.reset = cut % 2 == 0;
    proxy.Set(up ? fault : TcpFaults(), up ? TcpFaults() : fault);
    const auto connection = Open(OptionsTo(proxy.address()));
    EXPECT_FALSE(connection.ok()) << cut;
    if (connection.ok()) return;
    EXPECT_THAT(connection.status().message(), HasSubstr("ps/0 at "));
  }
  proxy.Set({}, {});
  auto whole = Open(OptionsTo(proxy.address()));
  EXPECT_TRUE(whole.ok()) << whole.status().ToString();
  const auto direct = Open(Options(1));
  EXPECT_TRUE(direct.ok()) << direct.status().ToString();
  const Deadline deadline = Deadline::After(kLate);
  while (doorman_.present() != 2 && !deadline.Expired()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(doorman_.present(), 2u);
}

// 200 that say nothing and 50 that say a byte at a time: who is honest comes in, again and again.
TEST_F(Control, CrowdAtTheDoorKeepsNobodyOut) {
  Start([](ControlServerOptions& options) { options.handshake_limit = std::chrono::seconds(3); });
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 250; ++i) crowd.push_back(Raw());
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    while (!stop) {
      for (std::size_t i = 200; i < crowd.size() && !stop; ++i) {
        const std::uint8_t byte = 'P';
        if (!SendNow(crowd[i].get(), {&byte, 1}).ok()) crowd[i] = Raw();
      }
      std::this_thread::sleep_for(milliseconds(200));
    }
  });
  for (int i = 0; i < 20; ++i) {
    const auto honest =
        fabric::ControlConnection::Open(Options(i), Deadline::After(std::chrono::seconds(5)));
    EXPECT_TRUE(honest.ok()) << honest.status().ToString();
  }
  // None of the crowd is kept beyond its time.
  std::this_thread::sleep_for(milliseconds(10));
  for (int i = 0; i < 200; i += 20)
    EXPECT_TRUE(ReadToEnd(crowd[static_cast<std::size_t>(i)].get()).empty());
  stop = true;
  drip.join();
}

TEST_F(Control, WhoFailsTooOftenIsNotEvenHeard) {
  Start();
  const auto knock = [&] {
    const FileDescriptor socket = Raw();
    fabric::HelloBytes wrong{};
    (void)SendNow(socket.get(), wrong);
    return ReadToEnd(socket.get()).size();
  };
  const std::int64_t begin = MonotonicNs();
  int heard = 0;
  for (int i = 0; i < 10; ++i) heard += knock() == fabric::kAnswerBytes;
  EXPECT_GE(heard, 3);
  EXPECT_LE(heard, 4 + 3 * (MonotonicNs() - begin) / 1'000'000'000)
      << "three at once, then three a second";
  // A moment later it may try again, and so may an honest task.
  const Deadline deadline = Deadline::After(kLate);
  Status honest = Unavailable("not yet");
  while (!honest.ok() && !deadline.Expired()) honest = Open(Options()).status();
  EXPECT_TRUE(honest.ok()) << honest.ToString();
}

TEST_F(Control, NothingSecretGoesInClear) {
  Start();
  TcpFaultProxy proxy(server_->addresses()[0]);
  ControlOptions options = OptionsTo(proxy.address());
  options.me.provider = "";
  options.me.build = "canary-of-the-facts";
  auto connection = Open(options);
  ASSERT_TRUE(connection.ok());
  auto pipe = (*connection)->MakePipe(Deadline::After(kLate));
  ASSERT_TRUE(pipe.ok());
  const std::unique_ptr<fabric::Pipe> theirs = doorman_.AwaitPipe();
  ASSERT_NE(theirs, nullptr);
  const std::string canary = "canary-of-the-header";
  const std::vector<float> bulk(1000, 1.2345f);
  ASSERT_TRUE(
      (*pipe)
          ->Send({reinterpret_cast<const std::uint8_t*>(canary.data()), canary.size()}, bulk)
          .ok());
  const auto arrival = theirs->Receive(Deadline::After(kLate));
  ASSERT_TRUE(arrival.ok());
  std::vector<float> got(1000);
  ASSERT_TRUE(theirs->ReadBulk(got).ok());
  const std::string recorded = proxy.Recorded();
  EXPECT_GT(recorded.size(), 4000u);
  EXPECT_THAT(recorded, HasSubstr("PSLC")) << "the recording works";
  EXPECT_THAT(recorded, Not(HasSubstr("canary")));
  const auto bytes_of = [](const auto& of) {
    return std::string(reinterpret_cast<const char*>(of.data()), of.size() * sizeof of[0]);
  };
  EXPECT_THAT(recorded, Not(HasSubstr(bytes_of(token_.bytes()))));
  EXPECT_THAT(recorded, Not(HasSubstr(bytes_of(std::vector<float>(4, 1.2345f)))));
}

TEST_F(Control, SlowNetworkIsSlowAndNothingElse) {
  Start();
  TcpFaultProxy proxy(server_->addresses()[0]);
  TcpFaults late;
  late.delay = milliseconds(100);
  proxy.Set(late, late);
  auto connection = Open(OptionsTo(proxy.address()));
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  auto pipe = (*connection)->MakePipe(Deadline::After(kLate));
  EXPECT_TRUE(pipe.ok()) << pipe.status().ToString();
}

// Half of the handshake arrives, and then nothing: both sides give up in time.
TEST_F(Control, HalfOfAHandshakeEndsInTime) {
  Start([](ControlServerOptions& options) { options.handshake_limit = milliseconds(300); });
  const FileDescriptor socket = Raw();
  const std::vector<std::uint8_t> half(40, 'P');
  ASSERT_TRUE(SendNow(socket.get(), half).ok());
  EXPECT_TRUE(ReadToEnd(socket.get()).empty());
  // A server that accepts and never answers.
  const auto mute = ListenTcp(TcpAddress::Loopback(0));
  ASSERT_TRUE(mute.ok());
  ControlOptions options = OptionsTo(*LocalAddress(mute->get()));
  options.handshake_limit = milliseconds(200);
  const auto late = Open(options);
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr("it does not answer"));
}

}  // namespace
}  // namespace passel::testing
