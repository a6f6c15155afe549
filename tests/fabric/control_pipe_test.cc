// Pipes over a control connection: what they carry, how many there may be, and when they end.

#include <time.h>

#include <atomic>
#include <thread>

#include "fabric/control_case.h"

namespace passel::testing {
namespace {

using fabric::ControlOptions;
using fabric::ControlServerOptions;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

using Control = ControlCase;

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

TEST_F(Control, WhoWaitsSleepsUnlessItIsToPoll) {
  Start();
  const auto own_time = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  for (const std::chrono::nanoseconds spin : {milliseconds(0), milliseconds(1'000'000)}) {
    SCOPED_TRACE(spin.count());
    ControlOptions options = Options();
    options.spin = spin;
    auto connection = Open(options);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    auto ours = (*connection)->MakePipe(Deadline::After(kLate));
    ASSERT_TRUE(ours.ok()) << ours.status().ToString();
    const std::unique_ptr<fabric::Pipe> theirs = doorman_.AwaitPipe();
    ASSERT_NE(theirs, nullptr);
    const std::vector<std::uint8_t> header(60, 42);
    ASSERT_TRUE((*ours)->Send(header, {}).ok());
    ASSERT_TRUE(theirs->Receive(Deadline::After(kLate)).ok());
    const double before = own_time();
    EXPECT_EQ((*ours)->Receive(Deadline::After(milliseconds(500))).status().code(),
              Code::kDeadlineExceeded);
    const double share = (own_time() - before) / 0.5;
    if (spin.count() == 0) {
      EXPECT_LT(share, 0.1);
    } else {
      EXPECT_GT(share, 0.1);
    }
    // And it hears what comes.
    ASSERT_TRUE(theirs->Send(header, std::vector<float>(100'000, 1)).ok());
    const auto arrival = (*ours)->Receive(Deadline::After(kLate));
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    EXPECT_EQ(arrival->bulk_floats, 100'000u);
  }
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

}  // namespace
}  // namespace passel::testing
