// A pipe over libfabric, between two ends in one process.

#include "fabric/libfabric/fabric_pipe.h"

#include <gmock/gmock.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "fabric/fabric_ends.h"

namespace passel::testing {
namespace {

using fabric::FabricPipe;
using fabric::FabricPipeOptions;
using fabric::Network;
using fabric::NetworkOptions;

class FabricPipeTest : public ::testing::TestWithParam<Carrier> {};
INSTANTIATE_TEST_SUITE_P(All, FabricPipeTest, ::testing::ValuesIn(AllCarriers()),
                         [](const auto& test) { return test.param.name; });

FabricPipeOptions Impatient() {
  FabricPipeOptions options;
  options.stall_limit = std::chrono::milliseconds(300);
  return options;
}

Result<fabric::Arrival> Next(FabricPipe& pipe) { return pipe.Receive(Deadline::After(kSoon)); }

TEST_P(FabricPipeTest, MessagesOfEverySizeArrive) {
  const Ends ends = MakeEnds(GetParam().network);
  std::thread echo([&] {
    for (;;) {
      const auto arrival = Next(*ends.b);
      ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
      std::vector<float> bulk(arrival->bulk_floats);
      ASSERT_TRUE(ends.b->ReadBulk(bulk).ok());
      const Status sent = ends.b->Send(arrival->header, bulk);
      ASSERT_TRUE(sent.ok()) << sent.ToString();
      if (arrival->header.size() == 2) return;
    }
  });
  float first = 1;
  const auto check = [&](std::size_t header_bytes, std::size_t floats) {
    SCOPED_TRACE(::testing::Message() << header_bytes << " and " << floats);
    const auto header = Header(header_bytes);
    const auto bulk = Numbers(floats, first += 3);
    const Status sent = ends.a->Send(header, bulk);
    ASSERT_TRUE(sent.ok()) << sent.ToString();
    const auto arrival = Next(*ends.a);
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    EXPECT_EQ(arrival->header, header);
    ASSERT_EQ(arrival->bulk_floats, floats);
    std::vector<float> back(floats);
    ASSERT_TRUE(ends.a->ReadBulk(back).ok());
    EXPECT_TRUE(back == bulk);
  };
  // About what fits into one message, what providers treat apart, and one part or several.
  for (const std::size_t floats :
       {0, 1, 3900, 3985, 3986, 4001, 30'000, 79'510, 262'144, 262'145, 1'048'583}) {
    check(60, floats);
  }
  for (const std::size_t floats : {0, 1, 40, 5000}) check(fabric::kMaxHeaderBytes, floats);
  check(2, 0);
  echo.join();
}

TEST_P(FabricPipeTest, ABulkIsReadInPartsOfAnySizeAndTheRestIsSkipped) {
  FabricPipeOptions options;
  options.chunk_bytes = 64 << 10;
  const Ends ends = MakeEnds(GetParam().network, options);
  const auto bulk = Numbers(100'000);
  std::thread sender([&] {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.a->Send(Header(8), bulk).ok());
    ASSERT_TRUE(ends.a->Send(Header(8), std::span(bulk).first(100)).ok());
    ASSERT_TRUE(ends.a->Send(Header(9), {}).ok());
  });
  const std::vector<std::vector<std::size_t>> reads = {
      {1, 20'001, 50'000, 29'998}, {}, {16'385, 3}, {60}};
  for (const auto& parts : reads) {
    const auto arrival = Next(*ends.b);
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    std::size_t at = 0;
    for (const std::size_t floats : parts) {
      std::vector<float> part(floats);
      if (floats % 3 == 0) {
        ASSERT_EQ(*ends.b->ReadSome(part, Deadline::After(kSoon)), floats);
      } else {
        ASSERT_TRUE(ends.b->ReadBulk(part).ok());
      }
      EXPECT_TRUE(std::equal(part.begin(), part.end(), bulk.begin() + static_cast<long>(at)));
      at += floats;
    }
  }
  const auto last = Next(*ends.b);
  ASSERT_TRUE(last.ok()) << last.status().ToString();
  EXPECT_EQ(last->header.size(), 9U);
  sender.join();
}

TEST_P(FabricPipeTest, MessagesOfManyThreadsArriveWhole) {
  constexpr int kThreads = 3, kMessages = 60;
  const Ends ends = MakeEnds(GetParam().network);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kMessages; ++i) {
        const std::vector<float> bulk((i % 7) * 3001U, static_cast<float>(t * kMessages + i));
        const auto header = Header(20, static_cast<std::uint8_t>(t * kMessages + i));
        const Status sent = ends.a->Send(header, bulk);
        ASSERT_TRUE(sent.ok()) << sent.ToString();
      }
    });
  }
  // Small ones the other way at the same time.
  threads.emplace_back([&] {
    for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(ends.b->Send(Header(30), {}).ok());
  });
  threads.emplace_back([&] {
    for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(Next(*ends.a).ok());
  });
  std::vector<int> next(kThreads);
  for (int i = 0; i < kThreads * kMessages; ++i) {
    const auto arrival = Next(*ends.b);
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    const int number = arrival->header[0];
    EXPECT_EQ(number % kMessages, next[static_cast<std::size_t>(number / kMessages)]++);
    std::vector<float> bulk(arrival->bulk_floats);
    EXPECT_EQ(bulk.size(), (number % kMessages % 7) * 3001U);
    ASSERT_TRUE(ends.b->ReadBulk(bulk).ok());
    EXPECT_THAT(bulk, ::testing::Each(static_cast<float>(number)));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(FabricPipeTest, AReceiverThatTakesNothingHoldsTheSenderUpAndThenEndsIt) {
  const Ends ends = MakeGreetedEnds(GetParam().network, Impatient());
  int sent = 0;
  Status status;
  for (; sent < 100 && status.ok(); ++sent) status = ends.a->Send(Header(10), {});
  EXPECT_EQ(sent, 8);  // with the greeting a window, and the one that failed
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("takes no messages"));
  EXPECT_EQ(ends.a->Send(Header(10), {}).code(), Code::kUnavailable);
  EXPECT_EQ(Next(*ends.a).status().code(), Code::kUnavailable);
}

TEST_P(FabricPipeTest, AReceiverThatIsLateTakesAllMessages) {
  const Ends ends = MakeEnds(GetParam().network);
  std::thread sender([&] {
    for (std::uint8_t i = 0; i < 100; ++i) ASSERT_TRUE(ends.a->Send(Header(1, i), {}).ok());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (std::uint8_t i = 0; i < 100; ++i) {
    const auto arrival = Next(*ends.b);
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    EXPECT_EQ(arrival->header[0], i);
  }
  sender.join();
}

TEST_P(FabricPipeTest, APeerThatIsGoneEndsASendAtTheStallLimit) {
  if (IsShm(GetParam())) GTEST_SKIP() << kShmCrashes;
  Ends ends = MakeGreetedEnds(GetParam().network, Impatient());
  ends.b.reset();
  const auto bulk = Numbers(300'000);
  EXPECT_EQ(ends.a->Send(Header(5), bulk).code(), Code::kUnavailable);
}

TEST_P(FabricPipeTest, CloseEndsEveryWaitForItsReason) {
  const Ends ends = MakeEnds(GetParam().network);
  const Ends others = MakeEnds(GetParam().network);
  const auto bulk = Numbers(300'000);
  std::thread receiver([&] {
    const Status status = Next(*ends.a).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.message(), "worker/1 has died");
  });
  std::thread sender([&] {  // nobody reads the bulk
    EXPECT_EQ(ends.a->Send(Header(5), bulk).code(), Code::kUnavailable);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::int64_t begin = MonotonicNs();
  ends.a->Close(Unavailable("worker/1 has died"));
  ends.a->Close(Unavailable("another reason"));
  receiver.join();
  sender.join();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(std::chrono::seconds(3)).count());
  EXPECT_EQ(ends.a->Send(Header(5), {}).message(), "worker/1 has died");
}

TEST_P(FabricPipeTest, WhatIsNotWantedIsNotWrittenAnyMore) {
  if (IsShm(GetParam())) GTEST_SKIP() << kShmCrashes;
  FabricPipeOptions options;
  options.chunk_bytes = 256 << 10;
  const Ends ends = MakeEnds(GetParam().network, options);
  const auto bulk = Numbers(4 << 20, 1);
  std::thread sender([&] { (void)ends.a->Send(Header(5), bulk); });
  const auto arrival = Next(*ends.b);
  ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
  std::vector<float> into(bulk.size());
  // As an owner's voice would: while parts are under way.
  std::thread owner([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ends.b->Close(Unavailable("it is over"));
  });
  const Status read = ends.b->ReadBulk(into, [] { return false; });
  std::fill(into.begin(), into.end(), -1.0F);
  EXPECT_FALSE(read.ok());
  owner.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_TRUE(std::all_of(into.begin(), into.end(), [](float x) { return x == -1.0F; }));
  ends.a->Close(Unavailable("the other end is gone"));
  sender.join();
}

TEST_P(FabricPipeTest, EveryOrderOfClosingWillDo) {
  if (IsShm(GetParam())) GTEST_SKIP() << kShmCrashes;
  const auto bulk = Numbers(50'000);
  for (int order = 0; order < 12; ++order) {
    SCOPED_TRACE(order);
    Ends ends = order % 3 > 0 ? MakeGreetedEnds(GetParam().network, Impatient())
                              : MakeEnds(GetParam().network);
    std::unique_ptr<FabricPipe> alone = OpenPipe(ends.network);
    if (order % 3 > 0) {
      ASSERT_TRUE(ends.a->Send(Header(9), {}).ok());
    }
    std::thread sender;
    if (order % 3 > 1) {
      // A message is taken, another is not, of a third the bulk waits.
      sender = std::thread([&] {
        for (int i = 0; i < 2; ++i) (void)ends.a->Send(Header(9), bulk);
      });
      ASSERT_TRUE(Next(*ends.b).ok());
      ASSERT_TRUE(Next(*ends.b).ok());
      if (order == 5) {
        std::vector<float> part(10);
        ASSERT_TRUE(ends.b->ReadBulk(part).ok());
      }
    }
    ends.network.reset();
    if (order / 3 == 0) ends.b.reset();
    if (order / 3 == 1) ends.b->Close(Unavailable("over"));
    if (order / 3 == 2) alone->Close(Unavailable("over"));
    if (order / 3 == 3) ends.a->Close(Unavailable("over"));
    if (sender.joinable()) sender.join();
    if (order % 2 == 0) ends.a.reset();
  }
}

TEST_P(FabricPipeTest, WhoWaitsForNothingSleepsUnlessItIsToPoll) {
  const auto own_time = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  // As it is without an option; never; always.
  for (const auto spin : {FabricPipeOptions().spin, std::chrono::nanoseconds(0),
                          std::chrono::nanoseconds(std::chrono::hours(1))}) {
    SCOPED_TRACE(spin.count());
    FabricPipeOptions options;
    options.spin = spin;
    options.gives_way = spin < std::chrono::seconds(1);
    const Ends ends = MakeGreetedEnds(GetParam().network, options);
    const double before = own_time();
    // As a proxy waits.
    const Deadline end = Deadline::After(std::chrono::milliseconds(500));
    while (!end.Expired()) {
      EXPECT_EQ(ends.b->Receive(end.Sooner(std::chrono::milliseconds(20))).status().code(),
                Code::kDeadlineExceeded);
    }
    const double share = (own_time() - before) / 0.5;
    RecordProperty("share_of_a_core", std::to_string(share));
    if (spin < std::chrono::seconds(1)) {
      EXPECT_LT(share, 0.1);
    } else if (std::thread::hardware_concurrency() > 1) {  // there nobody polls on one
      EXPECT_GT(share, 0.1);
    }
  }
}

TEST_P(FabricPipeTest, MemoryIsRegisteredOnceOrEachTime) {
  const Ends ends = MakeEnds(GetParam().network);
  EXPECT_EQ(ends.network->registers(), GetParam().network.always_register);
  auto out = Numbers(200'000);
  std::vector<float> in(out.size());
  for (const bool registered : {false, true}) {
    fabric::RegisteredMemory sent, received;
    if (registered) {
      sent = *ends.network->Register(std::as_bytes(std::span(out)));
      received = *ends.network->Register(std::as_bytes(std::span(in)));
    }
    // Also a part of what is registered.
    for (const std::size_t floats : {out.size(), out.size() / 2}) {
      std::fill(in.begin(), in.end(), -1.0F);
      std::thread sender([&] {
        const Status status = ends.a->Send(Header(9), std::span(out).last(floats));
        EXPECT_TRUE(status.ok()) << status.ToString();
      });
      ASSERT_TRUE(Next(*ends.b).ok());
      ASSERT_TRUE(ends.b->ReadBulk(std::span(in).last(floats)).ok());
      sender.join();
      EXPECT_TRUE(std::equal(in.end() - static_cast<long>(floats), in.end(),
                             out.end() - static_cast<long>(floats)));
    }
  }
}

// --- Addresses -----------------------------------------------------------------------------------

TEST(FabricNetwork, PortsAreTakenFromTheRangeThatIsNamed) {
  NetworkOptions options;
  options.interface = "lo";
  options.ports = 2;
  std::shared_ptr<Network> network;
  std::vector<std::unique_ptr<FabricPipe>> pipes;
  Status full;
  // Somebody else may have one of them.
  for (options.port = 21'700; options.port < 21'800 && pipes.size() < 2; options.port += 2) {
    pipes.clear();
    network = *Network::Open(options);
    full = Status();
    while (full.ok() && pipes.size() < 3) {
      auto pipe = FabricPipe::Open(network);
      full = pipe.status();
      if (pipe.ok()) pipes.push_back(std::move(*pipe));
    }
  }
  ASSERT_EQ(pipes.size(), 2U);
  EXPECT_EQ(full.code(), Code::kAlreadyExists);
  EXPECT_THAT(full.message(), ::testing::HasSubstr("all 2 ports from 21"));
  Meet(*pipes[0], *pipes[1]);
  Greet(*pipes[0], *pipes[1]);
}

TEST(FabricNetwork, WhatCannotBeIsSaidInOneSentence) {
  const auto why = [](NetworkOptions options) { return Network::Open(options).status(); };
  NetworkOptions options;
  options.address = "localhost";
  EXPECT_EQ(why(options).code(), Code::kInvalidArgument);
  EXPECT_THAT(why(options).message(), ::testing::HasSubstr("'localhost' is no address"));
  options.address = "203.0.113.7";
  EXPECT_EQ(why(options).code(), Code::kNotFound) << why(options).ToString();
  EXPECT_THAT(why(options).message(), ::testing::HasSubstr("203.0.113.7"));
  options = NetworkOptions();
  options.interface = "nosuch0";
  EXPECT_EQ(why(options).code(), Code::kNotFound);
  EXPECT_THAT(why(options).message(), ::testing::HasSubstr("'nosuch0'"));
  options = NetworkOptions();
  options.provider = "nosuch";
  EXPECT_EQ(why(options).code(), Code::kNotFound);
  EXPECT_THAT(why(options).message(), ::testing::HasSubstr("'nosuch'"));
  options = NetworkOptions();
  options.port = 65'530;
  options.ports = 10;
  EXPECT_EQ(why(options).code(), Code::kInvalidArgument);
  EXPECT_THAT(why(options).message(), ::testing::HasSubstr("65530"));
}

}  // namespace
}  // namespace passel::testing
