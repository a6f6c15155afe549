// The secret stays secret, and other users stay out, of whole jobs.

#include <dirent.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <span>
#include <thread>

#include "base/unix_socket.h"
#include "cluster/handshake.h"
#include "support/program.h"
#include "support/secrets.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

// The 32 bytes that a supervisor hands to its children.
std::string TokenOf(pid_t supervisor) {
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", supervisor))) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    if (target.find("passel.token") != std::string::npos) return ReadText(entry.path());
  }
  return "";
}

TEST(TokenLeakTest, TokenOfASupervisedJobIsNowhereToBeSeen) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=100000000", "--ps=2", "--log_level=debug",
                     "--report=" + sandbox.dir().File("r"), "--save=" + sandbox.dir().File("m")}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const std::string token = TokenOf(train.pid());
  ASSERT_EQ(token.size(), 32u);
  std::map<std::string, std::string> seen;  // where: what
  for (const auto& [pid, command] : sandbox.Processes()) {
    seen[fmt::format("cmdline of {}", pid)] = command;
    seen[fmt::format("environ of {}", pid)] = ReadText(fmt::format("/proc/{}/environ", pid));
  }
  EXPECT_EQ(seen.size(), 2u * 5);
  ASSERT_FALSE(sandbox.Status().is_null());
  seen["status"] = sandbox.Status().dump();
  train.Signal(SIGINT);
  const Outcome outcome = sandbox.Finish(train, 5);
  EXPECT_EQ(outcome.code, 130);
  seen["output"] = outcome.out;
  seen["log"] = outcome.err;
  seen["report"] = ReadText(sandbox.dir().File("r"));
  seen["model"] = ReadText(sandbox.dir().File("m"));
  for (const auto& [where, what] : seen) {
    EXPECT_FALSE(what.empty()) << where;
    EXPECT_EQ(what.find(token), std::string::npos) << where;
    EXPECT_EQ(what.find(Hex(token)), std::string::npos) << where;
  }
}

// The key that proofs of the job are made with: as good as the token.
std::string JobKeyOf(const std::string& token, const std::string& job) {
  const std::string context = "passel-auth-1" + job;
  std::string key(32, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(key.data()), key.size(),
                     reinterpret_cast<const unsigned char*>(context.data()), context.size(),
                     reinterpret_cast<const unsigned char*>(token.data()), token.size());
  return key;
}

TEST(TokenLeakTest, TokenIsInNoCoreFile) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can read the memory of other processes for sure";
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000", "--evaluator"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  ASSERT_NE(sandbox.AwaitTask("evaluator", 0), 0);
  const std::string token = TokenOf(train.pid());
  ASSERT_EQ(token.size(), 32u);
  const std::string key = JobKeyOf(token, sandbox.job());
  int holders = 0;
  for (const auto& [pid, command] : sandbox.Processes()) {
    ::kill(pid, SIGSTOP);
    const Memory memory = ReadMemory(pid);
    ::kill(pid, SIGCONT);
    EXPECT_GT(memory.dumped.size(), std::size_t{1} << 20) << command;
    EXPECT_EQ(memory.dumped.find(token), std::string::npos) << command;
    EXPECT_EQ(memory.dumped.find(key), std::string::npos) << command;
    EXPECT_EQ(memory.kept_out.find(key), std::string::npos) << command;
    holders += memory.kept_out.find(token) != std::string::npos;
  }
  EXPECT_EQ(holders, 5) << "this test finds no token where one is";
  sandbox.Interrupt(train);
}

TEST(TokenLeakTest, TokenFileOfTasksByHandIsForTheUserAlone) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  std::string file;
  for (const auto& [pid, command] : sandbox.Processes()) {
    const std::string environment = ReadText(fmt::format("/proc/{}/environ", pid));
    const std::size_t at = environment.find("XDG_RUNTIME_DIR=") + 16;
    file = environment.substr(at, environment.find('\0', at) - at) + "/passel";
  }
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms::owner_all);
  file += "/" + sandbox.job() + ".token";
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms::owner_read);
  const std::string token = ReadText(file);
  ASSERT_EQ(token.size(), 32u);
  EXPECT_EQ(ps.Err().find(Hex(token)), std::string::npos);
  sandbox.Interrupt(ps);
}

TEST(OtherUserTest, SeesNoJobAndNoMemoryOfIt) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const std::vector<std::string> as_nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                              "--clear-groups"};
  const auto run = [&](const std::vector<std::string>& command) {
    const std::vector<std::string> all = With(as_nobody, command);
    Program program = sandbox.StartCommand(all);
    return sandbox.Finish(program, 10);
  };
  const Outcome status = run({PASSEL_PROGRAM, "ctl", "status", sandbox.job()});
  EXPECT_NE(status.code, 0);
  EXPECT_THAT(status.err, ::testing::Not(HasSubstr("local steps")));
  EXPECT_NE(run({PASSEL_PROGRAM, "ctl", "stop", sandbox.job()}).code, 0);
  const pid_t worker = sandbox.TaskPid("worker", 0);
  EXPECT_NE(run({"ls", fmt::format("/proc/{}/fd/", worker)}).code, 0);
  EXPECT_NE(run({"cat", fmt::format("/proc/{}/environ", worker)}).code, 0);
  EXPECT_TRUE(train.Running());
  sandbox.Interrupt(train);
}

// In such a namespace the kernel shows everybody as user 65534.
TEST(OtherUserTest, CannotControlAJobWhoseNamespaceTellsNoUsersApart) {
  Sandbox sandbox;
  Program probe = sandbox.StartCommand({"unshare", "-U", "id", "-u"});
  if (sandbox.Finish(probe).out != "65534\n") GTEST_SKIP() << "no user namespace can be made here";
  std::vector<std::string> command = {"unshare", "-U", PASSEL_PROGRAM};
  for (const std::string& a : sandbox.Train({"--train_steps=100000000"})) command.push_back(a);
  Program train = sandbox.StartCommand(command);
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const std::string hello =
      fmt::format(R"({{"hello":{},"role":"control","index":0}})", kProtocolVersion);
  const Result<FileDescriptor> socket = ConnectAbstract(
      fmt::format("passel.65534.{}.ps.0", sandbox.job()), Deadline::After(Scaled(5.0)));
  ASSERT_TRUE(socket.ok()) << socket.status().message();
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(hello.data()), hello.size());
  ASSERT_TRUE(SendMessage(socket->get(), bytes, {}, Deadline::After(Scaled(5.0))).ok());
  const Result<Message> answer = ReceiveMessage(socket->get(), Deadline::After(Scaled(5.0)));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  const std::string sentence(answer->bytes.begin(), answer->bytes.end());
  EXPECT_THAT(sentence, HasSubstr("user 65534 stands here for every user"));
  // Nor does our own program ask whom it cannot know.
  Program ctl =
      sandbox.StartCommand({"unshare", "-U", PASSEL_PROGRAM, "ctl", "stop", sandbox.job()});
  EXPECT_THAT(OnlyError(sandbox.Finish(ctl), 2),
              HasSubstr("user 65534 stands here for every user"));
  EXPECT_TRUE(train.Running());
  sandbox.Interrupt(train);
}

TEST(OtherUserTest, SquatterOnTheNameOfAJobIsNamed) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  Sandbox sandbox;
  const std::string name = fmt::format("passel.0.{}.ps.0", sandbox.job());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(99);
    const Result<FileDescriptor> listening = ListenAbstract(name);
    [[maybe_unused]] const auto put = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  for (const std::vector<std::string>& arguments :
       {sandbox.Train({"--train_steps=10"}), sandbox.Task("ps", 0, 1, 1),
        sandbox.Task("worker", 0, 1, 1)}) {
    EXPECT_THAT(OnlyError(sandbox.Run(arguments, 5), 2),
                HasSubstr(fmt::format("process {} of user 65534", squatter)));
  }
  ::kill(squatter, SIGKILL);
  ::waitpid(squatter, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(FloodTest, PsWithFewDescriptorsStillServesItsWorkers) {
  Sandbox sandbox;
  std::string command = "ulimit -n 40; exec " PASSEL_PROGRAM;
  for (const std::string& a : sandbox.Task("ps", 0, 1, 1)) command += " " + a;
  Program ps = sandbox.StartCommand({"sh", "-c", command});
  ASSERT_TRUE(ps.WaitFor("is ready for its workers")) << ps.Err();
  std::vector<FileDescriptor> flood;
  const std::string name = fmt::format("passel.{}.{}.ps.0", ::getuid(), sandbox.job());
  for (int i = 0; i < 300; ++i) {
    Result<FileDescriptor> socket = ConnectAbstract(name, Deadline::After(Scaled(5.0)));
    ASSERT_TRUE(socket.ok()) << socket.status().message();
    flood.push_back(std::move(*socket));
  }
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, {"--train_steps=200"}));
  const Outcome outcome = sandbox.Finish(worker, 15);
  EXPECT_EQ(outcome.code, 0) << outcome.err << ps.Err();
  EXPECT_EQ(sandbox.Finish(ps, 5).code, 0) << ps.Err();
  EXPECT_LT(ps.Err().size(), 5000u) << "the log is flooded too";
}

}  // namespace
}  // namespace passel::testing
