#include "fabric/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "support/hostile_lengths.h"

namespace passel::fabric {
namespace {

using ::testing::HasSubstr;

Request FullRequest(Kind kind) {
  Request request;
  request.kind = kind;
  request.session = 0x1122334455667788;
  request.id = kind == Kind::kHello ? 0 : 9;
  request.remaining_ns = 5'000'000'000;
  request.flags = kValues | kReport;
  request.hello = {.plan_hash = 7,
                   .worker = 3,
                   .shard = 1,
                   .pid = 77,
                   .epoch = 2,
                   .first_step = 5,
                   .mode = ModeWord{}.Pack(),
                   .stall_limit_ns = 1,
                   .start_wait_ns = 2,
                   .on_stall = OnStall::kFail,
                   .chief = 4,
                   .chief_name = "chief/0"};
  request.number = 12;
  request.slot = 2;
  request.grant = {12, 2, {0b101, 0, 0, 0}, 3};
  request.rates = {2, true, true, {{0.1, 0.01}, {0.0, -1e300}}};
  request.mode = ModeWord{3, 4, 1, {Mode::kSsp, 8}}.Pack();
  request.start = {99, 100, 101, 102, true};
  request.progress.global_step = 55;
  request.progress.workers = {{1, 2, 3, 9}, {4, 5, 6, 10}};
  request.progress.shards = {{7, 8}};
  request.report.scalars[3] = 33;
  request.report.buckets = {{5, 50}, {700, 1}};
  return request;
}

Answer FullAnswer() {
  Answer answer;
  answer.to = Kind::kRound;
  answer.session = 5;
  answer.id = 6;
  answer.status = DeadlineExceeded("worker/1 is late");
  answer.state.serial = 8;
  answer.state.alive = Aborted("fenced off");
  answer.state.stopped = true;
  answer.state.global_step = -1;
  answer.state.mode = ModeWord{1, 2, 0, {Mode::kReplicas, 3}}.Pack();
  answer.state.engine = {1, 2, 3, 4, 5, 6};
  answer.version = 10;
  answer.grant = RoundGrant{4, 1, {0, 2, 0, 0}, 2};
  answer.members = {{1, Phase::kRunning, 2, 3, 4, 5}};
  answer.report.emplace();
  return answer;
}

TEST(Wire, EveryKindOfRequestArrivesAsItWasSent) {
  for (int k = 1; k <= static_cast<int>(kLastKind); ++k) {
    const Request sent = FullRequest(static_cast<Kind>(k));
    SCOPED_TRACE(InfoOf(sent.kind).name);
    const Result<Request> got = DecodeRequest(Encode(sent));
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    // Encoded again it is the same, and so is each part that travels.
    EXPECT_EQ(Encode(*got), Encode(sent));
    const std::uint32_t parts = InfoOf(sent.kind).parts;
    EXPECT_EQ(got->session, sent.session);
    EXPECT_EQ(got->remaining_ns, sent.remaining_ns);
    EXPECT_EQ(got->number, parts & kNumberPart ? 12u : 0u);
    EXPECT_EQ(got->hello.chief_name, parts & kHelloPart ? "chief/0" : "");
    EXPECT_EQ(got->grant.members[0], parts & kGrantPart ? 5u : 0u);
    EXPECT_EQ(got->grant.rates, parts & kGrantPart ? 3u : 0u);
    EXPECT_EQ(got->rates.set, parts & kRatesPart ? 2u : 0u);
    EXPECT_EQ(got->rates.rates, parts & kRatesPart ? sent.rates.rates : std::vector<GroupRates>());
    EXPECT_EQ(got->start.with_slots, (parts & kStartPart) != 0);
    ASSERT_EQ(got->progress.workers.size(), parts & kProgressPart ? 2u : 0u);
    if (parts & kProgressPart) {
      EXPECT_EQ(got->progress.workers[1].cursor_index, 6u);
      EXPECT_EQ(got->progress.workers[1].local_steps, 10u);
    }
    EXPECT_EQ(got->report.buckets.size(), 2u);
  }
}

TEST(Wire, AnAnswerArrivesAsItWasSent) {
  const Answer sent = FullAnswer();
  const Result<Answer> got = DecodeAnswer(Encode(sent));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(Encode(*got), Encode(sent));
  EXPECT_EQ(got->status.ToString(), sent.status.ToString());
  EXPECT_EQ(got->state.alive.code(), Code::kAborted);
  EXPECT_EQ(got->state.global_step, -1);
  EXPECT_TRUE(got->grant->Counts(65));
  EXPECT_EQ(got->grant->rates, 2u);
  EXPECT_EQ(got->members[0].heartbeat_age_ns, 5);
}

TEST(Wire, TheLargestAnswerIsAHeader) {
  Answer answer = FullAnswer();
  answer.status = Aborted(std::string(5000, 'x'));
  answer.state.alive = answer.status;
  answer.members.resize(kMaxWorkers);
  EXPECT_LE(Encode(answer).size(), std::size_t{16384});
  answer.members.clear();
  answer.report->buckets.resize(2 * Histogram::kBuckets);
  EXPECT_LE(Encode(answer).size(), std::size_t{16384});
  EXPECT_EQ(DecodeAnswer(Encode(answer))->status.message().size(), 1000u);
}

TEST(Wire, BytesAreLittleEndianOnEveryMachine) {
  const std::vector<std::uint8_t> bytes = Encode(FullRequest(Kind::kPull));
  const std::vector<std::uint8_t> first(bytes.begin(), bytes.begin() + 9);
  EXPECT_THAT(first, ::testing::ElementsAre('p', 's', 's', 'l', kProtocolVersion, 0, 'q',
                                            static_cast<std::uint8_t>(Kind::kPull), 0x88));
}

TEST(Wire, WhatCannotBeIsRefusedWithASentence) {
  const auto refused = [](const Request& request) {
    return DecodeRequest(Encode(request)).status().ToString();
  };
  Request request = FullRequest(Kind::kApplyRound);
  request.grant.count = 5;
  EXPECT_THAT(refused(request), HasSubstr("false count of members"));
  request = FullRequest(Kind::kEnterMode);
  request.mode |= std::uint64_t{7} << 20;
  EXPECT_THAT(refused(request), HasSubstr("mode that this build does not know"));
  request = FullRequest(Kind::kPull);
  request.report.buckets[0].index = 2 * Histogram::kBuckets;
  EXPECT_THAT(refused(request), HasSubstr("bucket that does not exist"));
  request = FullRequest(Kind::kHello);
  request.hello.pid = 0;
  EXPECT_THAT(refused(request), HasSubstr("no process"));
  request = FullRequest(Kind::kPull);
  request.session = 0;
  EXPECT_THAT(refused(request), HasSubstr("no session"));
  std::vector<std::uint8_t> bytes = Encode(FullRequest(Kind::kPull));
  bytes[4] = kProtocolVersion + 1;
  EXPECT_THAT(DecodeRequest(bytes).status().ToString(), HasSubstr("another version"));
  EXPECT_THAT(DecodeAnswer(Encode(FullRequest(Kind::kPull))).status().ToString(),
              HasSubstr("other direction"));
  EXPECT_EQ(DecodeRequest({}).status().code(), Code::kInvalidArgument);
}

// What the fuzzer of messages (tests/fuzz/fuzz_wire.cc) begins with, by the names of its files: one
// of each kind, and the answers that differ.
std::map<std::string, std::vector<std::uint8_t>> Seeds() {
  std::map<std::string, std::vector<std::uint8_t>> seeds;
  for (int k = 1; k <= static_cast<int>(kLastKind); ++k) {
    const Kind kind = static_cast<Kind>(k);
    std::string name = InfoOf(kind).name;
    std::ranges::replace(name, ' ', '_');
    seeds[name] = Encode(FullRequest(kind));
  }
  seeds["answer_round"] = Encode(FullAnswer());
  Answer values;
  values.to = Kind::kUpdate;
  values.session = 5;
  values.id = 6;
  values.values = true;
  values.state.mode = ModeWord{}.Pack();
  seeds["answer_update"] = Encode(values);
  return seeds;
}

// After a change of what messages say:  PASSEL_WRITE_SEEDS=1 build/release/bin/wire_test
//   --gtest_filter=Wire.TheSeedsOfTheFuzzerAreWhatThisVersionSays
TEST(Wire, TheSeedsOfTheFuzzerAreWhatThisVersionSays) {
  const std::filesystem::path folder = PASSEL_SOURCE_DIR "/tests/fuzz/corpus/wire";
  const auto seeds = Seeds();
  if (std::getenv("PASSEL_WRITE_SEEDS") != nullptr) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::filesystem::remove(entry.path());
    }
    for (const auto& [name, bytes] : seeds) {
      std::ofstream(folder / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
  }
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    ++files;
    ASSERT_TRUE(seeds.contains(name));
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(bytes, seeds.at(name));
    EXPECT_TRUE(DecodeRequest(bytes).ok() || DecodeAnswer(bytes).ok()) << "the fuzzer gets past it";
  }
  EXPECT_EQ(files, seeds.size());
}

// Each in memory of its own size, so that a sanitizer sees a read behind the end.
template <typename Decode>
void DecodeMutations(const std::vector<std::uint8_t>& good, std::uint64_t seed, Decode&& decode) {
  Random random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::size_t size = good.size();
    if (random.Below(3) == 0) size = random.Below(good.size() + 1);
    const auto bytes = std::make_unique<std::uint8_t[]>(size);
    std::copy_n(good.begin(), size, bytes.get());
    for (std::uint64_t n = random.Below(6); n > 0 && size > 0; --n) {
      // Sizes and kinds lie in front: most changes are there.
      const std::size_t at =
          random.Below(random.Below(2) == 0 ? std::min<std::size_t>(size, 40) : size);
      bytes[at] = random.Below(4) == 0 ? 0xff : static_cast<std::uint8_t>(random.Next());
    }
    decode(std::span<const std::uint8_t>(bytes.get(), size));
  }
}

TEST(Wire, NoMutationOfAMessageReadsBeyondItOrIsTakenForSomethingElse) {
  int taken = 0;
  const auto request = [&](std::span<const std::uint8_t> bytes) {
    const Result<Request> got = DecodeRequest(bytes);
    // What passes is something that a worker may say.
    if (got.ok()) {
      ++taken;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), Encode(*got).begin()));
    }
  };
  const auto answer = [&](std::span<const std::uint8_t> bytes) {
    const Result<Answer> got = DecodeAnswer(bytes);
    if (got.ok()) ++taken;
  };
  for (const Kind kind : {Kind::kHello, Kind::kRestore, Kind::kApplyRound, Kind::kUpdate}) {
    DecodeMutations(Encode(FullRequest(kind)), static_cast<std::uint64_t>(kind), request);
  }
  DecodeMutations(Encode(FullAnswer()), 99, answer);
  EXPECT_GT(taken, 1000) << "most changes are of numbers that may be anything";
}

// A hostile length in each place of `message`: refused, or something that is no longer than it.
template <typename Decode>
void PutHostileLengths(const std::vector<std::uint8_t>& message, Decode decode, int* put) {
  for (const std::size_t width : {2, 4, 8}) {
    for (std::size_t at = 0; at + width <= message.size(); ++at) {
      for (const std::uint64_t length : testing::HostileLengths(message.size())) {
        std::vector<std::uint8_t> bytes = message;
        for (std::size_t i = 0; i < width; ++i) {
          bytes[at + i] = static_cast<std::uint8_t>(length >> (8 * i));
        }
        const auto got = decode(bytes);
        ++*put;
        if (got.ok()) {
          EXPECT_LE(Encode(*got).size(), bytes.size()) << at << ' ' << length;
        }
      }
    }
  }
}

bool HostileMessagesAreRefused() {
  int put = 0;
  for (int k = 1; k <= static_cast<int>(kLastKind); ++k) {
    PutHostileLengths(Encode(FullRequest(static_cast<Kind>(k))), DecodeRequest, &put);
  }
  PutHostileLengths(Encode(FullAnswer()), DecodeAnswer, &put);
  return put > 10'000 && !::testing::Test::HasFailure();
}

TEST(Wire, HostileLengthsAskForNoMemory) {
  testing::ExpectTrueWithLittleMemory(HostileMessagesAreRefused);
}

}  // namespace
}  // namespace passel::fabric
