// passel_bench - all benchmarks of this project, one table at the end (docs/benchmarks.md).
//
// It is a Google Benchmark program: --benchmark_out=FILE and the like work as usual.
// Exit codes: 0 done, whether targets are met or missed; 1 an answer was wrong; 2 wrong usage;
// 130 interrupted, with the table of what was complete.

#include <benchmark/benchmark.h>
#include <cblas.h>
#include <fmt/core.h>
#include <regex.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "bench/suite.h"
#include "lab/machine.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

// Google Benchmark's own lines would be in the table's way: progress goes to standard error.
class ProgressReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const double seconds = 1e-9 * static_cast<double>(MonotonicNs() - start_ns_);
      std::fprintf(stderr, "[%4.0f s] %s%s%s\n", seconds, run.run_name.function_name.c_str(),
                   run.error_occurred ? ": " : "",
                   run.error_occurred ? run.error_message.c_str() : "");
    }
  }

 private:
  const std::int64_t start_ns_ = MonotonicNs();
};

int Misuse(const std::string& sentence) {
  std::fprintf(stderr, "passel_bench: %s\n", sentence.c_str());
  return 2;
}

int Fail(const std::string& sentence) {
  std::fprintf(stderr, "passel_bench: %s\n", sentence.c_str());
  return 1;
}

// As Google Benchmark compiles it.
class Pattern {
 public:
  explicit Pattern(const std::string& text)
      : ok_(::regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB) == 0) {}
  ~Pattern() {
    if (ok_) ::regfree(&compiled_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  bool ok() const { return ok_; }
  bool Matches(const std::string& name) const {
    return ::regexec(&compiled_, name.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t compiled_;
  bool ok_;
};

// Empty if a file can be put there. Asked before the half hour whose results it is to hold.
std::string WhyNotWritable(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return "is a folder: name a file";
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (std::filesystem::is_directory(folder, ignored) && ::access(folder.c_str(), W_OK) == 0) {
    return "";
  }
  return "cannot be written: name a file in a folder that exists and is yours";
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes --benchmark_... out
  Settings settings;
  std::string json_path, filter = ".";
  bool list = false;
  std::error_code ignored;
  settings.program =
      std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename("passel");
  CLI::App app(
      "Benchmarks of passel: one table of what was measured against its limit or reference");
  app.add_option("--filter", filter, "Regular expression: only benchmarks whose name matches");
  app.add_option("--json", json_path, "Write everything to this file");
  app.add_option("--data_dir", settings.data_dir,
                 "Directory with the four IDX files; else digits are drawn");
  app.add_option("--program", settings.program, "The passel program")->capture_default_str();
  app.add_option("--run_seconds", settings.run_seconds,
                 "Length of one training run (default 0.3, with --full 0.5)")
      ->check(CLI::Range(0.02, 60.0));
  app.add_flag("--full", settings.full,
               "Every cell that a person would ask about, more pairs, longer runs: at most half an "
               "hour");
  app.add_flag("--smoke", settings.smoke, "Tiny sizes: only to see that everything works");
  app.add_flag("--list", list, "Print the names and do nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Misuse(error.what());
  }
  const Result<SlowPush> slow_push = SlowPush::FromEnvironment();
  if (!slow_push.ok()) return Misuse(slow_push.status().message());
  settings.slow_push = *slow_push;
  const Pattern pattern(filter);
  if (filter.empty()) return Misuse("--filter is empty: leave it out for all benchmarks");
  if (!pattern.ok()) return Misuse(fmt::format("--filter {} is no regular expression", filter));
  if (std::isnan(settings.run_seconds)) {
    return Misuse("--run_seconds is not a number: give it seconds from 0.02 to 60");
  }
  if (!json_path.empty()) {
    const std::string problem = WhyNotWritable(json_path);
    if (!problem.empty()) return Misuse(fmt::format("--json {} {}", json_path, problem));
  }

  if (!settings.data_dir.empty() && !std::filesystem::is_directory(settings.data_dir, ignored)) {
    return Misuse(fmt::format("--data_dir {} is no directory: name the one with the four IDX files",
                              settings.data_dir));
  }

  openblas_set_num_threads(1);
  SetLogLevel(LogLevel::kError);
  Report report;
  if (settings.slow_push.percent() > 0) {
    report.AddNote(
        fmt::format("PASSEL_BENCH_SLOW_PUSH: each push of BM_Push does {} % more on purpose",
                    settings.slow_push.percent()));
  }
  Suite suite(settings, report);
  RegisterLimitBenchmarks(suite);
  RegisterStoreBenchmarks(suite);
  RegisterRoundBenchmarks(suite);
  RegisterTrainingBenchmarks(suite);
  RegisterComputeBenchmarks(suite);
  RegisterLargeBenchmarks(suite);
  RegisterNvtxBenchmarks(suite);
  RegisterSummaryBenchmarks(suite);
  RegisterHookBenchmarks(suite);
  RegisterSaveBenchmarks(suite);
  RegisterProgramBenchmarks(suite);
  const auto matches = [&pattern](const std::string& name) { return pattern.Matches(name); };
  const Result<std::vector<lab::Cell>> cells =
      ChooseCells(settings, filter, matches, suite.usable_cores());
  if (!cells.ok()) return Misuse(cells.status().message());
  RegisterCellBenchmarks(suite, *cells);
  suite.Select(matches);
  if (list) {
    for (const std::string& name : suite.selected()) fmt::print("{}\n", name);
  }
  if (suite.selected().empty())
    return Misuse(fmt::format("no benchmark matches --filter {}: see --list", filter));
  if (list) return 0;

  lab::NoteInterrupts();
  Report::Run run;
  run.machine = lab::DescribeMachine();
  run.machine.emplace_back("OpenBLAS", fmt::format("core {}", openblas_get_corename()));
  run.usable_cores = suite.usable_cores();
  run.load_average_before = lab::LoadAverage();
  const lab::CpuTimes before = lab::ReadCpuTimes();
  ProgressReporter progress;
  suite.RunSelected(&progress);
  const lab::CpuTimes after = lab::ReadCpuTimes();
  run.load = lab::LoadBetween(before, after);
  run.seconds = 1e-9 * static_cast<double>(after.at_ns - before.at_ns);
  run.load_average_after = lab::LoadAverage();
  run.interrupted = lab::Interrupted();
  fmt::print("{}", report.ToTable(run));
  std::fflush(stdout);
  if (!json_path.empty()) {
    const std::string text = report.ToJson(run);
    const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
    const Status written = WriteFileAtomically(json_path, {&piece, 1});
    if (!written.ok()) return Fail(written.message());
  }
  if (!report.AllCorrect()) return Fail("an answer was wrong: see WRONG in the table");
  return run.interrupted ? 130 : 0;
}

}  // namespace
}  // namespace passel::bench

int main(int argc, char** argv) { return passel::bench::Main(argc, argv); }
