// A server of this process, whose memory and connections the test has in its hands.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "base/random.h"
#include "conformance/heap_host.h"
#include "fabric/client.h"
#include "fabric/remote_stores.h"
#include "fabric/server.h"
#include "fabric/socket_pipe.h"
#include "store/membership.h"

namespace passel::testing {
namespace {

using fabric::Kind;
using std::chrono::milliseconds;

constexpr milliseconds kStallLimit{300};  // of the connections

struct Sockets {
  FileDescriptor ours, theirs;
};
Sockets Connected() {
  int ends[2];
  PASSEL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "sockets");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Hands bytes on, both ways, a few at a time if it is to be slow; with a limit not all of them.
class SlowLine {
 public:
  SlowLine(FileDescriptor a, FileDescriptor b, std::size_t limit, const std::atomic<bool>& slow)
      : slow_(slow) {
    one_ = std::thread([this, limit, from = a.get(), to = b.get()] { HandOn(from, to, limit); });
    other_ = std::thread([this, from = b.get(), to = a.get()] { HandOn(from, to, ~0UL); });
    a_ = std::move(a);
    b_ = std::move(b);
  }
  ~SlowLine() {
    over_ = true;
    one_.join();
    other_.join();
  }

 private:
  void HandOn(int from, int to, std::size_t left) {
    std::vector<char> part(16384);
    while (!over_) {
      pollfd waited{from, POLLIN, 0};
      if (left == 0 || ::poll(&waited, 1, 10) <= 0) {
        std::this_thread::sleep_for(milliseconds(10));
        continue;
      }
      const ssize_t got = ::recv(from, part.data(), std::min(part.size(), left), 0);
      if (got <= 0 || ::send(to, part.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) < 0) {
        break;
      }
      left -= static_cast<std::size_t>(got);
      if (slow_) std::this_thread::sleep_for(milliseconds(10));
    }
    ::shutdown(to, SHUT_RDWR);
  }
  const std::atomic<bool>& slow_;
  FileDescriptor a_, b_;
  std::atomic<bool> over_{false};
  std::thread one_, other_;
};

class Ps {
 public:
  explicit Ps(const StorePlan& plan, const fabric::ServerOptions& options = {})
      : plan_(plan), host_(plan), server_({plan, 0, host_.Memory()[0], options}) {}

  ShardMemory memory() { return host_.Memory()[0]; }
  fabric::Server& server() { return server_; }
  std::unique_ptr<SocketPipe> Connect() {
    Sockets sockets = Connected();
    server_.Serve(std::make_unique<SocketPipe>(std::move(sockets.theirs), kStallLimit));
    return std::make_unique<SocketPipe>(std::move(sockets.ours), kStallLimit);
  }
  FileDescriptor ConnectRaw() {
    Sockets sockets = Connected();
    server_.Serve(std::make_unique<SocketPipe>(std::move(sockets.theirs), kStallLimit));
    return std::move(sockets.ours);
  }
  std::atomic<bool> slow{false};
  /// By a line that may be slow; the first hands on `limit` bytes of the worker.
  std::unique_ptr<fabric::Pipe> ConnectSlowly(std::size_t limit) {
    Sockets sockets = Connected();
    lines_.push_back(std::make_unique<SlowLine>(std::move(sockets.theirs), ConnectRaw(),
                                                lines_.empty() ? limit : ~0UL, slow));
    return std::make_unique<SocketPipe>(std::move(sockets.ours), kStallLimit);
  }
  std::size_t slow_connections() const { return lines_.size(); }

  std::unique_ptr<ParameterStore> Open(int worker, milliseconds stall_limit = std::chrono::hours(1),
                                       fabric::Connector connector = {}) {
    fabric::ClientOptions options;
    options.waits.stall_limit = stall_limit;
    if (!connector) {
      connector = [this](Deadline) { return std::unique_ptr<fabric::Pipe>(Connect()); };
    }
    auto store = fabric::OpenRemoteStore(plan_, worker, {connector}, options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }

 private:
  const StorePlan plan_;
  HeapHost host_;
  std::vector<std::unique_ptr<SlowLine>> lines_;
  fabric::Server server_;
};

StorePlan PlanOf(std::int64_t floats, Mode mode, int workers) {
  StorePlan plan = TestPlan(mode, 1, workers, Sgd(1.0));
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {floats};
  plan.variables = *VariableTable::Build({v}, 1);
  plan.block_floats = 4096;
  return plan;
}

bool IsClosed(const FileDescriptor& socket, milliseconds within) {
  pollfd waited{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&waited, 1, static_cast<int>(within.count())) == 1 &&
         ::recv(socket.get(), &byte, 1, 0) <= 0;
}

TEST(RemoteServer, AMessageTakesAsLongAsItMoves) {
  // 1 MB at 1.6 MB/s there and back takes four times as long as it may stand still.
  Ps ps(PlanOf(1 << 18, Mode::kHogwild, 1));
  const auto store =
      ps.Open(0, std::chrono::hours(1), [&](Deadline) { return ps.ConnectSlowly(~0UL); });
  InitializeTo(*store, 0);
  ps.slow = true;
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  ps.slow = false;
  EXPECT_GT(MonotonicNs() - begin, 2 * std::chrono::nanoseconds(kStallLimit).count());
  EXPECT_EQ(store->Pull(PullMode::kView)->values(0)[0], 1);
  EXPECT_EQ(ps.slow_connections(), 1u);
}

TEST(RemoteServer, AMessageThatStandsStillEndsItsConnection) {
  Ps ps(PlanOf(1 << 16, Mode::kHogwild, 1));
  const auto store =
      ps.Open(0, std::chrono::hours(1), [&](Deadline) { return ps.ConnectSlowly(100'000); });
  InitializeTo(*store, 0);  // stands still in there
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  EXPECT_EQ(store->Pull(PullMode::kView)->values(0)[0], 1);
  EXPECT_EQ(ps.slow_connections(), 2u);
}

TEST(RemoteServer, SilentConnectionsAreClosedAndNotMoreThanSoMany) {
  fabric::ServerOptions options;
  options.hello_limit = milliseconds(200);
  options.most_silent = 3;
  Ps ps(PlanOf(16, Mode::kHogwild, 1), options);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(ps.ConnectRaw());
  const std::uint64_t half_a_prefix = 100;
  ASSERT_EQ(::send(silent[0].get(), &half_a_prefix, sizeof half_a_prefix, 0), 8);
  EXPECT_TRUE(IsClosed(ps.ConnectRaw(), milliseconds(100))) << "at once: too many";
  EXPECT_NE(ps.Open(0), nullptr) << "when there is room again";
  for (const FileDescriptor& socket : silent) EXPECT_TRUE(IsClosed(socket, milliseconds(500)));
}

TEST(RemoteServer, WhoSaysSomethingElseThanHelloIsClosed) {
  Ps ps(PlanOf(16, Mode::kHogwild, 1));
  const auto pipe = ps.Connect();
  fabric::Request request;
  request.session = request.id = 1;
  ASSERT_TRUE(pipe->Send(Encode(request), {}).ok());
  EXPECT_EQ(pipe->Receive(Deadline::After(kBound)).status().code(), Code::kUnavailable);
}

TEST(RemoteServer, AWorkerThatIsQuietForTooLongIsTakenForDeadAndMayComeBack) {
  fabric::ServerOptions options;
  options.quiet_limit = options.grace = milliseconds(100);
  Ps ps(PlanOf(16, Mode::kHogwild, 1), options);
  const auto store = ps.Open(0, milliseconds(100));
  InitializeTo(*store, 0);
  for (int i = 0; i < 5; ++i) {
    store->SayAlive();
    std::this_thread::sleep_for(milliseconds(60));
  }
  EXPECT_EQ(StateOf(ps.memory(), 0).phase, Phase::kRunning);
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_EQ(StateOf(ps.memory(), 0).phase, Phase::kDead);
  EXPECT_TRUE(PushConstant(*store, -1).ok());
  EXPECT_EQ(StateOf(ps.memory(), 0), (TaskState{2, Phase::kRunning}));
}

TEST(RemoteServer, AWorkerWhoseConnectionHasEndedIsDeadSoonerUnlessItComesBack) {
  fabric::ServerOptions options;
  options.ended_grace = milliseconds(200);
  options.grace = std::chrono::hours(1);
  Ps ps(PlanOf(16, Mode::kHogwild, 1), options);
  FileDescriptor end;
  const auto store =
      ps.Open(0, std::chrono::hours(1), [&](Deadline) -> Result<std::unique_ptr<fabric::Pipe>> {
        FileDescriptor socket = ps.ConnectRaw();
        end.Reset(::dup(socket.get()));
        return std::unique_ptr<fabric::Pipe>(
            std::make_unique<SocketPipe>(std::move(socket), kStallLimit));
      });
  InitializeTo(*store, 0);
  ::shutdown(end.get(), SHUT_RDWR);
  ps.server().ConnectionEnded(0);
  ps.server().ConnectionBack(0);
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_EQ(StateOf(ps.memory(), 0).phase, Phase::kRunning);
  ps.server().ConnectionEnded(0);
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  while (StateOf(ps.memory(), 0).phase == Phase::kRunning && !deadline.Expired()) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(StateOf(ps.memory(), 0).phase, Phase::kDead);
}

TEST(RemoteServer, ALockedPushHearsItsOwnStop) {
  Ps ps(PlanOf(16, Mode::kLocked, 2));
  const auto a = ps.Open(0);
  const auto b = ps.Open(1);
  InitializeTo(*a, 0);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ps.memory().blocks[0].claim.store(Claim{1, 1}.Pack());  // as if b were stopped within it
  auto pushes = std::async(std::launch::async, [&] { return PushOnly(*a, -1).status(); });
  std::this_thread::sleep_for(milliseconds(100));
  const std::int64_t begin = MonotonicNs();
  a->Stop();
  EXPECT_EQ(pushes.get().code(), Code::kCancelled);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kLong).count() / 2);
}

// What passes the reader is still anything that a worker may say, to a ps in any state.
TEST(RemoteServer, NoMutationOfARequestHarmsThePs) {
  constexpr std::size_t kFloats = 256;
  for (const Mode mode : {Mode::kLocked, Mode::kBarrier, Mode::kSsp}) {
    SCOPED_TRACE(ModeName(mode));
    const StorePlan plan = PlanOf(kFloats, mode, 2);
    Ps ps(plan);
    InitializeTo(*ps.Open(0), 0);
    Random random(static_cast<std::uint64_t>(mode));
    const std::vector<float> bulk(kFloats, -1);
    std::unique_ptr<SocketPipe> pipe;
    fabric::Request request;
    for (int i = 0; i < 3000; ++i) {
      if (i % 500 == 0) {  // a former one may have left, or be over
        request = {};
        request.kind = Kind::kHello;
        request.session = static_cast<std::uint64_t>(i) + 1;
        request.hello.plan_hash = plan.Hash();
        request.hello.worker = 1;
        request.hello.pid = 1;
        request.hello.mode = fabric::Hello::kNoMode;
        pipe.reset();
        std::this_thread::sleep_for(milliseconds(50));
        pipe = ps.Connect();
        ASSERT_TRUE(pipe->Send(Encode(request), {}).ok());
        const auto welcome = pipe->Receive(Deadline::After(kBound));
        ASSERT_TRUE(welcome.ok());
        const auto said = fabric::DecodeAnswer(welcome->header);
        ASSERT_TRUE(said.ok() && said->status.ok()) << said->status.ToString();
      }
      const std::uint64_t kinds = static_cast<std::uint64_t>(fabric::kLastKind);
      request.kind = static_cast<Kind>(1 + random.Below(kinds));
      request.id = request.kind == Kind::kHello ? 0 : static_cast<std::uint64_t>(i) + 1;
      request.number = random.Below(4);
      request.grant = {random.Below(4), 1, {1 + random.Below(2), 0, 0, 0}};
      request.mode = ModeWord{0, 0, 0, mode}.Pack();
      request.flags = static_cast<std::uint16_t>(random.Below(512));
      std::vector<std::uint8_t> header = Encode(request);
      for (std::uint64_t n = random.Below(4); n > 0; --n) {
        header[24 + random.Below(header.size() - 24)] = static_cast<std::uint8_t>(random.Next());
      }
      const std::size_t floats = random.Below(2) == 0 ? 0 : kFloats - random.Below(2);
      ASSERT_TRUE(pipe->Send(header, std::span(bulk).first(floats)).ok());
      while (pipe->Receive(Deadline::After({})).ok()) {
      }
    }
    // It goes on, for this worker and for others.
    pipe.reset();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_NE(ps.Open(1), nullptr);
  }
}

// Half of it comes before the life that sends it is over, the other half behind the gradient of
// its successor.
TEST(RemoteServer, AGradientThatIsOnItsWayIsNotWrittenIntoThatOfASuccessor) {
  constexpr std::size_t kFloats = 1 << 16;
  Ps ps(PlanOf(kFloats, Mode::kBarrier, 2));
  const auto a = ps.Open(0);
  InitializeTo(*a, 0);
  const FileDescriptor raw = ps.ConnectRaw();
  SocketPipe former(FileDescriptor(::fcntl(raw.get(), F_DUPFD_CLOEXEC, 0)));
  fabric::Request request;
  request.kind = Kind::kHello;
  request.session = 77;
  request.hello.plan_hash = PlanOf(kFloats, Mode::kBarrier, 2).Hash();
  request.hello.worker = 1;
  request.hello.pid = 1;
  request.hello.mode = fabric::Hello::kNoMode;
  request.hello.stall_limit_ns = std::chrono::nanoseconds(std::chrono::hours(1)).count();
  ASSERT_TRUE(former.Send(Encode(request), {}).ok());
  ASSERT_TRUE(former.Receive(Deadline::After(kBound)).ok());
  request.kind = Kind::kStage;
  request.id = 1;
  const std::vector<std::uint8_t> header = Encode(request);
  std::vector<std::uint8_t> bytes(16);
  bytes[0] = static_cast<std::uint8_t>(header.size());
  const std::uint64_t floats = kFloats;
  std::memcpy(&bytes[8], &floats, 8);
  bytes.insert(bytes.end(), header.begin(), header.end());
  const std::vector<float> gradient(kFloats, -100);
  const auto half = std::as_bytes(std::span(gradient)).first(kFloats * 2);
  ASSERT_GT(::send(raw.get(), bytes.data(), bytes.size(), 0), 0);
  ASSERT_GT(::send(raw.get(), half.data(), half.size(), 0), 0);
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(Evict(ps.memory(), 1, 1));
  const auto successor = ps.Open(1);
  ASSERT_NE(successor, nullptr);
  ASSERT_TRUE(successor->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const Result<Ticket> ticket = PushOnly(*successor, -1);
  ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
  (void)::send(raw.get(), half.data(), half.size(), MSG_NOSIGNAL);
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  ASSERT_TRUE(successor->Wait(*ticket, Deadline::After(kLong)).ok());
  for (const float x : a->Pull(PullMode::kView)->values(0)) {
    ASSERT_EQ(x, 1);
  }
}

}  // namespace
}  // namespace passel::testing
