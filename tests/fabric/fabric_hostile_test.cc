// Peers over libfabric that are not what they should be.

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

#include "fabric/fabric_ends.h"
#include "fabric/libfabric/endpoint.h"
#include "fabric/libfabric/frame.h"

namespace passel::testing {
namespace {

using fabric::Endpoint;
using fabric::Network;
using fabric::PipeFrame;
using fabric::Transfer;

// An end that sends what it likes.
class RawEnd {
 public:
  RawEnd(const std::shared_ptr<Network>& network, const std::vector<std::uint8_t>& victim) {
    auto opened = Endpoint::Open(network);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    endpoint_ = std::move(*opened);
    EXPECT_TRUE(endpoint_->SetPeer(victim).ok());
  }
  const std::vector<std::uint8_t>& address() const { return endpoint_->address(); }
  /// Until it has gone, or `over`: the victim may end the connection before.
  void Send(const std::vector<std::uint8_t>& bytes, std::uint64_t tag,
            const std::atomic<bool>& over) {
    sent_.push_back({std::make_unique<Transfer>(), bytes});
    Transfer& transfer = *sent_.back().transfer;
    const auto memory = std::as_bytes(std::span(sent_.back().bytes));
    while (!transfer.done && !over) {
      if (!transfer.posted) {
        const auto post = endpoint_->PostSend(memory, nullptr, tag, &transfer);
        ASSERT_TRUE(post.ok()) << post.status().ToString();
      }
      Poll();
    }
  }
  void Poll() {
    Endpoint::Completions completions;
    const auto count = endpoint_->Poll(&completions);
    ASSERT_TRUE(count.ok());
    for (std::size_t i = 0; i < *count; ++i) completions[i].transfer->done = true;
  }

 private:
  struct Sent {
    std::unique_ptr<Transfer> transfer;
    std::vector<std::uint8_t> bytes;
  };
  std::deque<Sent> sent_;
  std::unique_ptr<Endpoint> endpoint_;
};

std::vector<std::uint8_t> Encoded(const PipeFrame& frame) {
  std::vector<std::uint8_t> bytes(fabric::kFramePrefixBytes + frame.header_bytes);
  fabric::EncodePipeFrame(frame, bytes.data());
  return bytes;
}

class HostilePeer : public ::testing::TestWithParam<Carrier> {};
INSTANTIATE_TEST_SUITE_P(All, HostilePeer,
                         ::testing::Values(CarrierOf("Tcp", "tcp;ofi_rxm"),
                                           CarrierOf("Shm", "shm")),
                         [](const auto& test) { return test.param.name; });

TEST_P(HostilePeer, WhatNoPipeSendsEndsThePipe) {
  if (IsShm(GetParam())) GTEST_SKIP() << kShmCrashes;
  struct Case {
    const char* why;
    std::vector<std::vector<std::uint8_t>> sent;
  };
  const std::vector<std::uint8_t> good = Encoded({.header_bytes = 3, .sequence = 1});
  std::vector<std::uint8_t> cut = good;
  cut.resize(20);
  std::vector<std::uint8_t> magic = good;
  magic[0] = 0;
  const std::vector<Case> cases = {
      {"less than its first 40 bytes", {cut}},
      {"no word of this protocol", {magic}},
      {"at most 1000 are taken",
       {Encoded(
           {.header_bytes = 3, .chunk_floats = 4096, .bulk_floats = 1ULL << 60, .sequence = 1})}},
      {"out of its order", {good, good}},
      {"out of its order", {Encoded({.header_bytes = 3, .sequence = 9})}},
      {"more than was sent", {Encoded({.header_bytes = 3, .sequence = 1, .taken = 1})}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.why);
    auto network = *Network::Open(GetParam().network);
    fabric::FabricPipeOptions options;
    options.most_floats = 1000;
    const auto pipe = OpenPipe(network, options);
    RawEnd raw(OpenNetwork(GetParam().network), pipe->local_address());
    const auto tags = *fabric::PipeTags::Random();
    ASSERT_TRUE(pipe->Join(raw.address(), tags).ok());
    // The pipe makes no provider work before it is waited on.
    std::atomic<bool> over{false};
    std::thread sender([&] {
      for (const auto& bytes : each.sent) raw.Send(bytes, tags.receives, over);
    });
    Status status;
    while (status.ok()) status = pipe->Receive(Deadline::After(kSoon)).status();
    over = true;
    sender.join();
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
    EXPECT_THAT(status.message(), ::testing::HasSubstr(each.why));
  }
}

TEST_P(HostilePeer, APartOfAFalseSizeEndsThePipe) {
  if (IsShm(GetParam())) GTEST_SKIP() << kShmCrashes;
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{4096 * 4 + 4}}) {
    SCOPED_TRACE(bytes);
    auto network = *Network::Open(GetParam().network);
    const auto pipe = OpenPipe(network);
    RawEnd raw(OpenNetwork(GetParam().network), pipe->local_address());
    const auto tags = *fabric::PipeTags::Random();
    ASSERT_TRUE(pipe->Join(raw.address(), tags).ok());
    std::atomic<bool> over{false};
    std::thread sender([&] {
      raw.Send(
          Encoded({.header_bytes = 3, .chunk_floats = 4096, .bulk_floats = 9000, .sequence = 1}),
          tags.receives, over);
      raw.Send(std::vector<std::uint8_t>(bytes), tags.receives ^ 1, over);
    });
    const auto arrival = pipe->Receive(Deadline::After(kSoon));
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    EXPECT_EQ(arrival->bulk_floats, 9000U);
    std::vector<float> into(9000);
    EXPECT_EQ(pipe->ReadBulk(into).code(), Code::kUnavailable);
    over = true;
    sender.join();
  }
}

TEST_P(HostilePeer, BytesThatAreNoAddressAreRefused) {
  auto network = *Network::Open(GetParam().network);
  const auto tags = *fabric::PipeTags::Random();
  const auto other = OpenPipe(network);
  std::vector<std::uint8_t> cut = other->local_address();
  cut.pop_back();
  for (const auto& bytes : {std::vector<std::uint8_t>(), std::vector<std::uint8_t>(300, 1),
                            std::vector<std::uint8_t>(16, 0xff), cut}) {
    const auto pipe = OpenPipe(network);
    EXPECT_EQ(pipe->Join(bytes, tags).code(), Code::kInvalidArgument) << bytes.size();
  }
}

// They are many, send what nobody asked for, and are neither heard nor kept.
TEST(Strangers, DoNotDisturbAPipe) {
  constexpr int kStrangers = 64;
  Ends ends = MakeEnds(CarrierOf("Tcp", "tcp;ofi_rxm").network);
  std::atomic<bool> over{false};
  const auto bulk = Numbers(30'000);
  std::thread victim([&] {
    while (!over) {
      const auto arrival = ends.b->Receive(Deadline::After(std::chrono::milliseconds(20)));
      if (!arrival.ok()) {
        ASSERT_EQ(arrival.status().code(), Code::kDeadlineExceeded);
        continue;
      }
      std::vector<float> into(arrival->bulk_floats);
      ASSERT_TRUE(ends.b->ReadBulk(into).ok());
      ASSERT_TRUE(ends.b->Send(arrival->header, into).ok());
    }
  });
  const std::atomic<bool> never{false};
  std::vector<std::unique_ptr<RawEnd>> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<RawEnd>(ends.network, ends.b->local_address()));
    for (std::uint64_t k = 0; k < 3; ++k) {
      strangers.back()->Send(Encoded({.header_bytes = 100, .sequence = 1}), 1000 * k + 7, never);
    }
    ASSERT_TRUE(ends.a->Send(Header(9), bulk).ok());
    const auto arrival = ends.a->Receive(Deadline::After(kSoon));
    ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
    std::vector<float> back(arrival->bulk_floats);
    ASSERT_TRUE(ends.a->ReadBulk(back).ok());
    EXPECT_TRUE(back == bulk);
  }
  const Deadline end = Deadline::After(kSoon);
  while (ends.b->strangers() < 3 * kStrangers && !end.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  over = true;
  victim.join();
  EXPECT_EQ(ends.b->strangers(), 3U * kStrangers);
}

TEST(ManyPeers, SixtyFourAreServedAtOnce) {
  constexpr std::size_t kPeers = 64;
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  auto network = *Network::Open({});
  const auto before = descriptors();
  std::vector<Ends> all(kPeers);
  for (Ends& ends : all) {
    ends.a = OpenPipe(network);
    ends.b = OpenPipe(network);
    Meet(*ends.a, *ends.b);
  }
  std::vector<std::thread> served;
  for (Ends& ends : all) {
    served.emplace_back([&ends] {
      for (int i = 0; i < 3; ++i) {
        const auto arrival = ends.b->Receive(Deadline::After(kSoon));
        ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
        std::vector<float> into(arrival->bulk_floats);
        ASSERT_TRUE(ends.b->ReadBulk(into).ok());
        ASSERT_TRUE(ends.b->Send(arrival->header, into).ok());
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    for (std::size_t k = 0; k < kPeers; ++k) {
      const auto bulk = Numbers(10'000, static_cast<float>(k));
      ASSERT_TRUE(all[k].a->Send(Header(9), bulk).ok());
      const auto arrival = all[k].a->Receive(Deadline::After(kSoon));
      ASSERT_TRUE(arrival.ok()) << arrival.status().ToString();
      std::vector<float> back(arrival->bulk_floats);
      ASSERT_TRUE(all[k].a->ReadBulk(back).ok());
      EXPECT_TRUE(back == bulk);
    }
  }
  for (std::thread& thread : served) thread.join();
  RecordProperty("descriptors_of_a_pipe",
                 std::to_string(static_cast<double>(descriptors() - before) / (2 * kPeers)));
}

}  // namespace
}  // namespace passel::testing
