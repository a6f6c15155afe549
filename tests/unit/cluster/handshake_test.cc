// Who is believed to be whom, without any carrier. What goes over sockets: tests/unit/rendezvous.

#include "cluster/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace passel {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr MemoryFormat kFormat{7, 0x1234};

class HandshakeTextsTest : public ::testing::Test {
 protected:
  HandshakeTextsTest() { peer_.pid = ::getpid(); }

  const JobToken token_ = JobToken::Generate();
  const Introduction server_ = {"job", Role::kPs, 0, 99};
  const Introduction worker_ = {"job", Role::kWorker, 3, 99};
  const ServerHandshake door_{token_, server_, kFormat};
  Peer peer_;
  std::string transcript_;
};

TEST_F(HandshakeTextsTest, ThreeTextsProveBothSides) {
  const ClientHandshake client(worker_, kFormat);
  const Result<std::string> challenge = door_.Challenge(client.hello(), &peer_, &transcript_);
  ASSERT_TRUE(challenge.ok()) << challenge.status().message();
  EXPECT_EQ(NameOf(peer_), "worker/3");
  EXPECT_EQ(peer_.identity, SelfIdentity());
  const Result<std::string> answer = client.Answer(*challenge, token_, "ps/0");
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_TRUE(door_.CheckAnswer(*answer, transcript_).ok());
  EXPECT_EQ(door_.CheckAnswer(*challenge, transcript_).code(), Code::kPermissionDenied)
      << "the server's own proof";
  EXPECT_EQ(door_.CheckAnswer(*answer, transcript_ + "x").code(), Code::kPermissionDenied);
}

TEST_F(HandshakeTextsTest, ServerWithAnotherTokenIsNamed) {
  const ClientHandshake client(worker_, kFormat);
  const Result<std::string> challenge = door_.Challenge(client.hello(), &peer_, &transcript_);
  ASSERT_TRUE(challenge.ok());
  const Status refused = client.Answer(*challenge, JobToken::Generate(), "ps/0 of job j").status();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("ps/0 of job j has another job token"));
}

TEST_F(HandshakeTextsTest, ControlIsAskedForNoProof) {
  const ClientHandshake client({.job_id = "job", .role = Role::kControl}, kFormat);
  const Result<std::string> challenge = door_.Challenge(client.hello(), &peer_, &transcript_);
  ASSERT_TRUE(challenge.ok());
  EXPECT_EQ(Json::parse(*challenge), Json({{"ok", true}}));
  EXPECT_EQ(peer_.role, Role::kControl);
  EXPECT_EQ(transcript_, "");
}

TEST_F(HandshakeTextsTest, WhatDoesNotFitIsRefused) {
  const Json hello = Json::parse(ClientHandshake(worker_, kFormat).hello());
  const auto code = [&](const char* key, const Json& value) {
    Json changed = hello;
    changed[key] = value;
    return door_.Challenge(changed.dump(), &peer_, &transcript_).status().code();
  };
  EXPECT_EQ(code("nonce", "another"), Code::kOk);
  EXPECT_EQ(code("hello", kProtocolVersion + 1), Code::kDataLoss);
  EXPECT_EQ(code("role", "cook"), Code::kDataLoss);
  EXPECT_EQ(code("index", -1), Code::kDataLoss);
  EXPECT_EQ(code("pid", ::getpid() + 1), Code::kPermissionDenied);
  EXPECT_EQ(code("layout", 8), Code::kFailedPrecondition);
  EXPECT_EQ(code("structure", 1), Code::kFailedPrecondition);
  EXPECT_EQ(code("clocks", "of another time"), Code::kFailedPrecondition);
  EXPECT_EQ(code("cluster", 98), Code::kFailedPrecondition);
  // What is of another type does not count as absent, and what a newer build says more does.
  for (const char* key : {"pid", "start_time", "pid_namespace", "clocks", "nonce"}) {
    EXPECT_EQ(code(key, Json::array()), Code::kDataLoss) << key;
  }
  EXPECT_EQ(code("more", 1), Code::kOk);
  // A key that comes twice could mean one thing to who checks it and another to who uses it.
  std::string twice = hello.dump();
  twice.insert(1, R"("role":"control",)");
  EXPECT_EQ(door_.Challenge(twice, &peer_, &transcript_).status().code(), Code::kDataLoss);
}

TEST_F(HandshakeTextsTest, ProofOfAnotherTypeIsRefused) {
  EXPECT_EQ(door_.CheckAnswer(R"({"proof":7})", "").code(), Code::kDataLoss);
  EXPECT_EQ(door_.CheckAnswer(R"({"proof":"a","proof":"b"})", "").code(), Code::kDataLoss);
  EXPECT_EQ(door_.CheckAnswer(R"({"proof":"a"}x)", "").code(), Code::kDataLoss);
  const ClientHandshake client(worker_, kFormat);
  EXPECT_EQ(client.Answer(R"({"nonce":"a","proof":[]})", token_, "ps/0").status().code(),
            Code::kDataLoss);
}

}  // namespace
}  // namespace passel
