// A job on a terminal: it stops and goes on as one, survives its window, and fits into it.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "support/program.h"
#include "support/terminal.h"

namespace passel::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Quoted(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += " '" + argument + "'";
  return text;
}

// The states (T: stopped) of the processes that are passel, not the shell.
std::string States(const Sandbox& sandbox) {
  std::string states;
  for (const auto& [pid, command] : sandbox.Processes()) {
    if (command.find("passel t") == std::string::npos) continue;
    const std::string stat = ReadText(fmt::format("/proc/{}/stat", pid));
    const std::size_t end = stat.rfind(") ");
    if (end != std::string::npos) states += stat[end + 2];
  }
  return states;
}

template <typename Condition>
bool Await(Condition condition, double seconds = 10) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  while (!condition()) {
    if (deadline.Expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// tostop: whoever writes from the background is stopped.
TEST(JobOnATerminalTest, PrintsFromAllTasksAndStopsAndGoesOnAsOne) {
  Sandbox sandbox;
  Terminal terminal(120);
  Program shell = sandbox.StartCommand(terminal.Command(
      "stty tostop\n\"$PASSEL\"" +
      Quoted(sandbox.Train({"--train_steps=100000000", "--log_lines=dist-mnist", "--evaluator",
                            "--eval_interval=0.2", "--log_level=debug"})) +
      "\necho \"stopped $?\"\nread -r line\nfg > /dev/null\necho \"ended $?\"\n"));
  ASSERT_TRUE(terminal.WaitFor("Worker 0: training step")) << terminal.Shown();
  ASSERT_TRUE(terminal.WaitFor("Worker 1: training step")) << terminal.Shown();
  ASSERT_TRUE(terminal.WaitFor("evaluation at global step")) << terminal.Shown();
  ASSERT_EQ(States(sandbox).size(), 5u);
  EXPECT_THAT(States(sandbox), Each(AnyOf('R', 'S', 'D')));

  terminal.Type("\x1a");                                            // Ctrl-Z
  ASSERT_TRUE(terminal.WaitFor("stopped 14")) << terminal.Shown();  // 128 + SIGSTOP or SIGTSTP
  EXPECT_TRUE(Await([&] { return States(sandbox) == "TTTTT"; })) << States(sandbox);

  std::size_t before = terminal.Shown().size();
  terminal.Type("\n");
  EXPECT_TRUE(terminal.WaitFor("Worker 1: training step", 20, before)) << terminal.Shown();
  // That line may be of before: the supervisor goes on first.
  EXPECT_TRUE(Await([&] { return States(sandbox).find('T') == std::string::npos; }))
      << States(sandbox);

  terminal.Type("\x03");  // Ctrl-C
  EXPECT_TRUE(terminal.WaitFor("ended 130")) << terminal.Shown();
  EXPECT_EQ(sandbox.Finish(shell, 20).code, 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(JobOnATerminalTest, SavesWhenItsWindowIsClosed) {
  Sandbox sandbox;
  Terminal terminal(80);
  const std::string report = sandbox.dir().File("r"), model = sandbox.dir().File("m");
  const std::string code = sandbox.dir().File("code");
  Program shell = sandbox.StartCommand(
      terminal.Command("export PASSEL\nbash -c 'trap : HUP; \"$PASSEL\" \"$@\"; echo $? > " + code +
                       "' \"$PASSEL\"" +
                       Quoted(sandbox.Train({"--train_steps=100000000", "--log_lines=dist-mnist",
                                             "--report=" + report, "--save=" + model})) +
                       "\ntrue\n"));  // so that it is not this shell that becomes the other one
  ASSERT_TRUE(terminal.WaitFor("Worker 1: training step")) << terminal.Shown();
  terminal.HangUp();
  // The shell, which leads the session, dies of SIGHUP, and the kernel tells the job.
  EXPECT_NE(sandbox.Finish(shell, 30).code, -1);
  EXPECT_TRUE(Await([&] { return ReadText(code) == "143\n"; }, 30)) << ReadText(code);
  EXPECT_EQ(ReadJson(report)["exit_code"], 143);
  EXPECT_GT(ReadText(model).size(), 300'000u);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Lines that are drawn over one another, each less wide than the terminal.
std::vector<std::string> LiveLines(const std::string& shown) {
  const std::string clear = "\r\033[K";
  std::vector<std::string> lines;
  for (std::size_t at = shown.find(clear); at != std::string::npos;) {
    const std::size_t begin = at + clear.size();
    at = shown.find(clear, begin);
    const std::string line = shown.substr(begin, at - begin);
    if (line.starts_with("step ") && at != std::string::npos) lines.push_back(line);
  }
  return lines;
}

TEST(ProgressLineTest, FitsTheTerminalAndLosesTheTimeThatIsLeftLast) {
  struct Case {
    int columns;
    std::vector<std::string> shown, hidden;
  };
  const Case cases[] = {
      {120, {"steps/s", "loss", "accuracy", "staleness", " left"}, {}},
      {80, {"steps/s", "loss", "accuracy", " left"}, {"staleness"}},
      {60, {"loss", "accuracy", " left"}, {"steps/s"}},
      {30, {"step ", " left"}, {"loss"}},
  };
  for (const Case& c : cases) {
    Sandbox sandbox;
    Terminal terminal(c.columns);
    Program shell = sandbox.StartCommand(terminal.Command(
        "stty -echo\nexec \"$PASSEL\"" +
        Quoted(sandbox.Train({"--ps=0", "--workers=1", "--train_steps=1000000"}))));
    ASSERT_TRUE(Await([&] { return LiveLines(terminal.Shown()).size() > 1; })) << terminal.Shown();
    terminal.Type("\x03");
    EXPECT_EQ(sandbox.Finish(shell, 20).code, 130);
    for (const std::string& line : LiveLines(terminal.Shown())) {
      EXPECT_LT(line.size(), static_cast<std::size_t>(c.columns)) << line;
      for (const std::string& part : c.shown) EXPECT_THAT(line, HasSubstr(part));
      for (const std::string& part : c.hidden) EXPECT_THAT(line, Not(HasSubstr(part)));
    }
  }
}

}  // namespace
}  // namespace passel::testing
