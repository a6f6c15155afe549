// A job knows its data: who evaluates it takes that, and of the training examples only those that
// are what they are called.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utime.h>

#include <csignal>

#include "base/deadline.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kTrain = 300, kTest = 100;

// What PASSEL_DATA_DIR names is not the data of these jobs.
class JobDataTest : public ::testing::Test {
 protected:
  JobDataTest() {
    sandbox_.SetEnv("PASSEL_DATA_DIR", Digits());
    EXPECT_EQ(sandbox_
                  .Run({"data", "generate", own_, fmt::format("--train={}", kTrain),
                        fmt::format("--test={}", kTest), "--seed=2"})
                  .code,
              0);
  }

  Outcome Eval(std::vector<std::string> more) {
    std::vector<std::string> all = {"eval", "--json=" + json_};
    all.insert(all.end(), more.begin(), more.end());
    return sandbox_.Run(all);
  }
  Outcome EvalJob(std::vector<std::string> more) {
    more.push_back("--job=" + sandbox_.job());
    more.emplace_back("--wait=60");
    return Eval(more);
  }
  // How many images, in which data; {0, why} when it is refused.
  std::pair<int, std::string> Images(const Outcome& outcome) {
    if (outcome.code == 2 && outcome.errors.size() == 1) return {0, outcome.errors[0]};
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    if (outcome.code != 0) return {-1, outcome.err};
    const nlohmann::json json = ReadJson(json_);
    return {json["images"].get<int>(), json["data"].get<std::string>()};
  }
  std::string Refusal(const Outcome& outcome) {
    const auto [images, why] = Images(outcome);
    EXPECT_EQ(images, 0) << why;
    return why;
  }
  // A task by hand that is told no data.
  std::vector<std::string> Task(const std::string& name, int index,
                                const std::vector<std::string>& more) {
    std::vector<std::string> all = sandbox_.Task(name, index, 1, 2, {"--start_wait=20"});
    std::erase_if(all, [](const std::string& flag) { return flag.starts_with("--data_dir"); });
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  bool AwaitSteps() {
    const Deadline deadline = Deadline::After(Scaled(20.0));
    while (sandbox_.GlobalStep() < 10) {
      if (deadline.Expired()) return false;
    }
    return true;
  }

  Sandbox sandbox_;
  const std::string own_ = sandbox_.dir().File("own");
  const std::string json_ = sandbox_.dir().File("e.json");
  const std::pair<int, std::string> all_of_own_ = {kTest, own_};
};

TEST_F(JobDataTest, OfASupervisedJobIsWhatItIsEvaluatedOn) {
  const std::string saved = sandbox_.dir().File("m");
  Program train = sandbox_.Start({"train", "--data_dir=" + own_, "--job_id=" + sandbox_.job(),
                                  "--train_steps=100000000", "--batch_size=10",
                                  "--validation_size=50", "--save=" + saved});
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  const Outcome eval = EvalJob({});
  EXPECT_EQ(Images(eval), all_of_own_);
  EXPECT_THAT(eval.err,
              HasSubstr(fmt::format("Using the data of job {}, in {}.", sandbox_.job(), own_)));
  EXPECT_EQ(sandbox_.Status()["data"]["directory"], own_);
  EXPECT_EQ(Images(EvalJob({"--set=validation"})), std::pair(50, own_));
  EXPECT_EQ(Images(EvalJob({"--set=validation", "--validation_size=50"})), std::pair(50, own_));
  EXPECT_EQ(Images(EvalJob({"--set=train"})), std::pair(kTrain - 50, own_));
  EXPECT_THAT(Refusal(EvalJob({"--set=validation", "--validation_size=60"})),
              HasSubstr("--validation_size 60 is not that of job " + sandbox_.job() +
                        ", which was trained with 50: omit it"));
  const Outcome other = EvalJob({"--data_dir=" + Digits()});
  EXPECT_EQ(Images(other), std::pair(1000, Digits()));
  EXPECT_THAT(other.err, HasSubstr(" W job " + sandbox_.job() + " trains on other data than"));

  // The next life of the ps knows it too.
  const pid_t ps = sandbox_.AwaitTask("ps", 0);
  ASSERT_GT(ps, 0);
  ASSERT_EQ(::kill(ps, SIGKILL), 0);
  ASSERT_GT(sandbox_.AwaitTask("ps", 0, ps), 0);
  EXPECT_EQ(Images(EvalJob({})), all_of_own_);

  // Files that are not those that were read.
  ASSERT_EQ(::utime((own_ + "/t10k-images-idx3-ubyte").c_str(), nullptr), 0);
  EXPECT_THAT(Refusal(EvalJob({})), HasSubstr("the files in " + own_ + " have changed since"));

  train.Signal(SIGINT);
  EXPECT_EQ(sandbox_.Finish(train).code, 130);
  const auto saved_one = [&](std::vector<std::string> more) {
    more.push_back("--params=" + saved);
    more.push_back("--data_dir=" + own_);
    return Eval(more);
  };
  EXPECT_EQ(Images(saved_one({"--set=validation"})), std::pair(50, own_));
  EXPECT_EQ(Images(saved_one({"--set=train"})), std::pair(kTrain - 50, own_));
  EXPECT_THAT(Refusal(saved_one({"--set=validation", "--validation_size=60"})),
              HasSubstr("--validation_size 60 is not that of " + saved));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(JobDataTest, OfTasksByHandIsWhatTheyAreEvaluatedOn) {
  const std::vector<std::string> flags = {"--train_steps=100000000", "--batch_size=10",
                                          "--eval_interval=0.05"};
  const auto with_data = [&](int validation) {
    std::vector<std::string> more = flags;
    more.push_back("--data_dir=" + own_);
    more.push_back(fmt::format("--validation_size={}", validation));
    return more;
  };
  Program ps = sandbox_.Start(Task("ps", 0, flags));
  Program chief = sandbox_.Start(Task("worker", 0, with_data(50)));
  Program evaluator = sandbox_.Start(Task("evaluator", 0, flags));
  ASSERT_TRUE(AwaitSteps()) << chief.Err();
  EXPECT_TRUE(evaluator.WaitFor("Using the data of job " + sandbox_.job() + ", in " + own_))
      << evaluator.Err();
  EXPECT_EQ(Images(EvalJob({})), all_of_own_);
  EXPECT_EQ(Images(EvalJob({"--set=validation"})), std::pair(50, own_));

  // A ps that comes back asks the workers.
  ps.Signal(SIGKILL);
  ps.Wait();
  ps = sandbox_.Start(Task("ps", 0, flags));
  ASSERT_TRUE(chief.WaitFor("ps/0 is back")) << chief.Err();
  EXPECT_EQ(Images(EvalJob({"--set=validation"})), std::pair(50, own_));

  Program other = sandbox_.Start(Task("worker", 1, with_data(20)));
  const Deadline told = Deadline::After(Scaled(20.0));
  while (sandbox_.Status()["data"]["also"].size() == 0) {
    ASSERT_FALSE(told.Expired()) << other.Err();
  }
  EXPECT_EQ(Images(EvalJob({})), all_of_own_);
  EXPECT_THAT(Refusal(EvalJob({"--set=validation"})),
              HasSubstr("hold back different examples, the first 50 of 0 and the first 20 of 0"));
  EXPECT_EQ(sandbox_.Run({"ctl", "stop", sandbox_.job()}).code, 0);
  for (Program* task : {&ps, &chief, &other, &evaluator}) {
    EXPECT_EQ(sandbox_.Finish(*task, 10).code, 130) << task->Err();
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(JobDataTest, WithoutHeldBackExamplesThereIsNoValidationSet) {
  const std::string saved = sandbox_.dir().File("m");
  const Outcome train = sandbox_.Run(
      {"train", "--data_dir=" + own_, "--batch_size=10", "--train_steps=20", "--save=" + saved});
  ASSERT_EQ(train.code, 0) << train.err;
  const std::string all = "was trained on all training examples (--validation_size 0), so none";
  EXPECT_THAT(Refusal(Eval({"--params=" + saved, "--set=validation"})), HasSubstr(all));
  EXPECT_EQ(Images(Eval({"--params=" + saved, "--set=train", "--data_dir=" + own_})),
            std::pair(kTrain, own_));

  Program job = sandbox_.Start(
      {"train", "--fake_data", "--job_id=" + sandbox_.job(), "--train_steps=100000000"});
  ASSERT_TRUE(job.WaitFor("steps/s")) << job.Err();
  EXPECT_EQ(Images(EvalJob({})), std::pair(10'000, std::string("fake_data")));
  EXPECT_THAT(Refusal(EvalJob({"--set=validation"})),
              HasSubstr("made-up data are the very images that are trained on"));
  job.Signal(SIGINT);
  EXPECT_EQ(sandbox_.Finish(job).code, 130);
}

}  // namespace
}  // namespace passel::testing
