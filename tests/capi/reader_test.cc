// A program in C follows jobs that it takes no part in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "capi/job.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

struct Line {
  std::int64_t step = 0, last = 0;
  int exact = 0;
  std::vector<double> values;
};
std::vector<Line> ReadLines(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Line> read;
  std::string line;
  std::getline(lines, line);  // names
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Line& next = read.emplace_back();
    words >> next.step >> next.last >> next.exact;
    for (double value; words >> value;) next.values.push_back(value);
  }
  return read;
}

Program Follow(Sandbox& sandbox, const std::string& job, const std::vector<std::string>& more) {
  return sandbox.StartCommand(With({PASSEL_FOLLOW, job}, more));
}

// Copies of one step are those of gradient descent, whatever the mode; a reader that writes to them
// changes nothing.
TEST(CapiReader, CopiesOfOneStepWhileOthersTrain) {
  for (const std::string mode : {"hogwild", "barrier"}) {
    SCOPED_TRACE(mode);
    Job job(1, {"mode=" + mode}, 2);
    Sandbox& sandbox = job.sandbox();
    Program early = Follow(sandbox, sandbox.job(), {"1", "0"});  // before there is a job
    job.StartPs();
    job.StartWorker(0, kEndless);
    EXPECT_EQ(sandbox.Finish(early, 30).code, 0);
    Program at_once = Follow(sandbox, sandbox.job(), {"5", "1"});
    const Outcome followed = sandbox.Finish(at_once, 30);
    ASSERT_EQ(followed.code, 0) << followed.err;
    EXPECT_TRUE(followed.out.starts_with("w 1 b 0\n")) << followed.out;
    const std::vector<Line> lines = ReadLines(followed.out);
    ASSERT_EQ(lines.size(), 5u);
    for (const Line& line : lines) {
      EXPECT_EQ(line.exact, 1);
      EXPECT_EQ(line.step, line.last);
      const auto steps = static_cast<int>(std::min<std::int64_t>(line.step, 2000));  // it is there
      ExpectNear(line.values, Descent(steps, 0.1, 1), 1e-4);
    }
    Program live = Follow(sandbox, sandbox.job(), {"5", "0"});
    const Outcome now = sandbox.Finish(live, 30);
    EXPECT_EQ(now.code, 0) << now.err;
    for (const Line& line : ReadLines(now.out)) ExpectNear(line.values, kSolution, 0.5);

    if (mode == "barrier") {
      EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
      job.ExpectDone(0);
      job.ExpectPsEnds(130);
      continue;
    }
    // A reader that is killed disturbs nobody; one that waits hears of the end.
    Program killed = Follow(sandbox, sandbox.job(), {"1000000", "1"});
    EXPECT_TRUE(killed.WaitFor("\n"));
    killed.Signal(SIGKILL);
    killed.Wait();
    EXPECT_TRUE(sandbox.Advances(100));
    Program waits = Follow(sandbox, sandbox.job(), {"1", "0", "1000000000000"});
    EXPECT_TRUE(waits.WaitFor("\n"));
    EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
    job.ExpectDone(0);
    const Outcome over = sandbox.Finish(waits, 30);
    EXPECT_EQ(over.code, 2);
    EXPECT_THAT(over.err, HasSubstr("passel_wait_version: 10: ")) << over.err;
    job.ExpectPsEnds(130);
  }
}

// Of passel's own models, too; and of a job of one process.
TEST(CapiReader, JobsOfPasselItself) {
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train(
      {"--ps", "2", "--workers", "1", "--train_steps", "100000000", "--hidden_units", "16"}));
  Program follow = Follow(sandbox, sandbox.job(), {"3", "1"});
  const Outcome followed = sandbox.Finish(follow, 30);
  EXPECT_EQ(followed.code, 0) << followed.err;
  EXPECT_TRUE(followed.out.starts_with("hid_w 2 hid_b 1 sm_w 2 sm_b 1\n")) << followed.out;
  EXPECT_EQ(ReadLines(followed.out).size(), 3u);
  sandbox.Interrupt(train, 10);
}

}  // namespace
}  // namespace passel::testing
