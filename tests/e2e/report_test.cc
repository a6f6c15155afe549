// Results as JSON: in files with the permissions that the user wants, and on standard output alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fmt/core.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

TEST(ReportTest, OnStandardOutputIsAloneThere) {
  Sandbox sandbox;
  const std::string saved = sandbox.dir().File("m");
  // With whatever else prints there: log lines of workers, an evaluator, one process alone.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--evaluator", "--log_lines=dist-mnist",
                                 "--log_step_count_steps=5"},
        {"--ps=0"}}) {
    const std::vector<std::string> flags =
        With({"--train_steps=40", "--report=-", "--save=" + saved}, more);
    const Outcome train = sandbox.Run(sandbox.Train(flags));
    ASSERT_EQ(train.code, 0) << train.err;
    const nlohmann::json report = nlohmann::json::parse(train.out, nullptr, false);
    ASSERT_TRUE(report.is_object()) << train.out;
    EXPECT_GE(report["global_step"].get<int>(), 40);
    EXPECT_THAT(train.err, HasSubstr("test accuracy "));
    EXPECT_THAT(train.err, HasSubstr("saved " + saved));
  }
  const Outcome eval =
      sandbox.Run({"eval", "--params=" + saved, "--data_dir=" + Digits(), "--report=-"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  const nlohmann::json result = nlohmann::json::parse(eval.out, nullptr, false);
  ASSERT_TRUE(result.is_object()) << eval.out;
  EXPECT_EQ(result["images"], 1000);
  EXPECT_THAT(eval.err, HasSubstr("precision"));
  // That it cannot be had is no success.
  Program full = sandbox.StartCommand(
      {"sh", "-c",
       fmt::format("exec {} eval --params={} --data_dir={} --report=- >/dev/full", PASSEL_PROGRAM,
                   saved, Digits())});
  const Outcome lost = sandbox.Finish(full);
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, HasSubstr("the result cannot be printed on standard output: No space"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Whether there is a Python that can draw, as the program looks for one.
bool CanDraw() {
  const std::string check = std::string(PASSEL_SOURCE_DIR) + "/tools/run_page --check";
  return std::system(
             ("(python3 " + check + " || /usr/bin/python3 " + check + ") 2>/dev/null").c_str()) ==
         0;
}

TEST(RunPageTest, IsMadeOfTheReportAndNothingElseIsLeft) {
  if (!CanDraw()) GTEST_SKIP() << "needs matplotlib (tools/setup --with bench)";
  Sandbox sandbox;
  const std::string page = sandbox.dir().File("page.html"), report = sandbox.dir().File("r.json");
  const Outcome train = sandbox.Run(
      sandbox.Train({"--train_steps=200", "--report_html=" + page, "--report=" + report}));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_THAT(train.err, HasSubstr("the page of this run is " + page));
  const std::string text = ReadText(page);
  const nlohmann::json r = nlohmann::json::parse(ReadText(report));
  EXPECT_THAT(text,
              HasSubstr(fmt::format("Test accuracy {:.4f}", r["test_accuracy"].get<double>())));
  EXPECT_THAT(text, HasSubstr("<td>" + r["run"]["host"].get<std::string>() + "</td>"));
  EXPECT_THAT(text, HasSubstr("<td>train_steps</td><td>200</td>"));
  EXPECT_THAT(text, HasSubstr("<svg"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(sandbox.dir().path()), {}), 2);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(RunPageTest, ThatFailsAtTheEndLosesNothing) {
  if (!CanDraw()) GTEST_SKIP() << "needs matplotlib (tools/setup --with bench)";
  Sandbox sandbox;
  const std::string page = sandbox.dir().File("page.html"), saved = sandbox.dir().File("m");
  Program job = sandbox.Start(sandbox.Train(
      {"--train_steps=100000000", "--report_html=" + page, "--save=" + saved, "--report=-"}));
  ASSERT_TRUE(sandbox.AwaitStep(10));
  std::filesystem::create_directory(page);
  job.Signal(SIGINT);
  const Outcome train = sandbox.Finish(job);
  EXPECT_EQ(train.code, 130) << train.err;
  const std::string said = "the page " + page + " was not made";
  EXPECT_THAT(train.err, HasSubstr(said));
  EXPECT_THAT(train.err, HasSubstr("Is a directory"));
  EXPECT_THAT(nlohmann::json::parse(train.out)["notes"].dump(), HasSubstr(said));
  EXPECT_TRUE(std::filesystem::is_regular_file(saved));
  // What the sentence advises makes the page.
  const std::string advice = train.err.substr(train.err.find("its report is kept, and  ") + 25);
  const std::string command = advice.substr(0, advice.find("  makes the page"));
  EXPECT_THAT(command, ::testing::EndsWith(" " + page + ".json " + page));
  std::filesystem::remove(page);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_THAT(ReadText(page), HasSubstr("This run was interrupted: exit code 130"));
}

// A Python that hangs when it is to draw.
TEST(RunPageTest, TakesNoMoreThanItsShareOfTheGrace) {
  if (!CanDraw()) GTEST_SKIP() << "needs matplotlib (tools/setup --with bench)";
  Sandbox sandbox;
  WriteText(sandbox.dir().File("sitecustomize.py"),
            "import time\n"
            "if b'--check' not in open('/proc/self/cmdline', 'rb').read(): time.sleep(60)\n");
  sandbox.SetEnv("PYTHONPATH", sandbox.dir().path());
  const std::string page = sandbox.dir().File("page.html"), report = sandbox.dir().File("r.json");
  Program job = sandbox.Start(sandbox.Train(
      {"--train_steps=100000000", "--grace=2", "--report_html=" + page, "--report=" + report}));
  ASSERT_TRUE(sandbox.AwaitStep(10)) << job.Err();
  job.Signal(SIGTERM);
  const Outcome train = sandbox.Finish(job, 5);
  EXPECT_EQ(train.code, 143) << train.err;
  EXPECT_THAT(train.err, HasSubstr("the page " + page + " was not made (it took more than "));
  EXPECT_THAT(train.err, HasSubstr(" s, and --grace leaves no more for it"));
  EXPECT_EQ(ReadJson(page + ".json")["deaths"], ReadJson(report)["deaths"]);
  EXPECT_FALSE(std::filesystem::exists(page));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Whoever died is on the page, with what it said last.
TEST(RunPageTest, ShowsWhoDied) {
  if (!CanDraw()) GTEST_SKIP() << "needs matplotlib (tools/setup --with bench)";
  Sandbox sandbox;
  const std::string page = sandbox.dir().File("page.html");
  Program job = sandbox.Start(sandbox.Train({"--train_steps=100000000", "--max_restarts=1",
                                             "--log_lines=dist-mnist", "--report_html=" + page}));
  ASSERT_TRUE(job.WaitFor("Worker 1: Session initialization complete.")) << job.Out();
  ASSERT_TRUE(sandbox.Advances(20)) << job.Err();
  const pid_t first = sandbox.TaskPid("worker", 1);
  ::kill(first, SIGKILL);
  ASSERT_NE(sandbox.AwaitTask("worker", 1, first), 0) << job.Err();
  ASSERT_TRUE(sandbox.Advances(20)) << job.Err();
  EXPECT_EQ(sandbox.Interrupt(job, 20).code, 130);
  const std::string text = ReadText(page);
  EXPECT_THAT(text, HasSubstr("Lives of the tasks: 1 death, 1 restart"));
  EXPECT_THAT(text,
              HasSubstr("<td>worker/1</td><td class=\"number\">1</td><td>was killed by SIGKILL "
                        "(9)</td><td>started again</td>"));
  EXPECT_THAT(text, HasSubstr("last lines of worker/1, which died at "));
}

TEST(RunPageTest, IsRefusedAtTheStartWithoutMatplotlib) {
  Sandbox sandbox;
  WriteText(sandbox.dir().File("matplotlib.py"), "raise ImportError('none here')\n");
  sandbox.SetEnv("PYTHONPATH", sandbox.dir().path());
  const std::string page = sandbox.dir().File("page.html");
  const Outcome train = sandbox.Run(sandbox.Train({"--report_html=" + page}));
  EXPECT_THAT(
      OnlyError(train),
      ::testing::AllOf(HasSubstr("--report_html " + page + " cannot be made"),
                       HasSubstr("none here"), HasSubstr("python3 and python3-matplotlib")));
  EXPECT_FALSE(std::filesystem::exists(page));
}

TEST(RunPageTest, IsRefusedWhereItsScriptIsNotInstalled) {
  Sandbox sandbox;
  const std::string alone = sandbox.dir().File("passel"), page = sandbox.dir().File("page.html");
  std::filesystem::copy_file(PASSEL_PROGRAM, alone);
  Program program = sandbox.StartCommand({alone, "train", "--fake_data", "--report_html=" + page});
  EXPECT_THAT(OnlyError(sandbox.Finish(program)),
              ::testing::AllOf(HasSubstr("--report_html " + page + " cannot be made"),
                               HasSubstr("/share/passel/page/run_page.py is missing: install")));
}

TEST(RunPageTest, WhoseFolderIsGoneIsSaid) {
  if (!CanDraw()) GTEST_SKIP() << "needs matplotlib (tools/setup --with bench)";
  Sandbox sandbox;
  const std::string folder = sandbox.dir().File("d"), page = folder + "/page.html";
  std::filesystem::create_directory(folder);
  Program job = sandbox.Start(
      sandbox.Train({"--ps=0", "--workers=1", "--train_steps=100000000", "--report_html=" + page}));
  ASSERT_TRUE(sandbox.AwaitStep(10));
  std::filesystem::remove(folder);
  job.Signal(SIGTERM);
  const Outcome train = sandbox.Finish(job);
  EXPECT_EQ(train.code, 143) << train.err;
  EXPECT_THAT(train.out, HasSubstr("test accuracy"));
  EXPECT_THAT(train.err, HasSubstr("the page " + page + " was not made"));
  EXPECT_THAT(train.err, HasSubstr("nor was its report kept: "));
}

TEST(ReportTest, FilesFollowTheUmask) {
  Sandbox sandbox;
  const std::string saved = sandbox.dir().File("m"), report = sandbox.dir().File("r.json");
  const std::string evaluation = sandbox.dir().File("e.json");
  const auto mode = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  for (const mode_t mask : {0027u, 0077u}) {
    const std::string command = fmt::format(
        "umask {:03o} && {} train --ps=0 --train_steps=5 --data_dir={} --save={} --report={} && "
        "exec {} eval --params={} --data_dir={} --json={}",
        mask, PASSEL_PROGRAM, Digits(), saved, report, PASSEL_PROGRAM, saved, Digits(), evaluation);
    Program both = sandbox.StartCommand({"sh", "-c", command});
    const Outcome outcome = sandbox.Finish(both);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const std::string& path : {saved, report, evaluation}) {
      EXPECT_EQ(mode(path), 0666u & ~mask) << path;
    }
  }
}

}  // namespace
}  // namespace passel::testing
