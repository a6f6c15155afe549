// The control connection between hosts: who is let in and what each learns of the other, and when
// each notices that the other is gone.

#include "fabric/control_case.h"

#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <thread>
#include <utility>

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

// Nothing ends, and nothing comes: a cable that was pulled, in one direction or in both. Both ends
// go by the shorter lease.
TEST_F(Control, SilenceIsNoticedAfterTheLease) {
  const fabric::LeaseOptions lease = {milliseconds(600), milliseconds(100)};
  const fabric::LeaseOptions usual;
  std::size_t gone = 0;
  for (const auto& [theirs, ours] : {std::pair(lease, usual), {usual, lease}}) {
    SCOPED_TRACE(std::to_string(theirs.lease_ms()) + " and " + std::to_string(ours.lease_ms()));
    Start([&](ControlServerOptions& options) { options.lease = theirs; });
    TcpFaultProxy proxy(server_->addresses()[0]);
    Ended ended;
    ControlOptions options = OptionsTo(proxy.address());
    options.lease = ours;
    options.gone = ended.told;
    auto connection = Open(options);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    std::this_thread::sleep_for(2 * lease.lease);
    EXPECT_TRUE((*connection)->status().ok()) << "beats keep it alive";
    EXPECT_EQ(doorman_.AwaitGone(gone + 1, milliseconds(1)), "");
    TcpFaults hole;
    hole.hole = true;
    proxy.Set(gone == 0 ? TcpFaults() : hole, hole);
    EXPECT_THAT(ended.Await(milliseconds(9000)), HasSubstr("silent for 0.6 s"));
    EXPECT_NE(doorman_.AwaitGone(++gone, milliseconds(9000)), "");
  }
}

TEST(LivenessTest, NobodyIsMadeToBeatAllTheTime) {
  const fabric::LeaseOptions agreed = fabric::Agreed({}, milliseconds(1));
  EXPECT_EQ(agreed.lease, milliseconds(200));
  EXPECT_EQ(agreed.beat, milliseconds(40));
  EXPECT_EQ(fabric::Agreed({}, {}).lease, std::chrono::seconds(15))
      << "of who does not say its own";
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

}  // namespace
}  // namespace passel::testing
