// Who gets in: whoever knows the job token, in the role and the place that are his.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>

#include "store/membership.h"
#include "tests/unit/shm/ps_thread.h"

namespace passel::shm::testing {
namespace {

using ::testing::HasSubstr;

TEST(HandshakeTest, HonestWorkerGetsIn) {
  PsThread ps;
  const Result<RendezvousClient> client = ps.Connect();
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_EQ(client->server_pid(), ::getpid());
}

TEST(HandshakeTest, ClientDoesNotTrustAServerWithAnotherToken) {
  PsThread ps;
  const JobToken other = JobToken::Generate();
  const Result<RendezvousClient> client =
      RendezvousClient::Connect(ps.Me(), Role::kPs, 0, &other, Soon());
  ASSERT_EQ(client.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(client.status().message(), HasSubstr("--token_file"));
}

TEST(HandshakeTest, TokenOfAnotherJobIsNoTokenOfThisOne) {
  PsThread ps;
  RawConnection raw(ps);
  const nlohmann::json hello = Hello();
  ASSERT_TRUE(raw.Send(hello.dump()));
  const auto challenge = raw.Receive();
  ASSERT_TRUE(challenge);
  const std::string transcript = hello.dump() + challenge->at("nonce").get<std::string>();
  raw.Send(nlohmann::json{
      {"proof", MakeProof(ps.token(), ps.job() + "x", ProofSide::kClient, transcript)}}
               .dump());
  EXPECT_EQ(raw.ReceiveRefusal(), Code::kPermissionDenied);
}

// Says hello, then what `forge` makes of the right proof. OK: got in.
std::optional<Code> TryProof(const PsThread& ps,
                             const std::function<std::string(std::string)>& forge) {
  RawConnection raw(ps);
  const nlohmann::json hello = Hello();
  EXPECT_TRUE(raw.Send(hello.dump()));
  const auto challenge = raw.Receive();
  if (!challenge) return Code::kUnavailable;
  const std::string transcript = hello.dump() + challenge->at("nonce").get<std::string>();
  EXPECT_TRUE(raw.Send(nlohmann::json{
      {"proof", forge(MakeProof(ps.token(), ps.job(), ProofSide::kClient, transcript))}}
                           .dump()));
  const auto answer = raw.Receive();
  if (answer && answer->contains("ok")) return Code::kOk;
  return answer ? std::optional(static_cast<Code>((*answer)["error"].get<int>())) : std::nullopt;
}

TEST(HandshakeTest, EveryBitOfTheProofCounts) {
  PsThread ps;
  ASSERT_EQ(TryProof(ps, [](std::string p) { return p; }), Code::kOk);
  for (std::size_t bit = 0; bit < 256; ++bit) {
    const auto flip = [bit](std::string proof) {
      const std::string digits = "0123456789abcdef";
      char& c = proof[bit / 4];
      c = digits[digits.find(c) ^ (1u << (bit % 4))];
      return proof;
    };
    ASSERT_EQ(TryProof(ps, flip), Code::kPermissionDenied) << bit;
  }
}

TEST(HandshakeTest, ProofOfAnyOtherLengthIsRefused) {
  PsThread ps;
  for (std::size_t length = 0; length < 64; ++length) {
    ASSERT_EQ(TryProof(ps, [length](const std::string& p) { return p.substr(0, length); }),
              Code::kPermissionDenied);
  }
  EXPECT_EQ(TryProof(ps, [](const std::string& p) { return p + "00"; }), Code::kPermissionDenied);
  EXPECT_EQ(TryProof(ps, [](const std::string& p) { return " " + p; }), Code::kPermissionDenied);
  EXPECT_EQ(TryProof(ps, [](const std::string&) { return std::string(64, 'g'); }),
            Code::kPermissionDenied);
}

TEST(HandshakeTest, ReplayedConversationIsRefused) {
  PsThread ps;
  const std::string hello = Hello().dump();
  std::string proof;
  {
    RawConnection first(ps);
    ASSERT_TRUE(first.Send(hello));
    const auto challenge = first.Receive();
    ASSERT_TRUE(challenge);
    proof = nlohmann::json{{"proof", MakeProof(ps.token(), ps.job(), ProofSide::kClient,
                                               hello + challenge->at("nonce").get<std::string>())}}
                .dump();
    ASSERT_TRUE(first.Send(proof));
    ASSERT_TRUE(first.Receive()->contains("ok"));
  }
  RawConnection second(ps);
  ASSERT_TRUE(second.Send(hello));
  ASSERT_TRUE(second.Receive());
  ASSERT_TRUE(second.Send(proof));
  EXPECT_EQ(second.ReceiveRefusal(), Code::kPermissionDenied);
}

TEST(HandshakeTest, ReflectedProofIsRefused) {
  PsThread ps;
  RawConnection raw(ps);
  ASSERT_TRUE(raw.Send(Hello().dump()));
  const auto challenge = raw.Receive();
  ASSERT_TRUE(challenge);
  raw.Send(nlohmann::json{{"proof", challenge->at("proof")}}.dump());
  EXPECT_EQ(raw.ReceiveRefusal(), Code::kPermissionDenied);
}

TEST(HandshakeTest, NoncesAreNeverTheSame) {
  PsThread ps;
  const std::string hello = Hello().dump();
  std::set<std::string> nonces;
  for (int i = 0; i < 100; ++i) {
    RawConnection raw(ps);
    ASSERT_TRUE(raw.Send(hello));
    nonces.insert(raw.Receive()->at("nonce").get<std::string>());
  }
  EXPECT_EQ(nonces.size(), 100u);
}

TEST(HandshakeTest, AnotherBuildIsNamed) {
  PsThread ps;
  for (const char* field : {"structure", "layout"}) {
    RawConnection raw(ps);
    nlohmann::json hello = Hello();
    hello[field] = hello[field].get<std::uint64_t>() ^ 1;
    ASSERT_TRUE(raw.Send(hello.dump()));
    const auto answer = raw.Receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ((*answer)["error"], static_cast<int>(Code::kFailedPrecondition));
    EXPECT_THAT(answer->at("message").get<std::string>(), HasSubstr("another build of passel"));
    EXPECT_THAT(answer->at("message").get<std::string>(), HasSubstr("same build"));
  }
}

TEST(HandshakeTest, OtherHostListsAreNamed) {
  PsThread ps;
  Introduction me = ps.Me();
  ++me.cluster_hash;
  const Result<RendezvousClient> client =
      RendezvousClient::Connect(me, Role::kPs, 0, &ps.token(), Soon());
  ASSERT_EQ(client.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(client.status().message(), HasSubstr("--ps_hosts and --worker_hosts"));
}

StorePlan SmallPlan() {
  StorePlan plan;
  plan.num_workers = kWorkers;
  VariableInfo variable;
  variable.name = variable.logical = "w";
  variable.shape = {40};
  plan.variables = *VariableTable::Build({variable}, 1);
  return plan;
}

TEST(HandshakeTest, EvaluatorGetsAReadOnlyArenaAndMayChangeNothing) {
  PsThread ps;
  Result<RendezvousClient> evaluator = ps.Connect(Role::kEvaluator);
  ASSERT_TRUE(evaluator.ok()) << evaluator.status().message();
  bool need_plan = false;
  // Nobody asks it for a plan, and it may not give one.
  Result<std::optional<FileDescriptor>> none = evaluator->GetArena(false, Soon(), &need_plan);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  EXPECT_FALSE(need_plan);
  EXPECT_EQ(evaluator->ProposePlan(ToJson(SmallPlan()), Soon()).status().code(),
            Code::kPermissionDenied);
  EXPECT_EQ(evaluator->SayHere(Soon()).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(evaluator->SayKept(Soon()).code(), Code::kPermissionDenied);
  EXPECT_EQ(evaluator->OfferData("digits", 0, Soon()).code(), Code::kPermissionDenied);

  Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
  ASSERT_TRUE(chief.ok());
  ASSERT_TRUE(chief->ProposePlan(ToJson(SmallPlan()), Soon()).ok());
  Result<std::optional<FileDescriptor>> fd = evaluator->GetArena(true, Soon(), &need_plan);
  ASSERT_TRUE(fd.ok() && fd->has_value()) << fd.status().message();
  EXPECT_EQ(::fcntl((*fd)->get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (*fd)->get(), 0), MAP_FAILED);
  EXPECT_FALSE(Arena::Adopt(FileDescriptor(::dup((*fd)->get()))).ok());
  const Result<Arena> arena = Arena::Adopt(std::move(**fd), Arena::Access::kRead);
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  EXPECT_EQ(arena->plan().Hash(), SmallPlan().Hash());
  EXPECT_EQ(arena->memory().state->initialized.load(), 0u);
  // A worker's is writable, and the evaluator is no worker: who holds its place is not asked.
  Result<std::optional<FileDescriptor>> writable = chief->GetArena(true, Soon(), &need_plan);
  ASSERT_TRUE(writable.ok() && writable->has_value());
  EXPECT_EQ(::fcntl((*writable)->get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST(HandshakeTest, WorkerThatDoesNotExistIsRefused) {
  PsThread ps;
  const Result<RendezvousClient> client = ps.Connect(Role::kWorker, kWorkers);
  ASSERT_EQ(client.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(client.status().message(), HasSubstr("has 2 workers"));
}

TEST(HandshakeTest, SecondProcessOfTheSameIdentityIsRefusedWhileTheFirstLives) {
  PsThread ps;
  const Result<RendezvousClient> first = ps.Connect(Role::kWorker, 1);
  ASSERT_TRUE(first.ok());
  const pid_t other = ::fork();
  if (other == 0) {
    ::_exit(static_cast<int>(ps.Connect(Role::kWorker, 1).status().code()));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Code::kAlreadyExists));
}

TEST(HandshakeTest, ControlConnectionMayAskForStatusAndStopOnly) {
  PsThread ps;
  for (const char* request :
       {R"({"ask":"arena","wait":false})", R"({"ask":"get_data","key":"x"})", R"({"ask":"plan"})",
        R"({"ask":"kept"})", R"({"ask":"here"})", R"({"ask":"offer_data","key":"x"})",
        R"({"ask":"tell_data","about":{}})"}) {
    RawConnection raw(ps);
    ASSERT_TRUE(raw.Send(Hello(Role::kControl).dump()));
    ASSERT_TRUE(raw.Receive()->contains("ok"));
    ASSERT_TRUE(raw.Send(R"({"ask":"status"})"));
    EXPECT_TRUE(raw.Receive()->contains("ok"));
    ASSERT_TRUE(raw.Send(request));
    const auto answer = raw.Receive();
    ASSERT_TRUE(answer) << request;
    EXPECT_EQ(answer->value("error", 0), static_cast<int>(Code::kPermissionDenied)) << request;
  }
}

TEST(HandshakeTest, RequestsBeforeTheProofAreRefused) {
  PsThread ps;
  for (const char* request : {R"({"ask":"arena","wait":false})", R"({"ask":"status"})",
                              R"({"ask":"stop"})", R"({"ok":true})"}) {
    RawConnection before_hello(ps);
    before_hello.Send(request);
    EXPECT_TRUE(before_hello.ReceiveRefusal().has_value()) << request;
    RawConnection after_hello(ps);
    ASSERT_TRUE(after_hello.Send(Hello().dump()));
    ASSERT_TRUE(after_hello.Receive());
    after_hello.Send(request);
    EXPECT_EQ(after_hello.ReceiveRefusal(), Code::kPermissionDenied) << request;
  }
}

TEST(HandshakeTest, OnlyTheChiefProposesAPlanAndOnlyTheSupervisorKeepsTheArena) {
  PsThread ps(/*supervised=*/true);
  Result<RendezvousClient> worker = ps.Connect(Role::kWorker, 1);
  ASSERT_TRUE(worker.ok());
  EXPECT_EQ(worker->ProposePlan("{}", Soon()).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(worker->SayKept(Soon()).code(), Code::kPermissionDenied);
}

TEST(HandshakeTest, ArenaIsHandedOutAlthoughItWasKeptBeforeItWasThere) {
  PsThread ps;
  Result<RendezvousClient> supervisor = ps.Connect(Role::kSupervisor);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status().message();
  EXPECT_TRUE(supervisor->SayKept(Soon()).ok());
  Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
  ASSERT_TRUE(chief.ok());
  const Result<FileDescriptor> arena =
      chief->ProposePlan(ToJson(SmallPlan()), Deadline::After(std::chrono::seconds(2)));
  EXPECT_TRUE(arena.ok()) << arena.status().message();
}

TEST(HandshakeTest, OnlyAPsSaysThatItIsHereAndAPsDoesNotListenToIt) {
  PsThread ps;
  for (const Role role : {Role::kWorker, Role::kSupervisor, Role::kEvaluator}) {
    Result<RendezvousClient> client = ps.Connect(role, 0);
    ASSERT_TRUE(client.ok());
    EXPECT_EQ(client->SayHere(Soon()).status().code(), Code::kPermissionDenied);
  }
  Result<RendezvousClient> client = ps.Connect(Role::kPs, 1);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->SayHere(Soon()).status().code(), Code::kFailedPrecondition);
}

// A connection that ends is the sign that its process has died.
TEST(HandshakeTest, HelloOfALiveWorkerFromAnotherProcessFencesNobody) {
  PsThread ps;
  Result<RendezvousClient> chief = ps.Connect(Role::kWorker, 0);
  ASSERT_TRUE(chief.ok());
  Result<FileDescriptor> fd = chief->ProposePlan(ToJson(SmallPlan()), Soon());
  ASSERT_TRUE(fd.ok()) << fd.status().message();
  const Result<Arena> arena = Arena::Adopt(std::move(*fd));
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  const pid_t worker = ::fork();
  if (worker == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessIdentity who = IdentityOf(worker);
  ASSERT_TRUE(Join(arena->memory(), 1, who).ok());
  {
    RawConnection raw(ps);
    nlohmann::json hello = Hello(Role::kWorker, 1);
    hello["pid"] = who.pid;
    hello["start_time"] = who.start_time;
    ASSERT_TRUE(raw.Send(hello.dump()));
    const auto answer = raw.Receive();
    ASSERT_TRUE(answer);
    if (answer->contains("nonce")) {
      const std::string said = hello.dump() + answer->at("nonce").get<std::string>();
      raw.Send(nlohmann::json{{"proof", MakeProof(ps.token(), ps.job(), ProofSide::kClient, said)}}
                   .dump());
      raw.Receive();
    }
  }
  EXPECT_TRUE(ps.Serves());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(StateOf(arena->memory(), 1).phase, Phase::kRunning);
  ::kill(worker, SIGKILL);
  ::waitpid(worker, nullptr, 0);
}

}  // namespace
}  // namespace passel::shm::testing
