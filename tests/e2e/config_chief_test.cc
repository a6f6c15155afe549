// A chief of its own: a task that initialises and evaluates, beside the workers.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "e2e/printed_config.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A chief of its own: TF_CONFIG and a file can name one.
TEST(ConfigTest, SeparateChiefInitialisesAndTrains) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("c.yaml");
  const std::string model = sandbox.dir().File("m.safetensors");
  WriteText(path,
            "cluster:\n  ps: [localhost:2222]\n  worker: [localhost:2223, localhost:2224]\n"
            "  chief: [localhost:2225]\n" +
                fmt::format("train_steps: 300\nmode: barrier\nstart_wait: 20\n"
                            "data_dir: {}\njob_id: {}\n",
                            Digits(), sandbox.job()));
  const auto task = [&](const std::string& job, int index) {
    return std::vector<std::string>{"task", "--config=" + path, "--job_name=" + job,
                                    fmt::format("--task_index={}", index)};
  };
  Program ps = sandbox.Start(task("ps", 0));
  Program worker0 = sandbox.Start(task("worker", 0));
  Program worker1 = sandbox.Start(task("worker", 1));
  ASSERT_TRUE(worker0.WaitFor("Waiting for session to be initialized"));
  const std::vector<std::string> chief_task = With(task("chief", 0), {"--save=" + model});
  Program chief = sandbox.Start(chief_task);
  for (Program* program : {&chief, &worker0, &worker1, &ps}) {
    const Outcome outcome = sandbox.Finish(*program, 20);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_THAT(chief.Out(), HasSubstr("Chief 0: Initializing session..."));
  EXPECT_THAT(chief.Out(), HasSubstr("chief=0, final accuracy = "));
  EXPECT_THAT(chief.Out(), Not(HasSubstr("orker 0")));
  EXPECT_THAT(worker0.Out(), Not(HasSubstr("Initializing session")));
  // Three gradients a round: the chief is one of those who train.
  EXPECT_THAT(chief.Out(), HasSubstr("training step 300 done (global step: 300)"));
  EXPECT_THAT(worker1.Out(), HasSubstr("training step 300 done (global step: 300)"));
  EXPECT_EQ(sandbox.Eval(model), 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// To the engine the chief is one more worker, with a number that nobody has given it.
TEST(ConfigTest, ASeparateChiefHasItsOwnNameWhereverItIsShown) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("c.yaml");
  WriteText(path,
            "cluster:\n  ps: [localhost:2222]\n  worker: [localhost:2223]\n"
            "  chief: [localhost:2225]\n" +
                fmt::format("train_steps: 100000000\nmode: barrier\nstart_wait: 20\n"
                            "data_dir: {}\njob_id: {}\n",
                            Digits(), sandbox.job()));
  const auto task = [&](const std::string& job) {
    return std::vector<std::string>{"task", "--config=" + path, "--job_name=" + job,
                                    "--task_index=0"};
  };
  Program ps = sandbox.Start(task("ps"));
  Program worker = sandbox.Start(task("worker"));
  Program chief = sandbox.Start(task("chief"));
  ASSERT_TRUE(chief.WaitFor("training step"));

  const std::string twice = OnlyError(sandbox.Run(task("chief"), 5));
  EXPECT_THAT(twice, HasSubstr("chief/0 of job " + sandbox.job() + " is running already"));
  EXPECT_THAT(twice, Not(HasSubstr("worker/")));
  EXPECT_THAT(twice, Not(HasSubstr("--task_index")));
  const std::string other = OnlyError(sandbox.Run(task("worker"), 5));
  EXPECT_THAT(other, HasSubstr("worker/0 of job"));

  const Outcome text = sandbox.Run({"ctl", "status", sandbox.job()});
  EXPECT_THAT(text.out, HasSubstr("\nchief/0 running, process "));
  EXPECT_THAT(text.out, HasSubstr("\nworker/0 running, process "));
  EXPECT_THAT(text.out, Not(HasSubstr("worker/1")));
  const nlohmann::json status = sandbox.Status();
  ASSERT_TRUE(status.is_object());
  ASSERT_EQ(status["arena"]["workers"].size(), 2u);
  EXPECT_EQ(status["arena"]["workers"][0]["task"], "worker/0");
  EXPECT_EQ(status["arena"]["workers"][1]["task"], "chief/0");
  for (const auto& event : status["arena"]["events"]) {
    EXPECT_TRUE(event["task"] == "worker/0" || event["task"] == "chief/0") << event;
  }

  // Who holds up a change of mode: the chief, while it is stopped.
  chief.Signal(SIGSTOP);
  const Outcome change = sandbox.Run({"ctl", "set-mode", "--wait=0.3", sandbox.job(), "hogwild"});
  EXPECT_EQ(change.code, 143) << change.err;
  EXPECT_THAT(change.err, HasSubstr("chief/0 to end the last step"));
  chief.Signal(SIGCONT);

  for (Program* program : {&chief, &worker, &ps}) program->Signal(SIGINT);
  for (Program* program : {&chief, &worker, &ps}) {
    EXPECT_EQ(sandbox.Finish(*program, 10).code, 130) << program->Err();
    EXPECT_THAT(program->Err(), Not(HasSubstr("worker/1")));
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, WithoutItsChiefAJobEndsAndNamesIt) {
  Sandbox sandbox;
  std::vector<Program> tasks;
  for (const char* type : {"ps", "worker"}) {
    sandbox.SetEnv("TF_CONFIG",
                   fmt::format(R"({{"cluster": {{"ps": ["localhost:1"], "worker": ["localhost:2"],
                                                 "master": ["localhost:3"]}},
                                    "task": {{"type": "{}", "index": 0}}}})",
                               type));
    tasks.push_back(sandbox.Start(
        {"task", "--job_id=" + sandbox.job(), "--start_wait=1.2", "--data_dir=" + Digits()}));
  }
  for (Program& task : tasks) {
    EXPECT_THAT(OnlyError(sandbox.Finish(task, 5), 143), HasSubstr("master/0"));
  }
}

}  // namespace
}  // namespace passel::testing
