// passel run on two hosts with the same lists: each starts its own tasks, and the workers are a
// program with its own model (tests/capi/least_squares.c).

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "capi/fit.h"
#include "e2e/hosts_job.h"
#include "support/read_events.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Not;

// ps/0 and worker/0 here, worker/1 there, and with kThree worker/2 on a third host; with
// kChiefThere the two workers the other way round; with kTwoPs a ps/1 there.
enum class Places { kTwo, kThree, kChiefThere, kTwoPs };
class ProgramOnHosts {
 public:
  explicit ProgramOnHosts(TwoHosts& hosts, Places places = Places::kTwo)
      : hosts_(hosts), places_(places) {}

  std::string File(const std::string& name) { return sandbox_.dir().path() + "/" + name; }
  std::vector<std::string> Command(const std::vector<std::string>& flags,
                                   const std::string& script) {
    std::vector<std::string> command = {
        "run",
        fmt::format("--ps_hosts={}:2222", TwoHosts::kHere) +
            (places_ == Places::kTwoPs ? fmt::format(",{}:2223", TwoHosts::kThere) : ""),
        fmt::format("--worker_hosts={}:3222,{}:3223",
                    places_ == Places::kChiefThere ? TwoHosts::kThere : TwoHosts::kHere,
                    places_ == Places::kChiefThere ? TwoHosts::kHere : TwoHosts::kThere) +
            (places_ == Places::kThree ? fmt::format(",{}:3224", TwoHosts::kThird) : ""),
        "--job_id=" + sandbox_.job(),
        "--token_file=" + File("token"),
        "--optimizer=sgd",
        "--learning_rate=0.1",
        "--start_wait=30"};
    return With(With(command, flags), {"--", "/bin/sh", "-c", script});
  }
  // STEPS of least squares; a stop is heard in time, so SIGTERM is not needed.
  static std::string LeastSquares(long steps, const std::string& out) {
    return fmt::format("trap '' TERM; exec {} {} {} {}$RANK", PASSEL_LEAST_SQUARES, steps,
                       kFeatures, out);
  }
  Program& StartHere(const std::vector<std::string>& flags, const std::string& script) {
    here_ = sandbox_.Start(Command(flags, script));
    EXPECT_TRUE(here_.WaitFor(" is ready for its workers")) << here_.Err();
    return here_;
  }
  Program& StartThere(const std::vector<std::string>& flags, const std::string& script) {
    there_ = StartOn(hosts_.other_host(), flags, script);
    if (places_ == Places::kThree) third_ = StartOn(hosts_.third_host(), flags, script);
    return there_;
  }
  void Start(const std::vector<std::string>& flags, const std::string& script) {
    StartHere(flags, script);
    StartThere(flags, script);
  }
  void ExpectEnd(int here, int there) {
    EXPECT_EQ(sandbox_.Finish(here_, 30).code, here) << here_.Err() << here_.Out();
    EXPECT_EQ(sandbox_.Finish(there_, 30).code, there) << there_.Err() << there_.Out();
    if (places_ == Places::kThree) {
      EXPECT_EQ(sandbox_.Finish(third_, 30).code, there) << third_.Err() << third_.Out();
    }
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
  bool AwaitWorkers(int running, double seconds = 20) {
    const auto end = std::chrono::steady_clock::now() + Scaled(seconds);
    while (std::chrono::steady_clock::now() < end) {
      const nlohmann::json status = sandbox_.Status();
      if (status.is_object() && status.contains("arena") && status["arena"].is_object()) {
        const nlohmann::json& workers = status["arena"]["workers"];
        if (std::ranges::count_if(workers, [](const nlohmann::json& w) {
              return w["phase"] == "running" && w["local_steps"] > 0;
            }) == running) {
          return true;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  pid_t Worker(int index) { return sandbox_.Status()["arena"]["workers"][index]["pid"]; }
  Sandbox& sandbox() { return sandbox_; }
  Program& here() { return here_; }
  Program& there() { return there_; }
  Program& third() { return third_; }

 private:
  Program StartOn(const std::string& host, const std::vector<std::string>& flags,
                  const std::string& script) {
    return sandbox_.StartCommand(
        With({"/usr/bin/env", "nsenter", "--net=" + host, PASSEL_PROGRAM}, Command(flags, script)));
  }

  TwoHosts& hosts_;
  const Places places_;
  Sandbox sandbox_;
  Program here_, there_, third_;
};

constexpr long kNoEnd = 1'000'000'000;  // steps

using SeveralHostsProgramTest = SeveralHostsTest;

TEST_F(SeveralHostsProgramTest, WorkersOfBothTakeTheSameStepsAndShowTheirMetrics) {
  ProgramOnHosts job(*hosts_);
  const std::string script = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE here; " +
                             ProgramOnHosts::LeastSquares(60, job.File("fit"));
  const std::vector<std::string> flags = {"--mode=barrier", "--log_level=info"};
  // Before there is a secret, which comes to a folder that both hosts have.
  job.StartThere(flags, script);
  ASSERT_TRUE(job.there().WaitFor("waiting for it; start ps/0 on 10.77.0.1")) << job.there().Err();
  job.StartHere(With(flags, {"--report=" + job.File("report")}), script);
  job.ExpectEnd(0, 0);
  EXPECT_THAT(job.here().Out(), HasSubstr("worker/0: 0 of 2, 0 of 1 here"));
  EXPECT_THAT(job.there().Out(), HasSubstr("worker/1: 1 of 2, 0 of 1 here"));
  EXPECT_THAT(job.there().Err(), HasSubstr("worker/1 is on another host than ps/0 at "
                                           "10.77.0.1:2222: parameters travel by TCP, sealed"));
  for (const char* rank : {"0", "1"}) {
    SCOPED_TRACE(rank);
    const Fit fit = ReadFit(job.File("fit") + rank);
    EXPECT_EQ(fit.global_step, 60);
    EXPECT_EQ(fit.mode, "barrier");
    ExpectNear(fit.values, Descent(60, 0.1, 2), 1e-4);
  }
  // Of the host of ps/0.
  const nlohmann::json report = ReadJson(job.File("report"));
  ASSERT_EQ(report["workers"].size(), 2u) << report.dump();
  EXPECT_EQ(report["global_step"], 60);
  EXPECT_EQ(report["workers"][1]["metrics"]["worker"], 1);
  EXPECT_EQ(report["workers"][1]["metrics"]["step"], 59);
}

TEST_F(SeveralHostsProgramTest, WhoDiesComesBackAndOneCommandEndsTheJob) {
  ProgramOnHosts job(*hosts_);
  const std::string script = ProgramOnHosts::LeastSquares(kNoEnd, job.File("fit"));
  job.Start({"--grace=20"}, script);
  ASSERT_TRUE(job.AwaitWorkers(2)) << job.here().Err() << job.there().Err();
  const pid_t first = job.Worker(1);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_TRUE(job.there().WaitFor("worker/1 was killed by SIGKILL (9); starting it again"));
  for (int i = 0; i < 400 && (job.Worker(1) == first || !job.AwaitWorkers(2)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_NE(job.Worker(1), first);
  // The ps: worker/0 has kept the arena.
  const std::int64_t before = job.sandbox().GlobalStep();
  ASSERT_GT(before, 0);
  ASSERT_EQ(::kill(job.sandbox().TaskPid("ps", 0), SIGKILL), 0);
  ASSERT_TRUE(job.here().WaitFor("ps/0 was killed by SIGKILL (9); starting it again"));
  ASSERT_TRUE(job.here().WaitFor("took the arena")) << job.here().Err();
  ASSERT_TRUE(job.AwaitWorkers(2)) << job.here().Err() << job.there().Err();
  EXPECT_TRUE(job.sandbox().AwaitStep(before + 1));
  // Of the host without ps/0: all workers leave.
  job.there().Signal(SIGINT);
  job.ExpectEnd(0, 130);
  EXPECT_THAT(job.here().Err(), HasSubstr("the job was stopped on request"));
}

// A program may say by its code that it was stopped. That is no death, on either host.
// Its chief is on another host than ps/0, and shows TensorBoard the metrics of its own.
TEST_F(SeveralHostsProgramTest, WhoIsStoppedIsNotStartedAgain) {
  ProgramOnHosts job(*hosts_, Places::kChiefThere);
  job.Start({"--grace=20", "--max_restarts=5", "--logs_dir=" + job.File("logs")},
            fmt::format("trap '' TERM; {} {} {} {}$RANK; exit 130", PASSEL_LEAST_SQUARES, kNoEnd,
                        kFeatures, job.File("fit")));
  ASSERT_TRUE(job.AwaitWorkers(2)) << job.here().Err() << job.there().Err();
  ASSERT_TRUE(test::AwaitTag(job.File("logs"), "worker", Deadline::After(Scaled(20))))
      << job.there().Err();
  ASSERT_TRUE(job.sandbox().Advances(20));
  EXPECT_EQ(job.sandbox().Run({"ctl", "stop", job.sandbox().job()}).code, 0);
  job.ExpectEnd(130, 130);
  for (const Program* command : {&job.here(), &job.there()}) {
    EXPECT_THAT(command->Err(), AllOf(HasSubstr("the job was stopped on request"),
                                      Not(HasSubstr("starting it again"))));
  }
  const std::vector<std::string> files = test::EventFilesIn(job.File("logs"));
  ASSERT_EQ(files.size(), 1u) << job.there().Err();
  for (const char* const tag : {"worker", "step", "global_step/sec"}) {
    EXPECT_FALSE(test::StepsOfTag(files[0], tag).empty()) << tag;
  }
  EXPECT_TRUE(test::StepsOfTag(files[0], "worker_0/worker").empty());
}

std::vector<std::int64_t> SavedIn(const std::string& text) {
  std::vector<std::int64_t> steps;
  for (std::size_t at = 0; (at = text.find("saved ", at)) != text.npos;) {
    at += 6;
    if (std::isdigit(static_cast<unsigned char>(text[at])) != 0)
      steps.push_back(std::stoll(text.substr(at)));
  }
  return steps;
}

// It asks ps/0, which has the memory, or knows who has; the next job goes on from there.
TEST_F(SeveralHostsProgramTest, AChiefElsewhereSavesWhenItWantsTo) {
  for (const auto& [places, mode] :
       std::vector<std::pair<Places, std::string>>{{Places::kChiefThere, "--mode=barrier"},
                                                   {Places::kChiefThere, "--checkpoint_consistent"},
                                                   {Places::kChiefThere, "--mode=hogwild"},
                                                   {Places::kTwoPs, "--mode=barrier"},
                                                   {Places::kTwoPs, "--mode=locked"}}) {
    SCOPED_TRACE(mode + (places == Places::kTwoPs ? " on two ps" : ""));
    ProgramOnHosts job(*hosts_, places);
    const std::string folder = job.File("train");
    const std::vector<std::string> flags = {mode, "--checkpoint_dir=" + folder, "--save_secs=0",
                                            "--keep_checkpoints=0"};
    const std::string script = "export SAVE_EVERY=30; trap '' TERM; exec " PASSEL_LEAST_SQUARES
                               " 90 " +
                               std::to_string(kFeatures) + " " + job.File("fit") + "$RANK";
    job.Start(flags, script);
    job.ExpectEnd(0, 0);
    Program& chief = places == Places::kChiefThere ? job.there() : job.here();
    const std::vector<std::int64_t> saved = SavedIn(chief.Out());
    ASSERT_EQ(saved.size(), 3u) << chief.Out() << chief.Err() << job.here().Err();
    EXPECT_GE(saved[0], 30);
    EXPECT_GE(saved[1], saved[0] + 30);
    const bool exact = mode != "--mode=hogwild" && mode != "--mode=locked";
    if (mode == "--mode=barrier") {
      EXPECT_EQ(saved, (std::vector<std::int64_t>{30, 60, 90}));
    }
    for (const std::int64_t step : saved) {
      const Outcome show =
          job.sandbox().Run({"ckpt", "show", folder + "/model.ckpt-" + std::to_string(step)});
      EXPECT_EQ(show.code, 0) << show.err;
      if (exact) {
        EXPECT_THAT(show.out, HasSubstr("exact            true"));
      }
    }
    const std::int64_t end = ReadFit(job.File("fit") + "0").global_step;
    job.Start(flags, script);
    job.ExpectEnd(0, 0);
    EXPECT_GE(ReadFit(job.File("fit") + "0").global_step,
              end + (mode == "--mode=barrier" ? 90 : 100));
    if (mode == "--mode=barrier") {
      ExpectNear(ReadFit(job.File("fit") + "0").values, Descent(180, 0.1, 2), 1e-4);
    }
  }
}

// What it cannot have says why, and the job goes on.
TEST_F(SeveralHostsProgramTest, AChiefElsewhereHearsWhyNothingWasSaved) {
  ProgramOnHosts job(*hosts_, Places::kChiefThere);
  job.Start({"--mode=barrier"}, "export SAVE_EVERY=5; exec " PASSEL_LEAST_SQUARES " 90 " +
                                    std::to_string(kFeatures) + " " + job.File("fit") + "$RANK");
  job.ExpectEnd(1, 2);
  EXPECT_THAT(job.there().Err(), HasSubstr("passel_save: 5: this job makes no checkpoints"));
}

// The end of its connections says that a worker has died, whatever becomes of its children.
TEST_F(SeveralHostsProgramTest, AChildOfADeadWorkerKeepsNobodyWaiting) {
  ProgramOnHosts job(*hosts_);
  const std::string loader = job.File("loader");
  WriteText(loader, "");
  job.Start(
      {"--mode=barrier", "--lease=120", "--grace=20"},
      "export LOADER=" + loader + "; " + ProgramOnHosts::LeastSquares(kNoEnd, job.File("fit")));
  ASSERT_TRUE(job.AwaitWorkers(2)) << job.here().Err() << job.there().Err();
  ASSERT_EQ(::kill(job.Worker(1), SIGKILL), 0);
  ASSERT_TRUE(job.there().WaitFor("worker/1 was killed by SIGKILL (9); starting it again"));
  EXPECT_TRUE(job.sandbox().Advances(20)) << job.here().Err();
  std::filesystem::remove(loader);
  job.here().Signal(SIGINT);
  EXPECT_EQ(job.sandbox().Finish(job.here(), 30).code, 130) << job.here().Err();
  EXPECT_EQ(job.sandbox().Finish(job.there(), 30).code, 0) << job.there().Err();
}

TEST_F(SeveralHostsProgramTest, OneThatStopsTheJobAndFailsIsNamedByEachHost) {
  for (const Places places : {Places::kTwo, Places::kChiefThere}) {
    SCOPED_TRACE(places == Places::kTwo ? "there" : "here");
    ProgramOnHosts job(*hosts_, places);
    job.Start({"--mode=barrier"}, "export FAIL_AFTER=20; trap '' TERM; exec " PASSEL_LEAST_SQUARES
                                  " 1000000 " +
                                      std::to_string(kFeatures) + " " + job.File("fit") + "$RANK");
    const bool there = places == Places::kTwo;
    EXPECT_EQ(job.sandbox().Finish(there ? job.there() : job.here(), 30).code, 1);
    const Outcome other = job.sandbox().Finish(there ? job.here() : job.there(), 30);
    EXPECT_THAT((there ? job.there() : job.here()).Err(), HasSubstr("worker/1 exited with 7"));
    if (!there) continue;  // whose command may have ended before
    EXPECT_EQ(other.code, 1) << job.here().Err();
    EXPECT_THAT(job.here().Err(), HasSubstr("worker/1 on 10.77.0.2 exited with 7"));
  }
}

// How often each example was given, summed over both workers, and how often it was applied.
struct Shares {
  std::vector<int> given, applied;
};
constexpr int kExamples = 300;

Shares ReadShares(const std::string& path) {
  Shares shares{std::vector<int>(kExamples), std::vector<int>(kExamples)};
  for (const char* rank : {"0", "1"}) {
    std::istringstream text(ReadText(path + rank));
    int number = -1;
    for (int i = 0; i < kExamples && text >> number; ++i) shares.given[i] += number;
    for (int i = 0; i < kExamples && text >> number; ++i) {
      shares.applied[i] = std::max(shares.applied[i], number);
    }
    EXPECT_GE(number, 0) << "worker/" << rank << " has written nothing";
  }
  return shares;
}

// Batches of 2, two epochs. Each waits with its fifth batch for a file, `out` with "go".
std::string Share(const std::string& out) {
  return fmt::format("exec {} {} 2 2 {}go {}$RANK", PASSEL_SHARE, kExamples, out, out);
}

TEST_F(SeveralHostsProgramTest, TheyShareAnEpochAndADeathTakesNoExampleAlong) {
  ProgramOnHosts job(*hosts_);
  const std::vector<std::string> flags = {"--mode=locked"};
  job.Start(flags, Share(job.File("once")));
  ASSERT_TRUE(job.here().WaitFor("worker/0: waits")) << job.here().Err();
  ASSERT_TRUE(job.there().WaitFor("worker/1: waits")) << job.there().Err();
  WriteText(job.File("oncego"), "");
  job.ExpectEnd(0, 0);
  const Shares once = ReadShares(job.File("once"));
  EXPECT_THAT(once.given, Each(2));
  EXPECT_THAT(once.applied, Each(2));

  job.Start(flags, Share(job.File("again")));
  ASSERT_TRUE(job.there().WaitFor("worker/1: waits")) << job.there().Err();
  const pid_t victim = job.Worker(1);
  ASSERT_GT(victim, 1);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  ASSERT_TRUE(job.there().WaitFor("worker/1 was killed by SIGKILL (9); starting it again"));
  WriteText(job.File("againgo"), "");
  job.ExpectEnd(0, 0);
  EXPECT_THAT(ReadShares(job.File("again")).applied, Each(Ge(2)));
}

// Every value of every round is checked in both workers (tests/capi/far_rates.c).
TEST_F(SeveralHostsProgramTest, AChiefThatIsElsewhereSetsRatesAndGivesTheOptimizerItsState) {
  ProgramOnHosts job(*hosts_, Places::kChiefThere);
  job.Start({}, fmt::format("exec {}", PASSEL_FAR_RATES));
  job.ExpectEnd(0, 0);
  EXPECT_THAT(job.here().Out(), HasSubstr("read: Momentum of step 11"));
  // Both print it: the one that shares the memory of ps/0, and the one that asks.
  const std::string here = job.here().Out();
  const std::size_t at = here.find("beginning ");
  ASSERT_NE(at, std::string::npos) << here;
  EXPECT_THAT(job.there().Out(), HasSubstr(here.substr(at, here.find('\n', at) + 1 - at)));
  EXPECT_THAT(
      job.there().Out(),
      AllOf(HasSubstr("refused: this worker is on another host than ps/0 at "),
            HasSubstr("read the state of the optimizer in a worker on the host of all ps")));
}

TEST_F(SeveralHostsProgramTest, OneThatFailsForGoodIsWhyTheCommandOfEachHostFails) {
  if (hosts_->third_host().empty()) GTEST_SKIP() << "no third host can be made here";
  ProgramOnHosts job(*hosts_, Places::kThree);
  for (const int failing : {1, 0}) {
    SCOPED_TRACE(failing);
    const std::string go = job.File(fmt::format("go{}", failing));
    const std::string fit = job.File(fmt::format("fit{}", failing));
    const std::string train = ProgramOnHosts::LeastSquares(kNoEnd, fit);
    job.Start({"--grace=20", "--report=" + job.File("report")},
              fmt::format("if [ $RANK = {} ]; then ({})& while [ ! -e {} ]; do sleep 0.05; done; "
                          "kill -9 $!; echo last words >&2; exit 7; fi; {}",
                          failing, train, go, train));
    ASSERT_TRUE(job.AwaitWorkers(3)) << job.here().Err() << job.there().Err();
    WriteText(go, "");
    job.ExpectEnd(1, 1);
    const Program& its = failing == 1 ? job.there() : job.here();
    const Program& other = failing == 1 ? job.here() : job.there();
    const std::string sentence = fmt::format(
        "worker/{} on {} exited with 7 and ended the job: its traceback, or what else it said, is "
        "in the output there",
        failing, failing == 1 ? TwoHosts::kThere : TwoHosts::kHere);
    EXPECT_THAT(its.Err(), AllOf(HasSubstr(fmt::format("worker/{} exited with 7", failing)),
                                 HasSubstr("last words"), Not(HasSubstr("ended the job"))));
    for (const Program* one : {&other, static_cast<const Program*>(&job.third())}) {
      EXPECT_THAT(one->Err(), AllOf(HasSubstr(" E " + sentence), HasSubstr("note: " + sentence),
                                    Not(HasSubstr("last words")), Not(HasSubstr("on request"))));
    }
    // To its own end.
    EXPECT_EQ(ReadFit(fit + std::to_string(1 - failing)).mode, "hogwild");
  }

  // What is wrong with the lists.
  const auto refused = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> command = {"run", "--worker_hosts=192.0.2.7:3222"};
    return OnlyError(job.sandbox().Run(With(With(command, flags), {"--", "true"})));
  };
  EXPECT_THAT(refused({}), HasSubstr("`ps_hosts`"));
  EXPECT_THAT(refused({"--ps_hosts=192.0.2.7:2222"}), HasSubstr("no task of the lists is on this"));
  EXPECT_THAT(refused({"--ps_hosts=localhost:2222", "--workers=2"}), HasSubstr("omit --ps,"));
  EXPECT_THAT(refused({"--ps_hosts=localhost:2222"}), HasSubstr("--token_file FILE"));
  EXPECT_THAT(OnlyError(job.sandbox().Run({"run", "--token_file=x", "--", "true"})),
              HasSubstr("--token_file is for a job on several hosts"));
}

TEST_F(SeveralHostsProgramTest, OneThatFailsBeforeItJoinsIsWhyTheOthersEnd) {
  ProgramOnHosts job(*hosts_, Places::kThree);
  const std::string go = job.File("go");
  job.Start({"--grace=20"},
            fmt::format("echo started >&2; if [ $RANK = 0 ]; then while [ ! -e {} ]; do sleep "
                        "0.05; done; exit 7; fi; {}",
                        go, ProgramOnHosts::LeastSquares(kNoEnd, job.File("fit"))));
  for (Program* one : {&job.there(), &job.third()}) {
    ASSERT_TRUE(one->WaitFor("started")) << one->Err();
  }
  WriteText(go, "");
  job.ExpectEnd(1, 1);
  EXPECT_THAT(job.here().Err(), HasSubstr("worker/0 exited with 7"));
  for (Program* one : {&job.there(), &job.third()}) {
    EXPECT_THAT(one->Err(),
                AllOf(HasSubstr("worker/0 on 10.77.0.1 exited with 7 and ended the job"),
                      Not(HasSubstr("on request"))));
  }
}

// As an operator does it: each process is told what it is. Here all of them are of one host.
TEST(ProgramOfTfConfigTest, EachCommandStartsTheTaskThatItNames) {
  Sandbox sandbox;
  const std::string out = sandbox.dir().path() + "/fit";
  std::map<std::string, Program> commands;
  for (const char* type : {"ps", "chief", "worker"}) {
    sandbox.SetEnv(
        "TF_CONFIG",
        fmt::format(R"({{"cluster":{{"ps":["localhost:2222"],"chief":["localhost:3221"],)"
                    R"("worker":["localhost:3222"]}},"task":{{"type":"{}","index":0}}}})",
                    type));
    commands[type] = sandbox.Start({"run", "--job_id=" + sandbox.job(), "--optimizer=sgd",
                                    "--learning_rate=0.1", "--mode=barrier", "--start_wait=30",
                                    "--", "/bin/sh", "-c", ProgramOnHosts::LeastSquares(40, out)});
  }
  for (auto& [type, command] : commands) {
    EXPECT_EQ(sandbox.Finish(command, 30).code, 0) << type << command.Err() << command.Out();
  }
  for (const char* rank : {"0", "1"}) {  // the chief is the last
    EXPECT_EQ(ReadFit(out + rank).global_step, 40);
    ExpectNear(ReadFit(out + rank).values, Descent(40, 0.1, 2), 1e-4);
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing
