// The frame before each header: both ways, and whatever may come instead.

#include "fabric/libfabric/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "support/hostile_lengths.h"

namespace passel::fabric {
namespace {

std::vector<std::uint8_t> Encoded(const PipeFrame& frame) {
  std::vector<std::uint8_t> bytes(kFramePrefixBytes + frame.header_bytes +
                                  (frame.bulk_inline ? frame.bulk_floats * sizeof(float) : 0));
  EncodePipeFrame(frame, bytes.data());
  return bytes;
}

TEST(FabricFrame, IsReadAsItWasWritten) {
  const PipeFrame frames[] = {
      {.header_bytes = 60, .sequence = 1, .taken = 7},
      {.bulk_inline = true, .header_bytes = 1, .bulk_floats = 3, .sequence = 1ULL << 40},
      {.header_bytes = 16384, .chunk_floats = 1 << 18, .bulk_floats = 1ULL << 33, .sequence = 2},
      {.taken = 12345}};
  for (const PipeFrame& frame : frames) {
    const Result<PipeFrame> read = DecodePipeFrame(Encoded(frame), 1ULL << 34);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->bulk_inline, frame.bulk_inline);
    EXPECT_EQ(read->header_bytes, frame.header_bytes);
    EXPECT_EQ(read->chunk_floats, frame.chunk_floats);
    EXPECT_EQ(read->bulk_floats, frame.bulk_floats);
    EXPECT_EQ(read->sequence, frame.sequence);
    EXPECT_EQ(read->taken, frame.taken);
  }
}

TEST(FabricFrame, HasTheBytesThatAreDrawn) {
  const auto bytes = Encoded({.header_bytes = 1,
                              .chunk_floats = 0x2000,
                              .bulk_floats = 0x30405,
                              .sequence = 6,
                              .taken = 7});
  const std::vector<std::uint8_t> drawn = {'p', 's', 'f', 'm', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0x20,
                                           0,   0,   5,   4,   3, 0, 0, 0, 0, 0, 6, 0, 0, 0,
                                           0,   0,   0,   0,   7, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(bytes, drawn);
}

TEST(FabricFrame, WhatIsFalseIsRefused) {
  const PipeFrame good{.header_bytes = 8, .chunk_floats = 4096, .bulk_floats = 9000, .sequence = 1};
  ASSERT_TRUE(DecodePipeFrame(Encoded(good), 9000).ok());
  const auto refused = [](const PipeFrame& frame, const char* what) {
    const Status status = DecodePipeFrame(Encoded(frame), 9000).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << what;
    EXPECT_THAT(status.message(), ::testing::HasSubstr(what));
  };
  PipeFrame frame = good;
  frame.bulk_floats = 9001;
  refused(frame, "9001 floats: at most 9000");
  frame = good;
  frame.chunk_floats = 10;
  refused(frame, "chunks of a false size");
  frame.chunk_floats = 0xffffffff;
  refused(frame, "chunks of a false size");
  frame = good;
  frame.bulk_inline = true;
  refused(frame, "chunks of a false size");
  frame = good;
  frame.sequence = 0;
  refused(frame, "a false sequence");
  frame = good;
  frame.header_bytes = kMaxHeaderBytes + 1;
  refused(frame, "a header that is too long");
  std::vector<std::uint8_t> bytes = Encoded(good);
  bytes.push_back(0);
  EXPECT_THAT(DecodePipeFrame(bytes, 9000).status().message(),
              ::testing::HasSubstr("another length"));
  bytes.resize(39);
  EXPECT_FALSE(DecodePipeFrame(bytes, 9000).ok());
  EXPECT_FALSE(DecodePipeFrame({}, 9000).ok());
}

// A wrong length would be read beyond its end, which AddressSanitizer sees.
TEST(FabricFrame, NoBytesAreTooStrange) {
  Random random(7);
  std::vector<std::uint8_t> bytes =
      Encoded({.bulk_inline = true, .header_bytes = 8, .bulk_floats = 4, .sequence = 1});
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::uint8_t> changed = bytes;
    for (std::uint64_t n = random.Below(4); n > 0; --n) {
      changed[random.Below(kFramePrefixBytes)] = static_cast<std::uint8_t>(random.Next());
    }
    changed.resize(random.Below(changed.size() + 1));
    const Result<PipeFrame> read = DecodePipeFrame(changed, 1 << 20);
    if (!read.ok()) continue;
    EXPECT_EQ(changed.size(), kFramePrefixBytes + read->header_bytes +
                                  (read->bulk_inline ? read->bulk_floats * sizeof(float) : 0));
  }
}

// Every pair of hostile lengths, in a frame that is as long as it says where that can be.
bool HostileFramesAreRefused() {
  constexpr std::uint64_t kMost = 9000;
  int frames = 0, taken = 0, wrong = 0;
  for (const std::uint64_t header : testing::HostileLengths(kMaxHeaderBytes)) {
    for (const std::uint64_t bulk : testing::HostileLengths(kMost)) {
      for (const std::uint64_t chunk : testing::HostileLengths(kMaxChunkFloats)) {
        if (header >> 32 != 0 || chunk >> 32 != 0) continue;  // of 32 bits
        for (const bool in_it : {false, true}) {
          const bool is_short = header <= 100'000 && bulk <= 100'000;
          std::vector<std::uint8_t> bytes(
              is_short ? kFramePrefixBytes + header + (in_it ? bulk * sizeof(float) : 0) : 4096);
          EncodePipeFrame({.bulk_inline = in_it,
                           .header_bytes = static_cast<std::uint32_t>(header),
                           .chunk_floats = static_cast<std::uint32_t>(chunk),
                           .bulk_floats = bulk,
                           .sequence = header > 0 ? 1U : 0U},
                          bytes.data());
          const bool chunk_fits = !in_it && bulk > 0
                                      ? chunk >= kMinChunkFloats && chunk <= kMaxChunkFloats
                                      : chunk == 0;
          const bool legal = header <= kMaxHeaderBytes && bulk <= kMost &&
                             (header > 0 || bulk == 0) && (!in_it || bulk > 0) && chunk_fits;
          const bool ok = DecodePipeFrame(bytes, kMost).ok();
          ++frames;
          taken += ok ? 1 : 0;
          if (ok == legal) continue;
          ++wrong;
          ADD_FAILURE() << "header " << header << ", bulk " << bulk << ", chunk " << chunk;
        }
      }
    }
  }
  return frames == 882 && wrong == 0 && taken > 10;
}

TEST(FabricFrame, HostileLengthsAreRefusedAndAskForNoMemory) {
  testing::ExpectTrueWithLittleMemory(HostileFramesAreRefused);
}

}  // namespace
}  // namespace passel::fabric
