// Jobs whose standard streams are closed, full, gone or read by nobody, and signals that whoever
// started them wants ignored.

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "base/unix_socket.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// "$0" is the program, "$@" are the arguments.
std::vector<std::string> Shell(const std::string& script,
                               const std::vector<std::string>& arguments) {
  return With({"bash", "-c", script, PASSEL_PROGRAM}, arguments);
}

TEST(ClosedStreamsTest, TrainEndsAndSavesAndObeysSignals) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r"), model = sandbox.dir().File("m");
  Program train = sandbox.StartCommand(
      Shell("exec \"$0\" \"$@\" <&- >&- 2>&-",
            sandbox.Train({"--train_steps=500", "--report=" + report, "--save=" + model})));
  EXPECT_EQ(sandbox.Finish(train, 30).code, 0);
  EXPECT_EQ(ReadJson(report)["exit_code"], 0);
  EXPECT_GT(ReadText(model).size(), 20'000u);

  Program endless =
      sandbox.StartCommand(Shell("exec \"$0\" \"$@\" <&- >&- 2>&-",
                                 sandbox.Train({"--train_steps=100000000", "--report=" + report})));
  EXPECT_TRUE(sandbox.AwaitStep(1));
  endless.Signal(SIGTERM);
  EXPECT_EQ(sandbox.Finish(endless, 20).code, 143);
  EXPECT_EQ(ReadJson(report)["exit_code"], 143);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ClosedStreamsTest, LogOfATaskByHandIsNotInItsTokenFile) {
  Sandbox sandbox;
  Program ps =
      sandbox.StartCommand(Shell("exec \"$0\" \"$@\" <&- >&- 2>&-", sandbox.Task("ps", 0, 1, 1)));
  const std::string token = sandbox.runtime() + "/passel/" + sandbox.job() + ".token";
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, {"--train_steps=200"}));
  EXPECT_EQ(sandbox.Finish(worker, 30).code, 0);
  EXPECT_EQ(sandbox.Finish(ps, 10).code, 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// A pipe that is full and stays so: whoever waits for a line of his to be written waits for ever.
class UnreadPipe {
 public:
  UnreadPipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_.Reset(ends[0]);
    write_.Reset(ends[1]);
    EXPECT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    const std::string page(4096, '.');
    while (::write(ends[1], page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
  }
  /// For a redirection of the shell, as long as this object lives.
  std::string Path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), write_.get()); }

 private:
  FileDescriptor read_, write_;
};

// `end` is to end the job with `code`.
void TrainUnread(const std::vector<std::string>& more, int code,
                 const std::function<void(Sandbox&, Program&)>& end) {
  Sandbox sandbox;
  const UnreadPipe pipe;
  const std::string report = sandbox.dir().File("r"), model = sandbox.dir().File("m");
  Program train = sandbox.StartCommand(
      Shell(fmt::format("exec \"$0\" \"$@\" > {0} 2>&1", pipe.Path()),
            sandbox.Train(With({"--train_steps=100000000", "--log_lines=dist-mnist",
                                "--log_level=debug", "--log_step_count_steps=1", "--hidden_units=8",
                                "--batch_size=10", "--report=" + report, "--save=" + model},
                               more))));
  // At 70 bytes a line more than a pipe holds and than is kept for a reader: 1 MiB.
  EXPECT_TRUE(sandbox.AwaitStep(18'000, 60));
  end(sandbox, train);
  EXPECT_EQ(sandbox.Finish(train, 40).code, code);
  const nlohmann::json result = ReadJson(report);
  EXPECT_EQ(result["exit_code"], code);
  EXPECT_THAT(result["notes"].dump(), HasSubstr("nobody read the results"));
  EXPECT_GT(ReadText(model).size(), 20'000u);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(UnreadOutputTest, HoldsUpNeitherTrainingNorAnEndThatHasATime) {
  TrainUnread({"--grace=2"}, 143, [](Sandbox&, Program& train) { train.Signal(SIGTERM); });
}

TEST(SlowUnreadOutputTest, HoldsUpNeitherTrainingNorControlNorTheEnd) {
  TrainUnread({}, 130, [](Sandbox& sandbox, Program&) {
    EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  });
}

// Another user connects to ps/0 so often.
void Knock(Sandbox& sandbox, int times) {
  Program stranger = sandbox.StartCommand(
      {"python3", "-c",
       fmt::format("import os, socket\nos.setuid(65534)\nfor i in range({}):\n"
                   "  s = socket.socket(1, 5)\n  s.connect('\\0passel.0.{}.ps.0')\n  s.close()\n",
                   times, sandbox.job())});
  const Outcome knocked = sandbox.Finish(stranger, 30);
  ASSERT_EQ(knocked.code, 0) << knocked.err;
}

TEST(UnreadOutputTest, HoldsUpNoPsThatStrangersConnectTo) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  Sandbox sandbox;
  const UnreadPipe pipe;
  Program ps = sandbox.StartCommand(Shell(fmt::format("exec \"$0\" \"$@\" > {0} 2>&1", pipe.Path()),
                                          sandbox.Task("ps", 0, 1, 1)));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, {"--train_steps=100000000"}));
  ASSERT_TRUE(worker.WaitFor("Session initialization")) << worker.Err();
  Knock(sandbox, 3000);
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(worker, 20).code, 130);
  EXPECT_EQ(sandbox.Finish(ps, 20).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(RefusalsTest, AreCountedAndToldOnceInTenSeconds) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const auto begin = std::chrono::steady_clock::now();
  Knock(sandbox, 500);
  EXPECT_TRUE(train.WaitFor("connections of other users")) << train.Err();
  train.Signal(SIGINT);
  const Outcome outcome = sandbox.Finish(train, 20);
  const auto knocking = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(outcome.code, 130);
  int lines = 0;
  for (std::size_t at = 0; (at = outcome.err.find("other users", at)) != std::string::npos; ++at) {
    ++lines;
  }
  // As many as ten seconds have begun, whatever the 500 have taken.
  EXPECT_LE(lines, 1 + knocking / std::chrono::seconds(10)) << outcome.err;
}

TEST(GoneReaderTest, TrainingGoesOnAndReportAndExitCodeAgree) {
  struct Case {
    const char* script;
    int code;
  };
  for (const Case& c : {Case{"\"$0\" \"$@\" | head -1 > /dev/null; exit ${PIPESTATUS[0]}", 0},
                        Case{"\"$0\" \"$@\" > /dev/full", 1}}) {
    Sandbox sandbox;
    const std::string report = sandbox.dir().File("r"), model = sandbox.dir().File("m");
    Program train = sandbox.StartCommand(
        Shell(c.script, sandbox.Train({"--train_steps=3000", "--evaluator", "--eval_interval=0.1",
                                       "--report=" + report, "--save=" + model})));
    const Outcome outcome = sandbox.Finish(train, 40);
    EXPECT_EQ(outcome.code, c.code) << outcome.err;
    EXPECT_EQ(ReadJson(report)["exit_code"], c.code);
    EXPECT_GT(ReadText(model).size(), 20'000u);
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

// As a script without job control starts `command &`.
TEST(IgnoredInterruptTest, StaysIgnoredByTrainAndTask) {
  Sandbox sandbox;
  const std::string script = "trap '' INT; exec \"$0\" \"$@\"";
  Program train = sandbox.StartCommand(Shell(script, sandbox.Train({"--train_steps=100000000"})));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  Sandbox by_hand;
  Program ps = by_hand.StartCommand(Shell(script, by_hand.Task("ps", 0, 1, 1)));
  Program worker = by_hand.StartCommand(
      Shell(script, by_hand.Task("worker", 0, 1, 1, {"--train_steps=100000000"})));
  ASSERT_TRUE(worker.WaitFor("training step")) << worker.Err();
  for (Program* program : {&train, &ps, &worker}) program->Signal(SIGINT);
  EXPECT_TRUE(by_hand.Advances(100));
  for (Program* program : {&train, &ps, &worker}) EXPECT_TRUE(program->Running());
  train.Signal(SIGTERM);
  EXPECT_EQ(sandbox.Finish(train, 20).code, 143);
  for (Program* task : {&worker, &ps}) {
    task->Signal(SIGTERM);
    EXPECT_EQ(by_hand.Finish(*task, 20).code, 143);
  }
}

}  // namespace
}  // namespace passel::testing
