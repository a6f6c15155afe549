// Barrier rounds: what a round costs beside the work that is done in it.

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "bench/stores.h"
#include "bench/suite.h"
#include "lab/processes.h"
#include "optim/update_kernels.h"

namespace passel::bench {
namespace {

constexpr std::size_t kMaxRounds = 4000;

struct RoundLog {
  std::array<double, kMaxRounds> round_us;  // from the pull to the end of the wait
  std::array<double, kMaxRounds> work_us;   // the part of it that is the worker's own
  std::int64_t begin_ns, end_ns;
};

// Keeps the core busy for `spins` dependent additions, whatever else runs on it.
void Spin(std::int64_t spins) {
  double x = 1;
  for (std::int64_t i = 0; i < spins; ++i) {
    x = x * 0.999 + 1;
    benchmark::DoNotOptimize(x);
  }
}

// Spins that take `us` microseconds on an idle core: the fastest of several tries.
std::int64_t SpinsFor(double us) {
  constexpr std::int64_t kTry = 20000;
  double fastest = 1e9;
  for (int i = 0; i < 20; ++i) {
    const std::int64_t begin = MonotonicNs();
    Spin(kTry);
    fastest = std::min(fastest, 1e-3 * static_cast<double>(MonotonicNs() - begin));
  }
  return static_cast<std::int64_t>(us * kTry / fastest);
}

struct RoundJob {
  std::size_t elements = 0;
  std::string optimizer = "sgd";
  int workers = 2;
  int rounds = 0;
  std::int64_t spins = 0;  // of work in each round
  std::vector<std::vector<int>> cpus;
  int cores = 0;
};

// Worker k's gradient is 2^-10 (k + 1) everywhere: SGD with rate 0.5 gives exact sums.
constexpr float kUnit = 0x1p-10F;

Status RunRounds(const RoundJob& job, lab::SharedArray<RoundLog>& logs) {
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan,
                          lab::FlatPlan(Mode::kBarrier, job.optimizer, job.elements, job.workers));
  if (job.optimizer == "sgd") plan.optimizer.learning_rate = 0.5;
  PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, lab::CreateArena(plan));
  const Status ran =
      lab::RunProcesses(job.cpus, Soon(), [&](int worker, lab::Gate& gate) -> Status {
        PASSEL_ASSIGN_OR_RETURN(const shm::Arena mine, lab::AdoptArena(arena.fd()));
        const ShardMemory memory = mine.memory();
        PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ParameterStore> store,
                                OpenStore(plan, {&memory, 1}, worker, SelfIdentity(),
                                          lab::EngineFor(job.workers, job.cores)));
        if (worker == 0) {
          PASSEL_RETURN_IF_ERROR(store->Initialize([](VarId, std::span<float> values) {
            std::fill(values.begin(), values.end(), 0.0F);
          }));
        }
        PASSEL_RETURN_IF_ERROR(store->WaitUntilInitialized(Soon()));
        RoundLog& log = logs[static_cast<std::size_t>(worker)];
        PASSEL_RETURN_IF_ERROR(gate.Wait(Soon()));
        log.begin_ns = MonotonicNs();
        for (int r = 0; r < job.rounds; ++r) {
          const std::int64_t begin = MonotonicNs();
          PASSEL_ASSIGN_OR_RETURN(const ParamView view, store->Pull(PullMode::kView));
          const GradientBuffer gradient = store->LendGradient();
          const std::int64_t work_begin = MonotonicNs();
          Spin(job.spins);
          const std::span<float> values = gradient.values(0);
          std::fill(values.begin(), values.end(), kUnit * static_cast<float>(worker + 1));
          const std::int64_t work_end = MonotonicNs();
          PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store->Push(gradient, view.stamp(), Soon()));
          PASSEL_ASSIGN_OR_RETURN(const PushOutcome outcome, store->Wait(ticket, Soon()));
          const std::int64_t end = MonotonicNs();
          if (!outcome.applied || outcome.version != static_cast<Version>(r) + 1) {
            return Internal(
                fmt::format("round {} dropped a gradient or got another number", r + 1));
          }
          log.round_us[static_cast<std::size_t>(r)] = 1e-3 * static_cast<double>(end - begin);
          log.work_us[static_cast<std::size_t>(r)] =
              1e-3 * static_cast<double>(work_end - work_begin);
        }
        log.end_ns = MonotonicNs();
        return store->Leave();
      });
  PASSEL_RETURN_IF_ERROR(ran);
  if (job.optimizer != "sgd") return {};
  // The mean gradient is kUnit (workers + 1) / 2, applied `rounds` times.
  const float expected =
      -0.5F * kUnit * static_cast<float>(job.workers + 1) / 2 * static_cast<float>(job.rounds);
  for (std::size_t i = 0; i < job.elements; ++i) {
    const float value = arena.memory().values[i];
    if (std::abs(value - expected) > 1e-5F * std::abs(expected)) {
      return Internal(
          fmt::format("after {} rounds element {} is {}, not {}", job.rounds, i, value, expected));
    }
  }
  return {};
}

// The same work, everyone for himself: wall time per round.
Result<double> RunWithoutRounds(const RoundJob& job, lab::SharedArray<RoundLog>& logs) {
  const Status ran =
      lab::RunProcesses(job.cpus, Soon(), [&](int worker, lab::Gate& gate) -> Status {
        RoundLog& log = logs[static_cast<std::size_t>(worker)];
        PASSEL_RETURN_IF_ERROR(gate.Wait(Soon()));
        log.begin_ns = MonotonicNs();
        for (int r = 0; r < job.rounds; ++r) Spin(job.spins);
        log.end_ns = MonotonicNs();
        return {};
      });
  PASSEL_RETURN_IF_ERROR(ran);
  std::int64_t begin = INT64_MAX, end = 0;
  for (int k = 0; k < job.workers; ++k) {
    begin = std::min(begin, logs[static_cast<std::size_t>(k)].begin_ns);
    end = std::max(end, logs[static_cast<std::size_t>(k)].end_ns);
  }
  return 1e-3 * static_cast<double>(end - begin) / job.rounds;
}

// Two workers on two cores. The round of worker k that was not waiting for slower work: what is
// left of it after the longer of the two works.
Status BenchTwoWorkers(benchmark::State& state, Suite& suite, std::size_t elements,
                       const std::string& optimizer, Row& row) {
  RoundJob job;
  job.elements = elements;
  job.optimizer = optimizer;
  job.cpus = lab::OneCoreEach(2);
  job.cores = suite.usable_cores();
  job.rounds = suite.settings().smoke ? 20 : 2000;
  job.spins = SpinsFor(50);
  lab::SharedArray<RoundLog> logs(2);
  std::vector<double> all, measured;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_RETURN_IF_ERROR(RunRounds(job, logs));
    std::vector<double> above;
    for (std::size_t r = 0; r < static_cast<std::size_t>(job.rounds); ++r) {
      const double work = std::max(logs[0].work_us[r], logs[1].work_us[r]);
      for (std::size_t k = 0; k < 2; ++k) above.push_back(logs[k].round_us[r] - work);
    }
    state.SetIterationTime(1e-9 * static_cast<double>(logs[0].end_ns - logs[0].begin_ns));
    measured.push_back(lab::Median(above));
    all.insert(all.end(), above.begin(), above.end());
  }
  row.measured = lab::Median(measured);
  row.pairs = measured;
  row.latency = lab::Summarize(all);
  return {};
}

// Four workers that share two cores.
Status BenchFourOnTwo(benchmark::State& state, Suite& suite, Row& row) {
  RoundJob job;
  job.elements = 1000;
  job.workers = 4;
  std::vector<int> both;
  for (const auto& cpu : lab::OneCoreEach(2)) both.push_back(cpu[0]);
  job.cpus.assign(4, both);
  job.cores = 2;
  job.rounds = suite.settings().smoke ? 10 : 400;
  job.spins = SpinsFor(500);
  lab::SharedArray<RoundLog> logs(4);
  std::vector<double> all, measured, limit;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const double ideal, RunWithoutRounds(job, logs));
    PASSEL_RETURN_IF_ERROR(RunRounds(job, logs));
    std::int64_t begin = INT64_MAX, end = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      begin = std::min(begin, logs[k].begin_ns);
      end = std::max(end, logs[k].end_ns);
      all.insert(all.end(), logs[k].round_us.begin(), logs[k].round_us.begin() + job.rounds);
    }
    state.SetIterationTime(1e-9 * static_cast<double>(end - begin));
    measured.push_back(1e-3 * static_cast<double>(end - begin) / job.rounds);
    limit.push_back(ideal);
  }
  Compare(measured, limit, &row);
  row.latency = lab::Summarize(all);
  row.note = "limit: the same work of the same four processes without rounds";
  return {};
}

}  // namespace

void RegisterRoundBenchmarks(Suite& suite) {
  const int cores = suite.usable_cores();
  const std::string too_few = cores >= 2 ? "" : fmt::format("needs 2 cores, {} is usable", cores);
  const auto two = [&](std::size_t elements, const char* optimizer, const Target& target,
                       const char* note) {
    Row row;
    row.what =
        fmt::format("barrier round above the work, {} floats, {}, 2 workers", elements, optimizer);
    row.unit = "us";
    row.target = target;
    row.not_applicable = too_few;
    row.note = note;
    suite.Register(fmt::format("BM_Round/opt:{}/elems:{}/workers:2/cores:2", optimizer, elements),
                   row, suite.settings().Pairs(5),
                   [&suite, elements, optimizer](benchmark::State& state, Row& found) {
                     return BenchTwoWorkers(state, suite, elements, optimizer, found);
                   });
  };
  two(16, "sgd", AtMost(5), "");
  two(79510, "adam", NoTarget(), "the mean and the update of all elements are in it");
  Row row;
  row.what = "barrier round, 500 us of work, 4 workers on 2 cores";
  row.unit = "us";
  row.target = RatioAtMost(1.15);
  row.not_applicable = too_few;
  suite.Register("BM_Round/opt:sgd/elems:1000/workers:4/cores:2", row, suite.settings().Pairs(5),
                 [&suite](benchmark::State& state, Row& found) {
                   return BenchFourOnTwo(state, suite, found);
                 });
}

}  // namespace passel::bench
