// The reference programs as presets, through real processes: lines, stop rules, evaluation,
// results.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "e2e/preset_run.h"
#include "support/hand_started.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kPresets = {"dist-mnist", "monitored", "async-softmax",
                                           "k8s-adagrad", "mnist-replica"};

TEST(PresetTest, EveryFlagOfEveryPresetExists) {
  Sandbox sandbox;
  const std::string help = sandbox.Run({"train", "--help", "all"}).out;
  const std::string task_help = sandbox.Run({"task", "--help", "all"}).out;
  for (const std::string& preset : kPresets) {
    EXPECT_THAT(help, HasSubstr(preset));
    const Outcome shown = sandbox.Run({"train", "--print_preset", preset});
    EXPECT_EQ(shown.code, 0) << shown.err;
    const std::vector<std::string> lines = Lines(shown.out);
    ASSERT_GT(lines.size(), 5u);
    EXPECT_THAT(lines[0], HasSubstr(preset));
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::string flag = lines[i].substr(2, lines[i].find('=') - 2) + " ";
      EXPECT_THAT(help, HasSubstr("  " + flag)) << preset;
    }
    for (const std::string& line : Lines(sandbox.Run({"task", "--print_preset", preset}).out)) {
      if (!line.starts_with("  --")) continue;
      EXPECT_THAT(task_help, HasSubstr("  " + line.substr(2, line.find('=') - 2) + " ")) << preset;
    }
  }
  const Outcome unknown = sandbox.Run({"task", "--print_preset=mnist"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("the preset mnist is not known: use one of dist-mnist"));
}

// One worker: its run depends on its flags and its seed alone.
TEST(PresetTest, TypedOutItIsTheSameRun) {
  for (const std::string& preset : kPresets) {
    SCOPED_TRACE(preset);
    Sandbox sandbox;
    const std::vector<std::string> job = {"--workers=1", "--local_steps=40"};
    std::vector<std::string> typed = {"--save=" + sandbox.dir().File("typed")};
    for (const std::string& line : Lines(sandbox.Run({"train", "--print_preset", preset}).out)) {
      const std::string flag = line.substr(0, line.find('='));
      // Stop rules give way to the one that is given.
      // Data that is asked for must be there; the test has its own.
      const std::set<std::string> left_out = {"  --workers", "  --train_steps", "  --epochs",
                                              "  --data_dir"};
      if (flag.starts_with("  --") && !left_out.contains(flag)) typed.push_back(line.substr(2));
    }
    std::vector<std::string> named = {"--save=" + sandbox.dir().File("named"),
                                      "--preset=" + preset};
    for (auto* flags : {&typed, &named}) {
      flags->insert(flags->end(), job.begin(), job.end());
      const Outcome outcome = sandbox.Run(sandbox.Train(*flags));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
    }
    EXPECT_EQ(ReadText(sandbox.dir().File("typed")), ReadText(sandbox.dir().File("named")));
  }
}

TEST(PresetTest, WhatIsGivenWinsOverThePresetAndThePresetOverTheDefaults) {
  Sandbox sandbox;
  const std::string file = sandbox.dir().File("c.yaml");
  WriteText(file, "preset: dist-mnist\nbatch_size: 50\nlearning_rate: 0.5\n");
  const Outcome outcome = sandbox.Run({"task", "--config=" + file, "--learning_rate=0.25",
                                       "--job_name=worker", "--task_index=1", "--print_config"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::map<std::string, std::string> settings;  // "value origin" by name
  for (const std::string& line : Lines(outcome.out)) {
    settings[line.substr(0, line.find(' '))] =
        std::regex_replace(line.substr(line.find(' ') + 1), std::regex(" +"), " ");
  }
  EXPECT_EQ(settings["learning_rate"], " 0.25 flag --learning_rate");
  EXPECT_EQ(settings["batch_size"], " 50 file " + file + ":2");
  EXPECT_EQ(settings["train_steps"], " 20000 preset dist-mnist");
  EXPECT_EQ(settings["worker_hosts"], " localhost:2223,localhost:2224 preset dist-mnist");
  EXPECT_EQ(settings["seed"], " 1 default");
}

// The defaults of the programs, which a machine without them can do without.
TEST(PresetTest, DataAndGpusOfThePresetAreShownAndNeedNotBeThere) {
  const std::map<std::string, std::pair<std::string, std::string>> defaults = {
      {"dist-mnist", {"/PS/mnist.npz", "1"}},
      {"monitored", {"/data", "0"}},
      {"k8s-adagrad", {"/datanfs", "0"}},
      {"mnist-replica", {"/tmp/mnist-data", "0"}}};
  Sandbox sandbox;
  for (const auto& [preset, values] : defaults) {
    const std::string shown = sandbox.Run({"train", "--print_preset", preset}).out;
    EXPECT_THAT(shown, HasSubstr("  --data_dir=" + values.first + "\n"));
    const Outcome outcome =
        sandbox.Run({"task", "--preset=" + preset, "--print_config", "--job_name=ps",
                     "--task_index=0", "--ps_hosts=localhost:1", "--worker_hosts=localhost:2"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string row = R"(data_dir +)" + values.first + " +preset " + preset;
    EXPECT_EQ(CountMatches(outcome.out, row), 1u) << outcome.out;
    EXPECT_EQ(CountMatches(outcome.out, "num_gpus +" + values.second + " +.*"), 1u);
  }
  if (std::filesystem::exists("/PS/mnist.npz")) GTEST_SKIP() << "this machine has /PS/mnist.npz";
  // No --data_dir: wherever data is found next, one line says that it is not the preset's.
  const std::string cache = sandbox.dir().File("cache");
  std::filesystem::create_directories(cache + "/passel");
  std::filesystem::copy(Digits(), cache + "/passel/mnist");
  sandbox.SetEnv("XDG_CACHE_HOME", cache);
  const Outcome run = sandbox.Run(
      {"train", "--preset=dist-mnist", "--train_steps=20", "--job_id=" + sandbox.job()});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("(Not the data of preset dist-mnist: cannot use the data in "
                                 "/PS/mnist.npz: No such file or directory.)"));
  EXPECT_THAT(run.err, HasSubstr("all workers compute on the CPU, not on gpu:0 (--num_gpus 1 of "
                                 "preset dist-mnist)"));
  const Outcome cpu = sandbox.Run({"train", "--preset=dist-mnist", "--num_gpus=0",
                                   "--train_steps=20", "--job_id=" + sandbox.job()});
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_EQ(cpu.err.find("on the CPU"), std::string::npos) << cpu.err;
}

// The command lines of the programs, as their readers paste them.
TEST(PresetTest, FlagsOfTheProgramsAreTaken) {
  Sandbox sandbox;
  const std::vector<std::string> worker = {"task", "--print_config", "--job_name=worker",
                                           "--task_index=0"};
  const auto shown = [&](std::vector<std::string> more) {
    more.insert(more.begin(), worker.begin(), worker.end());
    const Outcome outcome = sandbox.Run(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  const Outcome p0 = shown({"--preset=dist-mnist", "--train_dir=/PS/output", "--noexisting_servers",
                            "--nodownload_only", "--nosync_replicas"});
  EXPECT_EQ(p0.err, "");
  EXPECT_EQ(CountMatches(p0.out, "checkpoint_dir +/PS/output +.*"), 1u) << p0.out;
  const Outcome p1 = shown({"--preset=monitored", "--logs_dir=/logs", "--ps_hosts=localhost:1",
                            "--worker_hosts=localhost:2"});
  EXPECT_EQ(p1.err, "");
  const Outcome ignored = shown({"--preset=mnist-replica", "--replicas_to_aggregate=2"});
  EXPECT_THAT(ignored.err, HasSubstr("--replicas_to_aggregate 2 is not used"));
  EXPECT_EQ(CountMatches(ignored.out, "mode +hogwild +.*"), 1u) << ignored.out;
  EXPECT_EQ(shown({"--preset=mnist-replica", "--replicas_to_aggregate=2", "--sync_replicas"}).err,
            "");
}

TEST(PresetTest, DefaultsOfTheProgramsNameTheTask) {
  Sandbox sandbox;
  const Outcome p2 = sandbox.Run({"task", "--preset=async-softmax", "--print_config"});
  EXPECT_EQ(p2.code, 0) << p2.err;
  EXPECT_EQ(CountMatches(p2.out, "task +ps/0 +derived"), 1u) << p2.out;
  EXPECT_EQ(CountMatches(p2.out, "per_process_gpu_memory_fraction +0.2 +preset async-softmax"), 1u);
  const Outcome p3 = sandbox.Run({"task", "--preset=k8s-adagrad", "--print_config", "--job_name=ps",
                                  "--ps_hosts=localhost:1", "--worker_hosts=localhost:2"});
  EXPECT_EQ(p3.code, 0) << p3.err;
  EXPECT_EQ(CountMatches(p3.out, "task_index +0 +preset k8s-adagrad"), 1u) << p3.out;
}

TEST(PresetTest, TheFilesThatAreReadAreToldAsTheProgramsDo) {
  Sandbox sandbox;
  const Training run = TrainPreset(sandbox, "mnist-replica", {"--train_steps=10"});
  EXPECT_EQ(CountMatches(run.outcome.out, "Extracting .*(train|t10k)-(images|labels)-idx.*"), 4u)
      << run.outcome.out.substr(0, 2000);
  EXPECT_EQ(CountMatches(run.outcome.err, ".*no effect.*"), 0u) << run.outcome.err;
}

TEST(PresetTest, AChiefOfALaunchIsOneMoreWorker) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"launch", "chief=1", "ps=1", "worker=1", "--fake_data",
                                       "--train_steps=20", "--job_id=" + sandbox.job()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("chief=1: worker/0 is the chief"));
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("worker/1: "));
  EXPECT_EQ((outcome.out + outcome.err).find("worker/2: "), std::string::npos);
}

TEST(PresetTest, TheEnvironmentNamesTheClusterOfAPreset) {
  Sandbox sandbox;
  sandbox.SetEnv("TF_CONFIG",
                 R"({"cluster": {"ps": ["localhost:1"], "worker": ["localhost:2"]},
                     "task": {"type": "worker", "index": 0}})");
  const Outcome outcome = sandbox.Run({"task", "--preset=dist-mnist", "--print_config"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("localhost:2 "));
  EXPECT_EQ(outcome.out.find("localhost:2223"), std::string::npos);
  EXPECT_EQ(outcome.err, "") << "a default that loses is no conflict";
}

TEST(PresetTest, MnistReplicaNeedsAGpuForEachWorkerIfItIsToUseAny) {
  Sandbox sandbox;
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("worker", 0, 1, 2,
                                                 {"--preset=mnist-replica", "--num_gpus=1"})),
                        2),
              HasSubstr("number of gpus is less than number of workers"));
}

TEST(PresetTest, DistMnistPrintsEveryStepOfEveryWorker) {
  Sandbox sandbox;
  const Training run = TrainPreset(sandbox, "dist-mnist", {"--train_steps=300"});
  const std::string& out = run.outcome.out;
  for (const char* line :
       {"job name = ps", "job name = worker", "task index = 1", "worker_device: .*",
        "Worker 0: Initializing session\\.\\.\\.",
        "Worker 1: Waiting for session to be initialized\\.\\.\\.",
        "Worker 1: Session initialization complete\\.", "Training begins @ \\d+\\.\\d{6}",
        "Training ends @ \\d+\\.\\d{6}", "Training elapsed time: \\d+\\.\\d{6} s",
        "After 300 training step\\(s\\), validation cross entropy = [0-9.e+]+"}) {
    EXPECT_GE(CountMatches(out, line), 1u) << line << "\n" << out.substr(0, 2000);
  }
  std::vector<std::vector<std::string>> steps;
  CountMatches(out, R"(\d+\.\d{6}: Worker (\d): training step (\d+) done \(global step: (\d+)\))",
               &steps);
  EXPECT_EQ(steps.size(), run.report["local_steps"]);
  std::map<std::string, int> local;
  std::set<int> global;
  for (const auto& step : steps) {
    EXPECT_EQ(std::stoi(step[1]), ++local[step[0]]);
    EXPECT_TRUE(global.insert(std::stoi(step[2])).second) << "printed twice: " << step[2];
  }
  EXPECT_EQ(*global.begin(), 1);
  EXPECT_EQ(*global.rbegin(), run.report["global_step"]);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(PresetTest, K8sAdagradEvaluatesEveryMultipleOnce) {
  for (const char* mode : {"--mode=hogwild", "--mode=barrier"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    const Training run = TrainPreset(sandbox, "k8s-adagrad",
                                     {mode, "--train_steps=1050", "--worker_eval_steps=100"});
    const bool rounds = std::string(mode) == "--mode=barrier";
    const std::int64_t global = run.report["global_step"];
    EXPECT_GE(global, 1050);
    EXPECT_LE(global, rounds ? 1050 : 1051);
    EXPECT_EQ(run.report["local_steps"], rounds ? 2 * global : global);
    // Ten multiples, and each worker at its end.
    EXPECT_EQ(CountMatches(run.outcome.out, R"(acc: 0\.\d+|acc: 1)"), 12u);
    EXPECT_EQ(CountMatches(run.outcome.out, R"(cross entropy = [0-9.e+]+)"), 12u);
  }
}

TEST(PresetTest, MnistReplicaEvaluatesOnValidationImages) {
  Sandbox sandbox;
  const Training run = TrainPreset(sandbox, "mnist-replica", {"--train_steps=120", "--workers=1"});
  std::vector<std::vector<std::string>> lines;
  ASSERT_EQ(
      CountMatches(run.outcome.out,
                   R"(After 120 training steps,validation cross entropy = ([0-9.e+]+))", &lines),
      1u)
      << run.outcome.out;
  // Summed over 5000 validation images, which are as hard as the 1000 test images.
  const double validation = std::stod(lines[0][0]) / 5000;
  const double test = run.report["test_loss"];
  EXPECT_GT(validation, test / 3);
  EXPECT_LT(validation, 3 * test);
  EXPECT_EQ(CountMatches(run.outcome.out, R"(\d+\.\d{6}: worker 0: training step \d+ done .*)"),
            120u);
}

TEST(PresetTest, TasksByHandPrintTheLinesOfTheirPreset) {
  HandStarted job(
      1, 2,
      {"--preset=mnist-replica", "--train_steps=60", "--start_wait=20", "--slow_worker=0:20ms"});
  job.StartAll();
  job.ExpectEnd();
  const std::string chief = job["worker/0"].Out(), other = job["worker/1"].Out();
  EXPECT_EQ(job["ps/0"].Out(), "job name = ps\ntask index = 0\n");
  EXPECT_THAT(chief, HasSubstr("\nWorker 0:initializing sess ...\n"));
  EXPECT_THAT(other, HasSubstr("\nWorker 1:Waiting for session to be initialized...\n"));
  EXPECT_THAT(other, HasSubstr(" done (global step： "));
  EXPECT_THAT(other, HasSubstr("\nAfter 60 training steps,validation cross entropy = "));
}

// What the framework under the program logs about its servers, on standard error.
TEST(PresetTest, AsyncSoftmaxTasksLogTheirServersAndSessions) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--preset=async-softmax",
                                          "--local_steps=20",
                                          "--ps_hosts=localhost:9001",
                                          "--worker_hosts=localhost:9002,localhost:9003",
                                          "--per_process_gpu_memory_fraction=0.2",
                                          "--start_wait=20",
                                          "--data_dir=" + Digits(),
                                          "--job_id=" + sandbox.job()};
  const auto start = [&](const std::string& job, int index) {
    const std::vector<std::string> all =
        With({"task", "--job_name=" + job, fmt::format("--task_index={}", index)}, flags);
    return sandbox.Start(all);
  };
  Program ps = start("ps", 0), chief = start("worker", 0), other = start("worker", 1);
  for (Program* task : {&ps, &chief, &other}) {
    EXPECT_EQ(sandbox.Finish(*task, 20).code, 0) << task->Err();
    for (const char* line :
         {"Initialize GrpcChannelCache for job ps -> {0 -> localhost:9001}\n",
          "Initialize GrpcChannelCache for job worker -> {0 -> localhost:9002, 1 -> "
          "localhost:9003}\n"}) {
      EXPECT_THAT(task->Err(), HasSubstr(line));
    }
  }
  EXPECT_THAT(ps.Err(), HasSubstr("Started server with target: grpc://localhost:9001\n"));
  EXPECT_THAT(other.Err(), HasSubstr("Started server with target: grpc://localhost:9003\n"));
  EXPECT_TRUE(std::regex_search(
      other.Err(), std::regex("Start master session [0-9a-f]{16} with config: gpu_options \\{ "
                              "per_process_gpu_memory_fraction: 0\\.2 \\} "
                              "allow_soft_placement: true\n")))
      << other.Err();
}

TEST(PresetTest, MonitoredTellsTheRateOnceInAHundredSteps) {
  Sandbox sandbox;
  const Training run =
      TrainPreset(sandbox, "monitored", {"--train_steps=1000", "--ps=0", "--workers=1"});
  EXPECT_EQ(CountMatches(run.outcome.out, R"(global_step/sec: [0-9.e+]+)"), 9u) << run.outcome.out;
}

}  // namespace
}  // namespace passel::testing
