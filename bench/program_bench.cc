// The program as users start it, and the bytes that a job takes.

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/subprocess.h"
#include "bench/stores.h"
#include "bench/suite.h"
#include "lab/processes.h"
#include "train/model_plan.h"

namespace passel::bench {
namespace {

// A file that goes away with us.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("passel-bench-{}-{}", ::getpid(), name)) {}
  ~ScratchFile() { ::unlink(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr double kMiB = 1 << 20;

constexpr std::size_t kMaxReportBytes = 1 << 24;

struct ProgramRun {
  double startup_seconds = 0;
  double seconds = 0;
  int global_step = 0;
};
void JsonMembers(JsonReader& members, ProgramRun& run) {
  members.MayHaveOthers();
  members("startup_seconds", run.startup_seconds);
  members("seconds", run.seconds);
  members("global_step", run.global_step);
}

Result<ProgramRun> TrainOnce(Suite& suite, const std::string& data_dir) {
  const ScratchFile report("report.json"), output("output.txt");
  const int steps = suite.settings().smoke ? 20 : 300;
  SpawnOptions spawn;
  // Through a shell, so that what the program says lands in a file and not in the table.
  spawn.executable = "/bin/sh";
  spawn.name = "sh";
  spawn.arguments = {"-c",
                     "out=$1; shift; exec \"$@\" > \"$out\" 2>&1",
                     "sh",
                     output.path(),
                     suite.settings().program,
                     "train",
                     "--ps=1",
                     "--workers=2",
                     fmt::format("--train_steps={}", steps),
                     fmt::format("--data_dir={}", data_dir),
                     fmt::format("--report={}", report.path())};
  PASSEL_ASSIGN_OR_RETURN(Subprocess program, Subprocess::Spawn(spawn));
  PASSEL_ASSIGN_OR_RETURN(const ExitState end,
                          program.Reap(Deadline::After(std::chrono::seconds(60))));
  if (end.signalled || end.code != 0) {
    std::ifstream said(output.path());
    std::string last;
    for (std::string line; std::getline(said, line);) last = line;
    return Internal(fmt::format("passel train {}: {}", end.ToString(), last));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> bytes,
                          ReadFile(report.path(), kMaxReportBytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseJson("the report of passel train", text, 4));
  ProgramRun run;
  PASSEL_RETURN_IF_ERROR(ReadJson("the report of passel train", json, &run));
  if (run.global_step < steps) {
    return Internal(fmt::format("the report of passel train lacks {} steps", steps));
  }
  return run;
}

Status BenchStartup(benchmark::State& state, Suite& suite, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string data_dir, suite.DataDir());
  PASSEL_RETURN_IF_ERROR(TrainOnce(suite, data_dir).status());  // warms the page cache
  std::vector<double> startup, whole;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const ProgramRun run, TrainOnce(suite, data_dir));
    startup.push_back(run.startup_seconds);
    whole.push_back(run.seconds);
    state.SetIterationTime(run.startup_seconds);
  }
  row.measured = lab::Median(startup);
  row.pairs = startup;
  row.latency = lab::Summarize(startup);
  row.note = fmt::format("the whole run with its evaluation {:.2f} s", lab::Median(whole));
  return {};
}

// What the values, slots and gradients of a plan take.
double NeededMiB(const StorePlan& plan) {
  const int copies = 1 + NumSlots(plan.optimizer) + plan.num_workers * plan.gradient_slots;
  return static_cast<double>(plan.variables.TotalElements() * sizeof(float)) * copies / kMiB;
}

Status BenchBytes(benchmark::State& state, const StorePlan& plan, Row& row) {
  const std::size_t floats = plan.variables.TotalElements();
  for (auto _ : state) {
    const std::int64_t begin = MonotonicNs();
    PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, lab::CreateArena(plan));
    state.SetIterationTime(1e-9 * static_cast<double>(MonotonicNs() - begin));
    if (arena.memory().floats < floats) return Internal("the arena has too few values");
    row.measured = static_cast<double>(arena.bytes()) / kMiB;
  }
  row.limit = NeededMiB(plan);
  row.ratio = row.measured / *row.limit;
  row.pairs = {*row.ratio};
  row.note = "limit: values, slots and gradients alone; target: 2 % and 2 MiB above it";
  return {};
}

}  // namespace

void RegisterProgramBenchmarks(Suite& suite) {
  Row startup;
  startup.what = "passel train, start to first step, 2 workers";
  startup.unit = "s";
  startup.target = AtMost(0.3);
  if (::access(suite.settings().program.c_str(), X_OK) != 0) {
    startup.not_applicable = fmt::format("there is no program {}", suite.settings().program);
  }
  suite.Register(
      "BM_Startup/workers:2", startup, suite.settings().Pairs(7),
      [&suite](benchmark::State& state, Row& found) { return BenchStartup(state, suite, found); });

  const auto bytes = [&](const std::string& name, const std::string& what,
                         const Result<StorePlan>& plan, std::size_t needed) {
    Row row;
    row.what = what;
    row.unit = "MiB";
    if (plan.ok()) row.target = AtMost(1.02 * NeededMiB(*plan) + 2);
    const Status memory = lab::CheckFreeMemory(needed);
    if (!memory.ok()) row.not_applicable = memory.message();
    suite.Register(name, row, 1, [plan](benchmark::State& state, Row& found) -> Status {
      if (!plan.ok()) return plan.status();
      return BenchBytes(state, *plan, found);
    });
  };
  for (const Mode mode : {Mode::kHogwild, Mode::kBarrier}) {
    ModelConfig model = DefaultModelConfig(ModelKind::kMlp);
    model.hidden = {100};
    model.inputs = 784;
    model.classes = 10;
    const auto plan = [&]() -> Result<StorePlan> {
      StorePlan made;
      made.mode = mode;
      made.num_workers = 4;
      PASSEL_ASSIGN_OR_RETURN(made.optimizer, ParseOptimizer("adam"));
      PASSEL_ASSIGN_OR_RETURN(made.variables, PlaceModel(model, 1, {}));
      return made;
    };
    bytes(fmt::format("BM_ArenaBytes/mode:{}/opt:adam/elems:79510/workers:4", ModeName(mode)),
          fmt::format("arena, {}, 784-100-10, Adam, 4 workers", ModeName(mode)), plan(),
          std::size_t{16} << 20);
  }
  const std::size_t many = suite.settings().smoke ? 1'000'000 : 16'000'000;
  bytes(fmt::format("BM_ArenaBytes/mode:hogwild/opt:adam/elems:{}/workers:1", many),
        fmt::format("arena, hogwild, {} floats, Adam, 1 worker", many),
        lab::FlatPlan(Mode::kHogwild, "adam", many, 1), many * 17);
}

}  // namespace passel::bench
