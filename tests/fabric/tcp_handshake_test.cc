// Who is let in, byte by byte and without sockets: the handshake between hosts, the frames behind
// it, and the table of what two tasks may differ in.

#include "fabric/control/tcp_handshake.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <functional>
#include <set>

#include "fabric/control/frames.h"
#include "fabric/control/task_facts.h"

namespace passel::fabric {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kJob = "job-1";

DoorKey KeyOf(const JobToken& token) { return {.token = token}; }
const DoorKey kOpen = {.token = {}, .insecure_no_auth = true};

/// What became of one handshake: each side has its keys, or a reason.
struct Met {
  Status client, server;
  StreamKeys client_keys, server_keys;
  Claim claim;
  bool ok() const { return client.ok() && server.ok(); }
};

using Change = std::function<void(HelloBytes&, AnswerBytes&, KeyedHash&)>;

/// The three messages, each passing through the hands of `on_the_way`: called before each is
/// delivered, with those that are there.
Met Meet(const DoorKey& client_key, const DoorKey& server_key, const Claim& claim = {kJob},
         const Change& at_hello = {}, const Change& at_answer = {}, const Change& at_proof = {}) {
  Met met;
  const TcpClientHandshake client(client_key, claim);
  TcpServerHandshake server(server_key, kJob);
  HelloBytes hello = client.hello();
  AnswerBytes answer{};
  KeyedHash proof{};
  if (at_hello) at_hello(hello, answer, proof);
  answer = server.Answer(hello, &met.server);
  if (at_answer) at_answer(hello, answer, proof);
  const Result<KeyedHash> proved = client.Prove(answer, &met.client_keys);
  met.client = proved.status();
  if (proved.ok()) proof = *proved;
  if (at_proof) at_proof(hello, answer, proof);
  if (met.server.ok()) met.server = server.Check(proof, &met.server_keys);
  met.claim = server.claim();
  return met;
}

class TcpHandshake : public ::testing::Test {
 protected:
  const JobToken token_ = JobToken::Generate();
  const DoorKey key_ = KeyOf(token_);
};

TEST_F(TcpHandshake, ThreeMessagesProveBothSidesAndGiveKeys) {
  const Met met = Meet(key_, key_, {kJob, Role::kWorker, 7});
  ASSERT_TRUE(met.ok()) << met.client.message() << met.server.message();
  EXPECT_EQ(met.claim.role, Role::kWorker);
  EXPECT_EQ(met.claim.index, 7);
  EXPECT_EQ(met.client_keys.send, met.server_keys.receive);
  EXPECT_EQ(met.client_keys.receive, met.server_keys.send);
  EXPECT_NE(met.client_keys.send, met.client_keys.receive);
  const Met again = Meet(key_, key_);
  EXPECT_NE(again.client_keys.send, met.client_keys.send) << "keys are fresh";
}

TEST_F(TcpHandshake, OtherTokensAndJobsAreRefusedInOneSentence) {
  const Met other = Meet(KeyOf(JobToken::Generate()), key_);
  EXPECT_EQ(other.client.code(), Code::kPermissionDenied);
  EXPECT_THAT(other.client.message(), HasSubstr("has another job token"));
  EXPECT_FALSE(other.server.ok());
  const Met job = Meet(key_, key_, {"job-2"});
  EXPECT_THAT(job.client.message(), AllOf(HasSubstr("it refuses this task"), HasSubstr("job-2")));
  EXPECT_FALSE(job.server.ok());
  // A token that is used for two jobs still tells them apart.
  const Met renamed =
      Meet(key_, key_, {"job-2"}, [](HelloBytes& hello, auto&, auto&) { hello[20] = '1'; });
  EXPECT_FALSE(renamed.client.ok());
  EXPECT_FALSE(renamed.server.ok());
}

TEST_F(TcpHandshake, WithoutTokenBothMustWantIt) {
  EXPECT_EQ(DoorKey{}.Check().code(), Code::kInvalidArgument);
  EXPECT_THAT(DoorKey{}.Check().message(), HasSubstr("--token_file"));
  EXPECT_TRUE(Meet(kOpen, kOpen).ok());
  EXPECT_FALSE(Meet(kOpen, key_).client.ok());
  EXPECT_FALSE(Meet(kOpen, key_).server.ok());
  EXPECT_FALSE(Meet(key_, kOpen).client.ok());
  EXPECT_FALSE(Meet(key_, kOpen).server.ok());
  // Nobody on the way can say it for them.
  const auto open = [](HelloBytes& hello, AnswerBytes&, KeyedHash&) { hello[7] ^= 1; };
  const auto answer = [](HelloBytes&, AnswerBytes& said, KeyedHash&) { said[7] ^= 1; };
  EXPECT_FALSE(Meet(key_, kOpen, {kJob}, open).client.ok());
  EXPECT_FALSE(Meet(key_, kOpen, {kJob}, open, answer).client.ok());
  EXPECT_FALSE(Meet(kOpen, key_, {kJob}, open).server.ok());
  EXPECT_FALSE(Meet(key_, key_, {kJob}, {}, answer).client.ok());
}

// Each of these, and the connection ends without keys on the side that was lied to.
TEST_F(TcpHandshake, HundredsOfBadSessionsAllEnd) {
  int sessions = 0;
  const auto refused = [&](const Met& met, bool client, const std::string& what) {
    ++sessions;
    EXPECT_FALSE(met.server.ok()) << what;
    EXPECT_FALSE(client && met.client.ok()) << what;
  };
  const auto flip = [](auto& message, std::size_t bit) {
    message[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  };
  for (std::size_t bit = 0; bit < 256; ++bit) {
    refused(Meet(key_, key_, {kJob}, {}, {}, [&](auto&, auto&, auto& proof) { flip(proof, bit); }),
            false, "proof of the client");
  }
  // The proof of the server: the client sends none.
  for (std::size_t bit = 0; bit < 256; ++bit) {
    refused(Meet(key_, key_, {kJob}, {},
                 [&](auto&, auto& answer, auto&) { flip(answer, 8 * 40 + bit); }),
            true, "proof of the server");
  }
  // Every bit of the hello: magic, version, role, index, job, key.
  for (std::size_t bit = 0; bit < 8 * kHelloBytes; ++bit) {
    refused(Meet(key_, key_, {kJob}, [&](auto& hello, auto&, auto&) { flip(hello, bit); }), true,
            "hello");
  }
  for (std::size_t bit = 0; bit < 8 * 40; ++bit) {
    refused(Meet(key_, key_, {kJob}, {}, [&](auto&, auto& answer, auto&) { flip(answer, bit); }),
            true, "answer");
  }
  EXPECT_GE(sessions, 600);
}

TEST_F(TcpHandshake, ReflectionReplayAndEscalationEnd) {
  // The server's own proof comes back to it.
  EXPECT_FALSE(Meet(key_, key_, {kJob}, {}, {}, [](auto&, AnswerBytes& answer, KeyedHash& proof) {
                 std::copy_n(answer.begin() + 40, proof.size(), proof.begin());
               }).server.ok());
  // What was recorded of an honest session, said again.
  HelloBytes hello;
  AnswerBytes answer;
  KeyedHash proof;
  ASSERT_TRUE(Meet(key_, key_, {kJob}, {}, {}, [&](auto& h, auto& a, auto& p) {
                hello = h;
                answer = a;
                proof = p;
              }).ok());
  TcpServerHandshake server(key_, kJob);
  Status status;
  StreamKeys keys;
  const AnswerBytes fresh = server.Answer(hello, &status);
  EXPECT_TRUE(status.ok());
  EXPECT_NE(fresh, answer);
  EXPECT_FALSE(server.Check(proof, &keys).ok()) << "replayed proof";
  const TcpClientHandshake client(key_, {kJob});
  EXPECT_FALSE(client.Prove(answer, &keys).ok()) << "replayed answer";
  // A proof before the hello.
  EXPECT_FALSE(TcpServerHandshake(key_, kJob).Check(proof, &keys).ok());
  // A worker that is made a ps on the way.
  EXPECT_FALSE(Meet(key_, key_, {kJob}, [](HelloBytes& h, auto&, auto&) {
                 h[6] = static_cast<std::uint8_t>(Role::kPs);
               }).server.ok());
  // Public keys of few points, whose secret everybody knows.
  EXPECT_FALSE(Meet(key_, key_, {kJob}, [](HelloBytes& h, auto&, auto&) {
                 std::fill(h.begin() + 64, h.end(), 0);
               }).server.ok());
}

TEST_F(TcpHandshake, OtherVersionIsToldToTheClient) {
  const Met met = Meet(key_, key_, {kJob}, {}, [](auto&, AnswerBytes& a, auto&) { a[4] = 99; });
  EXPECT_EQ(met.client.code(), Code::kFailedPrecondition);
  EXPECT_THAT(met.client.message(), AllOf(HasSubstr("version 99"),
                                          HasSubstr(fmt::format("version {}", kControlVersion))));
  const Met alien = Meet(key_, key_, {kJob}, {}, [](auto&, AnswerBytes& a, auto&) { a[0] = 'H'; });
  EXPECT_THAT(alien.client.message(), HasSubstr("no task of passel"));
}

TEST_F(TcpHandshake, RefusalSaysNothingElse) {
  Status status;
  std::set<AnswerBytes> answers;
  for (const auto& spoil : std::vector<std::function<void(HelloBytes&)>>{
           [](HelloBytes& h) { h[0] = 'X'; }, [](HelloBytes& h) { h[4] = 9; },
           [](HelloBytes& h) { h[16] = 'x'; }, [](HelloBytes& h) { h[7] = 1; },
           [](HelloBytes& h) { h[6] = 200; }}) {
    HelloBytes hello = TcpClientHandshake(key_, {kJob}).hello();
    spoil(hello);
    answers.insert(TcpServerHandshake(key_, kJob).Answer(hello, &status));
    EXPECT_FALSE(status.ok());
  }
  EXPECT_EQ(answers.size(), 1u);
}

// --- Frames -------------------------------------------------------------------------------------

std::vector<std::uint8_t> Bytes(std::size_t count, std::uint8_t first = 0) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(first + i);
  return bytes;
}

void Feed(FrameOpener& opener, std::span<const std::uint8_t> bytes) {
  const std::span<std::uint8_t> room = opener.Room();
  ASSERT_GE(room.size(), bytes.size());
  std::ranges::copy(bytes, room.begin());
  opener.Filled(bytes.size());
}

class Frames : public ::testing::Test {
 protected:
  std::vector<std::uint8_t> Seal(FrameKind kind, std::span<const std::uint8_t> payload) {
    std::vector<std::uint8_t> out;
    sealer_.Seal(kind, payload, {}, &out);
    return out;
  }
  const KeyedHash key_ = HashWith(JobToken::Generate(), kJob, "frames");
  FrameSealer sealer_{key_};
  FrameOpener opener_{key_};
};

TEST_F(Frames, ComeOutAsTheyWentInWhereverTheyAreSplit) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{300}}) {
    const std::vector<std::uint8_t> payload = Bytes(size);
    const std::vector<std::uint8_t> sealed = Seal(FrameKind::kText, payload);
    EXPECT_EQ(sealed.size(), size + kFrameOverhead);
    for (const std::uint8_t byte : sealed) {
      const auto before = opener_.Next();
      ASSERT_TRUE(before.ok());
      EXPECT_FALSE(before->has_value());
      Feed(opener_, {&byte, 1});
    }
    const auto frame = opener_.Next();
    ASSERT_TRUE(frame.ok() && frame->has_value());
    EXPECT_EQ((*frame)->kind, FrameKind::kText);
    EXPECT_TRUE(std::ranges::equal((*frame)->payload, payload));
    EXPECT_FALSE(opener_.partial());
  }
}

// By another library, with the nonce that the header says: no two frames have the same one.
TEST_F(Frames, AreThoseOfTheStandardUnderTheirNumbers) {
  for (std::uint8_t number = 0; number < 3; ++number) {
    const std::vector<std::uint8_t> payload = Bytes(100);
    const std::vector<std::uint8_t> sealed = Seal(FrameKind::kBulk, payload);
    std::vector<std::uint8_t> plain = {static_cast<std::uint8_t>(FrameKind::kBulk)};
    plain.insert(plain.end(), payload.begin(), payload.end());
    const std::array<std::uint8_t, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> nonce = {number};
    std::vector<std::uint8_t> expected(plain.size() + kSealBytes);
    crypto_aead_chacha20poly1305_ietf_encrypt(expected.data(), nullptr, plain.data(), plain.size(),
                                              sealed.data(), 4, nullptr, nonce.data(), key_.data());
    EXPECT_TRUE(std::ranges::equal(std::span(sealed).subspan(4), expected)) << int{number};
  }
}

TEST_F(Frames, LargestOnesAndManyAtOnce) {
  const std::vector<std::uint8_t> payload = Bytes(kMaxPayloadBytes);
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::uint8_t> sealed;
    for (int i = 0; i < 3; ++i) sealer_.Seal(FrameKind::kBulk, payload, {}, &sealed);
    Feed(opener_, sealed);
    for (int i = 0; i < 3; ++i) {
      const auto frame = opener_.Next();
      ASSERT_TRUE(frame.ok() && frame->has_value());
      EXPECT_TRUE(std::ranges::equal((*frame)->payload, payload));
    }
  }
}

TEST_F(Frames, EveryFlippedBitEndsTheConnection) {
  const std::vector<std::uint8_t> sealed = Seal(FrameKind::kText, Bytes(5));
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    FrameOpener opener(key_);
    std::vector<std::uint8_t> changed = sealed;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    // What a longer frame waits for.
    changed.resize(changed.size() + kMaxFrameBytes + 64);
    Feed(opener, changed);
    EXPECT_EQ(opener.Next().status().code(), Code::kDataLoss) << bit;
    EXPECT_FALSE(opener.Next().ok()) << "for good";
  }
}

TEST_F(Frames, RepeatedReorderedOrMissingOnesEndTheConnection) {
  const auto first = Seal(FrameKind::kText, Bytes(3, 1)),
             second = Seal(FrameKind::kText, Bytes(3, 9));
  FrameOpener repeated(key_), reordered(key_), other(HashWith(JobToken::Generate(), kJob, "x"));
  Feed(repeated, first);
  EXPECT_TRUE(repeated.Next().ok());
  Feed(repeated, first);
  EXPECT_FALSE(repeated.Next().ok());
  Feed(reordered, second);
  EXPECT_FALSE(reordered.Next().ok());
  Feed(other, first);
  EXPECT_FALSE(other.Next().ok());
}

TEST_F(Frames, HostileLengthsAreRefusedBeforeTheyAreWaitedFor) {
  for (const std::uint32_t length :
       {0U, static_cast<std::uint32_t>(kMaxFrameBytes + 1), 1U << 31, 0xffffffffU}) {
    FrameOpener opener(key_);
    std::array<std::uint8_t, 4> bytes;
    for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(length >> (8 * i));
    Feed(opener, bytes);
    const Status status = opener.Next().status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(length)));
  }
}

// --- What may differ ----------------------------------------------------------------------------

TaskFacts Ps() {
  TaskFacts facts;
  facts.job_id = kJob;
  facts.role = Role::kPs;
  facts.wire = 2;
  facts.cluster = 0x11;
  facts.plan = 0x22;
  facts.data = 0x33;
  facts.provider = "tcp";
  facts.build = "0.1.0";
  facts.processor = "avx2";
  return facts;
}
TaskFacts Worker() {
  TaskFacts facts = Ps();
  facts.role = Role::kWorker;
  facts.index = 3;
  return facts;
}

TEST(TaskFacts, WhatMayNotDifferIsRefusedWithBothValues) {
  EXPECT_TRUE(CheckFacts(Ps(), Worker()).ok());
  struct Case {
    std::function<void(TaskFacts&)> change;
    const char* here;
    const char* there;
  };
  const std::vector<Case> cases = {
      {[](TaskFacts& f) { f.job_id = "job-2"; }, "job-1", "job-2"},
      {[](TaskFacts& f) { f.wire = 9; }, "is 2", "is 9"},
      {[](TaskFacts& f) { f.cluster = 0x99; }, "0000000000000011", "0000000000000099"},
      {[](TaskFacts& f) { f.plan = 0x98; }, "0000000000000022", "0000000000000098"},
      {[](TaskFacts& f) { f.data = 0x97; }, "0000000000000033", "0000000000000097"},
      {[](TaskFacts& f) { f.provider = "verbs"; }, "is tcp", "is verbs"},
      {[](TaskFacts& f) { f.provider = ""; }, "is tcp", "is sealed TCP"},
  };
  for (const Case& c : cases) {
    TaskFacts worker = Worker();
    c.change(worker);
    const Status status = CheckFacts(Ps(), worker);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("worker/3"), HasSubstr("ps/0"), HasSubstr(c.here),
                                        HasSubstr(c.there), HasSubstr(": ")));
  }
}

TEST(TaskFacts, WhatIsNotKnownOrMayDifferIsFine) {
  TaskFacts worker = Worker();
  worker.plan = worker.data = 0;
  worker.build = "0.2.0";
  worker.processor = "avx512";
  EXPECT_TRUE(CheckFacts(Ps(), worker).ok());
  EXPECT_EQ(Differences(Ps(), worker),
            "build 0.2.0 (here 0.1.0), instruction set avx512 (here avx2)");
  EXPECT_EQ(Differences(Ps(), Worker()), "");
}

TEST(TaskFacts, AreReadAsTheyWereWritten) {
  TaskFacts facts = Worker();
  facts.purpose = Purpose::kPipe;
  facts.life = ~std::uint64_t{0};
  facts.address = {0, 1, 0xfe, 0xff};
  facts.tags = {1, ~std::uint64_t{0} - 1};
  const Result<TaskFacts> read = FactsFromJson(FactsJson(facts));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(FactsJson(*read).Write(), FactsJson(facts).Write());
  EXPECT_EQ(read->address, facts.address);
  EXPECT_EQ(read->tags, facts.tags);
  Json more = FactsJson(facts);
  more["of a newer build"] = 1;
  EXPECT_TRUE(FactsFromJson(more).ok());
  for (const char* name : {"job", "role", "index", "purpose", "address"}) {
    Json bad = FactsJson(facts);
    bad[name] = Json(Json::List{});
    EXPECT_EQ(FactsFromJson(bad).status().code(), Code::kDataLoss) << name;
  }
  Json odd = FactsJson(facts);
  odd["address"] = Json("abc");
  EXPECT_FALSE(FactsFromJson(odd).ok());
}

}  // namespace
}  // namespace passel::fabric
