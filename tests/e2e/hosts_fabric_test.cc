// Two hosts whose parameters travel by libfabric, and peers of another version.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "e2e/hosts_job.h"
#include "fabric/control/control_connection.h"
#include "fabric/control/control_server.h"
#include "fabric/wire.h"
#include "store/mode.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kTcp = {"--start_wait=20", "--fabric_provider=tcp;ofi_rxm"};
constexpr const char* kByLibfabric = "parameters travel by libfabric's tcp;ofi_rxm, in clear text";

class HostsFabricTest : public SeveralHostsTest {};

using SlowHostsFabricTest = HostsFabricTest;

// Whether a process has a TCP socket that listens on this port.
bool Listens(pid_t process, int port) {
  const std::string end = fmt::format(":{:04X} 00000000:0000 0A ", port);
  return ReadText(fmt::format("/proc/{}/net/tcp", process)).find(end) != std::string::npos;
}

void TrainOn(TwoHosts& hosts, std::initializer_list<std::string_view> modes) {
  for (const std::string_view mode : modes) {
    SCOPED_TRACE(mode);
    HostsJob job(hosts, 1, 2, {"worker/0", "worker/1"},
                 With(kTcp, {"--train_steps=60", fmt::format("--mode={}", mode)}));
    const std::string model = job.sandbox().dir().File("m");
    job.StartAll({"--save=" + model});
    job.ExpectEnd();
    EXPECT_THAT(job["worker/1"].Err(), HasSubstr(kByLibfabric));
    EXPECT_THAT(job["ps/0"].Err(), HasSubstr(kByLibfabric));
    EXPECT_EQ(job.sandbox().Eval(model), 0);
  }
}

TEST_F(HostsFabricTest, WorkersOfAnotherHostTrain) { TrainOn(*hosts_, {"hogwild", "barrier"}); }
TEST_F(SlowHostsFabricTest, WorkersOfAnotherHostTrainInTheOtherModesToo) {
  static_assert(std::size(kModes) == 5);
  TrainOn(*hosts_, {"locked", "ssp", "replicas"});
}

// A worker of the ps' host keeps the memory.
TEST_F(HostsFabricTest, KilledTasksAreReplacedAndFoundAgain) {
  HostsJob job =
      Job(1, 2, {"worker/1"},
          With(kTcp, {"--train_steps=100000000", "--mode=barrier", "--fabric_port=24100"}));
  job.StartAll();
  const auto begun = [&] { return job["worker/1"].WaitFor("Session initialization complete"); };
  const auto steps = [&] {
    return job.sandbox().Status()["arena"]["workers"][1]["local_steps"].get<int>();
  };
  const auto goes_on = [&] {
    const int now = steps();
    for (int i = 0; i < 1000 && steps() <= now; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return steps() > now;
  };
  ASSERT_TRUE(begun()) << job["worker/1"].Err();
  ASSERT_TRUE(goes_on());
  EXPECT_EQ(hosts_->watch().Look(), "");
  EXPECT_TRUE(Listens(job["ps/0"].pid(), 24100));
  EXPECT_TRUE(Listens(job["worker/1"].pid(), 24100));
  job.Kill("worker/1");
  EXPECT_TRUE(job.sandbox().Advances(20)) << "the others go on";
  EXPECT_TRUE(job["ps/0"].WaitFor("worker/1 is gone"));
  job.Start("worker/1");
  ASSERT_TRUE(begun()) << job["worker/1"].Err();
  EXPECT_TRUE(goes_on()) << job["worker/1"].Err();
  job.Kill("ps/0");
  EXPECT_TRUE(job["worker/1"].WaitFor("ps/0 at 10.77.0.1:2222 is gone", 2));
  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor("took the arena")) << job["ps/0"].Err();
  // Sooner than a pipe that stands still would end.
  const auto back = std::chrono::steady_clock::now();
  EXPECT_TRUE(goes_on()) << job["worker/1"].Err();
  EXPECT_LT(std::chrono::steady_clock::now() - back, Scaled(4.0));
  // What libraries did with signals when they were loaded is undone.
  job["worker/1"].Signal(SIGTERM);
  EXPECT_EQ(job.Finish("worker/1").code, 143);
  job["ps/0"].Signal(SIGINT);
  EXPECT_EQ(job.Finish("ps/0").code, 130);
  EXPECT_EQ(job.Finish("worker/0").code, 130);
  EXPECT_EQ(job.sandbox().Leftovers(), "");
}

// Seconds of a processor that it has used so far.
double ProcessorTime(pid_t process) {
  const std::string stat = ReadText(fmt::format("/proc/{}/stat", process));
  std::istringstream words(stat.substr(stat.rfind(')') + 1));
  std::string word;
  for (int i = 0; i < 11; ++i) words >> word;
  long user = 0, system = 0;
  words >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// For a ps that stands still. Over both pipes.
TEST_F(HostsFabricTest, AWorkerPollsOrSleepsAsItIsTold) {
  for (const bool sealed : {true, false}) {
    for (const char* spin : {"", "--fabric_spin_us=0", "--fabric_spin_us=1000000"}) {
      SCOPED_TRACE(std::string(sealed ? "sealed TCP " : "libfabric ") + spin);
      std::vector<std::string> flags = {"--start_wait=20", "--train_steps=100000000"};
      if (!sealed) flags.push_back("--fabric_provider=tcp;ofi_rxm");
      HostsJob job = Job(1, 1, {"worker/0"}, flags);
      job.Start("ps/0");
      job.Start("worker/0",
                *spin != 0 ? std::vector<std::string>{spin} : std::vector<std::string>{});
      ASSERT_TRUE(job["worker/0"].WaitFor("Session initialization complete"));
      ASSERT_TRUE(job.sandbox().Advances(20));
      job["ps/0"].Signal(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const double before = ProcessorTime(job["worker/0"].pid());
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const double used = ProcessorTime(job["worker/0"].pid()) - before;
      job["ps/0"].Signal(SIGCONT);
      if (std::string_view(spin).ends_with("1000000")) {
        EXPECT_GT(used, 0.1);
      } else {
        EXPECT_LT(used, 0.1);
      }
      EXPECT_TRUE(job.sandbox().Advances(20));
      job["worker/0"].Signal(SIGTERM);
      EXPECT_EQ(job.Finish("worker/0").code, 143);
      job["ps/0"].Signal(SIGINT);
      EXPECT_EQ(job.Finish("ps/0").code, 130);
    }
  }
}

TEST_F(HostsFabricTest, WhatIsWrongIsSaidInOneSentence) {
  HostsJob job = Job(1, 1, {"worker/0"}, {"--start_wait=20", "--train_steps=60"});
  const auto error = [&](std::vector<std::string> flags) {
    job.Start("ps/0", flags);
    return job.OnlyErrorOf("ps/0");
  };
  EXPECT_THAT(error({"--fabric_provider=nosuch"}),
              AllOf(HasSubstr("--fabric_provider nosuch: libfabric has no such provider"),
                    HasSubstr("tcp;ofi_rxm"), HasSubstr("shm")));
  EXPECT_THAT(error({"--fabric_provider=tcp;ofi_rxm", "--fabric_iface=nosuch0"}),
              AllOf(HasSubstr("no interface 'nosuch0'"), HasSubstr("lo")));
  EXPECT_THAT(error({"--fabric_provider=shm", "--fabric_port=24100"}),
              HasSubstr("neither interfaces nor ports"));
  EXPECT_THAT(error({"--fabric_iface=lo"}), HasSubstr("--fabric_iface is for --fabric_provider"));
  EXPECT_THAT(error({"--fabric_provider=tcp", "--fabric_port=65281"}), HasSubstr("65280"));

  // A build without libfabric is a program without the library beside it.
  const std::string alone = job.sandbox().dir().File("passel");
  std::filesystem::copy(PASSEL_PROGRAM, alone);
  Program program = job.sandbox().StartCommand(
      With({alone}, job.Task("ps/0", {"--token_file=" + job.token(), "--fabric_provider=tcp"})));
  EXPECT_THAT(
      OnlyError(job.sandbox().Finish(program)),
      AllOf(HasSubstr("--fabric_provider tcp needs libfabric"), HasSubstr("omit the flag")));

  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  job.Start("worker/0", {"--fabric_provider=tcp"});
  EXPECT_THAT(job.OnlyErrorOf("worker/0"),
              AllOf(HasSubstr("is tcp;ofi_rxm"), HasSubstr("is sealed TCP"),
                    HasSubstr("give all tasks the same --fabric_provider")));
  job.Start("worker/0");
  job.ExpectEnd();
  EXPECT_THAT(job["worker/0"].Err(), HasSubstr("by TCP, sealed"));
}

// An interface that is there, and leads nowhere.
TEST_F(SlowHostsFabricTest, WhereParametersCannotTravelIsNamed) {
  // It is tried for --lease, --ps_wait and 10 s.
  HostsJob job =
      Job(1, 1, {"worker/0"}, With(kTcp, {"--train_steps=60", "--lease=3", "--ps_wait=2"}));
  job.Start("ps/0", {"--start_wait=100"});
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  job.Start("worker/0", {"--fabric_iface=lo", "--start_wait=100"});
  EXPECT_THAT(OnlyError(job.Finish("worker/0", 60), 143),
              AllOf(HasSubstr("from lo, 127.0.0.1, here to 10.77.0.1:"),
                    HasSubstr("look at the network between them, and at --fabric_iface")));
}

// --- Other versions ------------------------------------------------------------------------------

class Nobody final : public fabric::ControlHandler {
  Status Admit(std::uint64_t, const fabric::TaskFacts&, fabric::TaskFacts*) override { return {}; }
  void Serve(std::uint64_t, const fabric::TaskFacts&, std::unique_ptr<fabric::Pipe>) override {}
  void Gone(std::uint64_t, const fabric::TaskFacts&, const Status&) override {}
};

fabric::TaskFacts Newer(const HostsJob& job, Role role) {
  fabric::TaskFacts facts;
  facts.job_id = job.job_id();
  facts.role = role;
  facts.wire = fabric::kProtocolVersion + 1;
  facts.build = "99.9.9";
  return facts;
}

TEST_F(HostsFabricTest, APeerThatSpeaksAnotherVersionIsRefusedWithBoth) {
  HostsJob job = Job(1, 1, {"worker/0"}, {"--start_wait=20", "--train_steps=60"});
  const std::string ours = fmt::format(" is {}", fabric::kProtocolVersion);
  const std::string theirs = fmt::format(" is {}", fabric::kProtocolVersion + 1);
  job.Start("ps/0");
  ASSERT_TRUE(job["ps/0"].WaitFor(" is ready")) << job["ps/0"].Err();
  const Result<JobToken> token = JobToken::Read(job.token());
  ASSERT_TRUE(token.ok());
  fabric::ControlOptions worker;
  worker.address = {TwoHosts::kHere, 2222};
  worker.key.token = *token;
  worker.me = Newer(job, Role::kWorker);
  const Status refused =
      fabric::ControlConnection::Open(worker, Deadline::After(std::chrono::seconds(20))).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("the wire version of worker/0" + theirs),
                                       HasSubstr("ps/0" + ours), HasSubstr("same build")));
  job.Kill("ps/0");

  fabric::ControlServerOptions ps;
  const Result<TcpAddress> here = TcpAddress::FromNumbers(TwoHosts::kHere, 2222);
  ASSERT_TRUE(here.ok());
  ps.listen = {*here};
  ps.key.token = *token;
  ps.me = Newer(job, Role::kPs);
  Nobody nobody;
  const auto door = fabric::ControlServer::Start(ps, nobody);
  ASSERT_TRUE(door.ok()) << door.status().ToString();
  job.Start("worker/0");
  EXPECT_THAT(job.OnlyErrorOf("worker/0"),
              AllOf(HasSubstr("the wire version of worker/0" + ours), HasSubstr("ps/0" + theirs),
                    HasSubstr("start all tasks from the same build")));
}

}  // namespace
}  // namespace passel::testing
