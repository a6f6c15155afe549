// `passel ckpt` as users run it, on what jobs have saved.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/program.h"
#include "support/reference_script.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class CkptTest : public ::testing::Test {
 protected:
  std::string At(const std::string& name) { return sandbox_.dir().path() + "/" + name; }
  Outcome Ckpt(const std::vector<std::string>& words) {
    return sandbox_.Run(With({"ckpt"}, words));
  }
  Outcome Train(const std::vector<std::string>& more) {
    Outcome outcome = sandbox_.Run(sandbox_.Train(
        With({"--hidden_units=16", "--batch_size=20", "--mode=barrier", "--workers=2"}, more)));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  std::string WrongUsage(const std::vector<std::string>& words) { return OnlyError(Ckpt(words)); }

  Sandbox sandbox_;
};

TEST_F(CkptTest, ShowsWhatTwoJobsSavedAndInWhatTheyDiffer) {
  Train({"--ps=3", "--train_steps=40", "--checkpoint_dir=" + At("a")});
  Train({"--ps=1", "--train_steps=40", "--checkpoint_dir=" + At("b"),
         "--save=" + At("b.safetensors")});
  const Outcome list = Ckpt({"ls", At("a"), "--json=" + At("list.json")});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, AllOf(HasSubstr("model.ckpt-40 "), HasSubstr(" newest\n")));
  const auto listed = ReadJson(At("list.json"))["checkpoints"];
  EXPECT_EQ(listed.back()["parts"], 3);
  EXPECT_EQ(listed.back()["kept"], nlohmann::json({"newest"}));
  const Outcome show = Ckpt({"show", At("a")});
  EXPECT_EQ(show.code, 0) << show.err;
  EXPECT_THAT(show.out,
              AllOf(HasSubstr("a/model.ckpt-40: "), HasSubstr(" in 3 files\n"),
                    HasSubstr("  exact            true\n"), HasSubstr("--batch_size=20"),
                    Not(HasSubstr("--seed")), HasSubstr("hid_w/Adam_1 "), HasSubstr("784x16")));
  // Rounds give the same bits on any number of ps.
  const Outcome same = Ckpt({"diff", "--values", At("a"), At("b.safetensors")});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, EndsWith("4 of 4 tensors are the same\n"));
  const Outcome words = Ckpt({"diff", At("a"), At("b") + "/model.ckpt-40"});
  EXPECT_EQ(words.code, 1) << words.err;
  EXPECT_EQ(words.err, "");
  EXPECT_THAT(words.out, AllOf(HasSubstr("cluster/ps"),
                               EndsWith("12 of 12 tensors are the same; 5 words differ\n")));
  EXPECT_EQ(Ckpt({"diff", At("a"), At("a")}).code, 0);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(CkptTest, WhatIsExportedIsEvaluatedAndGoneOnFrom) {
  Train({"--ps=2", "--train_steps=30", "--checkpoint_dir=" + At("a")});
  const Outcome outcome = Ckpt({"export", At("a"), At("v.safetensors")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto accuracy = [&](const std::string& params) {
    const Outcome eval = sandbox_.Run({"eval", "--params=" + params, "--data_dir=" + Digits()});
    EXPECT_EQ(eval.code, 0) << eval.err;
    return eval.out.substr(eval.out.find(": test accuracy"));
  };
  EXPECT_EQ(accuracy(At("a")), accuracy(At("v.safetensors")));
  EXPECT_EQ(Ckpt({"verify", At("v.safetensors")}).code, 0);
  EXPECT_EQ(Ckpt({"diff", "--values", At("a"), At("v.safetensors")}).code, 0);
}

TEST_F(CkptTest, NumpyLoadsWhatIsExported) {
  constexpr const char* kScript = PASSEL_SOURCE_DIR "/tests/e2e/npz_reference.py";
  std::string output;
  if (const int status = test::RunReference(kScript, "check", &output); test::CannotRun(status)) {
    GTEST_SKIP() << "no Python with numpy (set PASSEL_TEST_PYTHON): " << output;
  }
  Train({"--ps=2", "--train_steps=30", "--checkpoint_dir=" + At("a")});
  ASSERT_EQ(Ckpt({"export", At("a"), At("v.npz"), "--slots"}).code, 0);
  ASSERT_EQ(Ckpt({"show", At("a"), "--json=" + At("show.json")}).code, 0);
  output.clear();
  ASSERT_EQ(test::RunReference(kScript, fmt::format("show '{}'", At("v.npz")), &output), 0)
      << output;
  const auto loaded = nlohmann::json::parse(output);
  const auto shown = ReadJson(At("show.json"))["tensors"];
  ASSERT_EQ(loaded.size(), shown.size());
  for (const auto& tensor : shown) {
    const auto array = loaded[tensor["name"].get<std::string>()];
    EXPECT_EQ(array["shape"], tensor["shape"]);
    EXPECT_EQ(array["least"], tensor["least"]);
    EXPECT_EQ(array["most"], tensor["most"]);
    EXPECT_NEAR(array["norm"].get<double>(), tensor["norm"].get<double>(), 1e-6);
  }
}

TEST_F(CkptTest, VerifyTellsWholeFromBroken) {
  for (const char* const steps : {"--train_steps=20", "--train_steps=30"}) {
    Train({"--ps=2", steps, "--checkpoint_dir=" + At("a")});
  }
  const Outcome whole = Ckpt({"verify", At("a")});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("a/model.ckpt-30: whole, "));
  const std::string part = At("a") + "/model.ckpt-30-00001-of-00002.safetensors";
  std::string bytes = ReadText(part);
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
  WriteText(part, bytes);
  const Outcome broken = Ckpt({"verify", At("a"), "--json=" + At("v.json")});
  EXPECT_EQ(broken.code, 1);
  ASSERT_EQ(broken.errors.size(), 1u) << broken.err;
  EXPECT_THAT(broken.errors[0], AllOf(HasSubstr(part + ": tensor \""), HasSubstr("changed")));
  EXPECT_EQ(ReadJson(At("v.json")).back()["state"], "broken");
  // One that others can do without.
  EXPECT_THAT(Ckpt({"show", At("a")}).err, HasSubstr("the checkpoint before it is looked at"));
}

// It reads the job's memory, and ps/0 writes down for it how good that was.
TEST_F(CkptTest, TheBestByAnEvaluatorIsKeptToo) {
  const Outcome outcome =
      Train({"--ps=2", "--train_steps=600", "--validation_size=500", "--evaluator",
             "--eval_steps=50", "--slow_worker=0:2ms,1:2ms", "--save_steps=40",
             "--keep_checkpoints=1", "--checkpoint_dir=" + At("a"), "--report=" + At("r.json")});
  EXPECT_THAT(outcome.out, HasSubstr(", validation accuracy 0."));
  const auto facts = ReadJson(At("r.json"))["checkpoints"];
  EXPECT_GT(facts["best_accuracy"], 0.2);
  const std::string best = facts["best"];
  EXPECT_GE(std::stoll(best.substr(best.find('-') + 1)), facts["best_step"]);
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("evaluation at global step {}: ",
                                                 facts["best_step"].get<int>())));
  EXPECT_EQ(Ckpt({"verify", At("a/best")}).code, 0);
}

TEST_F(CkptTest, TheBestByValidationIsKeptAndHasAName) {
  const std::vector<std::string> validation = {"--validation_size=500",
                                               "--worker_eval_set=validation"};
  Train(With(validation, {"--ps=2", "--train_steps=400", "--worker_eval_steps=100",
                          "--slow_worker=0:1ms", "--save_steps=40", "--keep_checkpoints=1",
                          "--checkpoint_dir=" + At("a"), "--report=" + At("r.json")}));
  const auto facts = ReadJson(At("r.json"))["checkpoints"];
  EXPECT_GE(facts["saved"], 2);
  EXPECT_EQ(facts["failed"], 0);
  EXPECT_EQ(facts["newest"], "model.ckpt-400");
  EXPECT_GT(facts["best_accuracy"], 0.2);
  const std::string best = facts["best"];
  EXPECT_GE(std::stoll(best.substr(best.find('-') + 1)), facts["best_step"]);
  const Outcome list = Ckpt({"ls", At("a")});
  EXPECT_THAT(list.out, HasSubstr(fmt::format("best (validation accuracy {:.4f} at step {})",
                                              facts["best_accuracy"].get<double>(),
                                              facts["best_step"].get<int>())));
  EXPECT_THAT(Ckpt({"show", At("a/best")}).out, HasSubstr(best + ": "));
  EXPECT_EQ(Ckpt({"verify", At("a/best")}).code, 0);
  EXPECT_EQ(sandbox_.Run({"eval", "--params=" + At("a/best"), "--data_dir=" + Digits()}).code, 0);
  // Nothing that does worse takes its place, nor is it deleted.
  const Outcome more = sandbox_.Run(sandbox_.Train(
      With(validation,
           {"--hidden_units=16", "--batch_size=20", "--mode=barrier", "--workers=1",
            "--learning_rate=0.9", "--train_steps=420", "--worker_eval_steps=10", "--save_steps=10",
            "--keep_checkpoints=1", "--checkpoint_dir=" + At("a"), "--report=" + At("r.json")})));
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("goes on from " + At("a/model.ckpt-400")));
  const auto then = ReadJson(At("r.json"))["checkpoints"];
  EXPECT_EQ(then["best"], best);
  EXPECT_EQ(then["resumed_from"], At("a/model.ckpt-400"));
  EXPECT_EQ(Ckpt({"verify", At("a/best")}).code, 0);
}

// Who looks every now and then has not looked at them.
TEST_F(CkptTest, TheValuesThatAJobEndsWithMayBeTheBest) {
  for (const std::vector<std::string>& who : std::vector<std::vector<std::string>>{
           {"--worker_eval_set=validation"},
           {"--worker_eval_set=validation", "--ps=0", "--workers=1"},
           {"--evaluator", "--eval_interval=1000"}}) {
    SCOPED_TRACE(who[0]);
    const std::string folder = At(fmt::format("{}-{}", who[0].substr(2), who.size()));
    const Outcome outcome = sandbox_.Run(sandbox_.Train(With(
        who, {"--hidden_units=16", "--batch_size=20", "--validation_size=500", "--train_steps=400",
              "--checkpoint_dir=" + folder, "--report=" + At("r.json")})));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto facts = ReadJson(At("r.json"))["checkpoints"];
    EXPECT_EQ(facts["best"], facts["newest"]) << outcome.err;
    EXPECT_GT(facts["best_accuracy"], 0.3);
    EXPECT_GE(facts["best_step"], 400);
    EXPECT_EQ(Ckpt({"verify", folder + "/best"}).code, 0);
    EXPECT_EQ(outcome.out.find(", validation accuracy ") != std::string::npos,
              who[0] == "--evaluator")
        << outcome.out;
  }
}

TEST_F(CkptTest, NothingIsWrongWhileAJobSavesAndDeletes) {
  Program job = sandbox_.Start(
      sandbox_.Train({"--hidden_units=16", "--batch_size=20", "--train_steps=100000000", "--ps=2",
                      "--checkpoint_dir=" + At("a"), "--save_steps=1", "--keep_checkpoints=1"}));
  ASSERT_TRUE(job.WaitFor("saved checkpoint")) << job.Err();
  for (int turn = 0; turn < 8; ++turn) {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"ls", At("a")}, {"show", At("a")}, {"verify", At("a")}, {"diff", At("a"), At("a")}}) {
      const Outcome outcome = Ckpt(words);
      EXPECT_TRUE(outcome.code == 0 || (words[0] == "diff" && outcome.code == 1))
          << words[0] << ": " << outcome.err;
      EXPECT_THAT(outcome.out, Not(HasSubstr("not there"))) << words[0];
    }
  }
  EXPECT_EQ(sandbox_.Interrupt(job).code, 130);
}

TEST_F(CkptTest, WrongUsageHasASentence) {
  Train({"--ps=1", "--train_steps=10", "--checkpoint_dir=" + At("a")});
  WriteText(At("text"), "no tensors");
  std::filesystem::create_directory(At("empty"));
  const Outcome json = Ckpt({"ls", At("a"), "--json=-"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["folder"], At("a"));
  EXPECT_THAT(json.err, HasSubstr("CHECKPOINT "));
  EXPECT_EQ(Ckpt({"ls", At("empty")}).out, At("empty") + " has no checkpoints\n");
  EXPECT_THAT(WrongUsage({"ls", At("nowhere")}), HasSubstr("cannot list " + At("nowhere")));
  for (const char* one : {"a/model.ckpt-10", "a/model.ckpt-7", "a/model.ckpt-10.safetensors"}) {
    EXPECT_THAT(WrongUsage({"ls", At(one)}),
                HasSubstr(At(one) +
                          " is one checkpoint, and ls lists those of a folder: use "
                          "passel ckpt ls " +
                          At("a") + ", or "));
  }
  EXPECT_THAT(WrongUsage({"show", At("empty")}), HasSubstr("has no checkpoint: name a folder"));
  EXPECT_THAT(WrongUsage({"show", At("text")}), HasSubstr(At("text")));
  EXPECT_THAT(WrongUsage({"show", At("a/best")}), HasSubstr("has no best checkpoint"));
  EXPECT_THAT(WrongUsage({"show", At("a/model.ckpt-7")}), HasSubstr("is not there"));
  EXPECT_THAT(WrongUsage({"verify", At("nowhere")}), HasSubstr("No such file"));
  EXPECT_THAT(WrongUsage({"verify", At("empty")}),
              HasSubstr("there is no checkpoint in " + At("empty") + ", so nothing was verified"));
  EXPECT_THAT(WrongUsage({"diff", At("a"), At("nowhere")}), HasSubstr("No such file"));
  EXPECT_THAT(WrongUsage({"export", At("a"), At("values.pb")}),
              EndsWith("which say the format: add one of them"));
  EXPECT_THAT(WrongUsage({"export", At("a"), At("a/model.ckpt-10.safetensors")}),
              HasSubstr("is the name of a checkpoint"));
  EXPECT_EQ(Ckpt({"export", At("a"), At("values.npz"), "--slots"}).code, 0);
  const Outcome broken = Ckpt({"verify", At("text")});
  EXPECT_EQ(broken.code, 1) << broken.err;
}

}  // namespace
}  // namespace passel::testing
