// The control connection in a bad network, and among bad people.

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "fabric/control_case.h"

namespace passel::testing {
namespace {

using fabric::ControlOptions;
using fabric::ControlServerOptions;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

using Control = ControlCase;

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
