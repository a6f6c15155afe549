// passel_product_bench - libraries that multiply matrices, on the products of a training step
// (docs/benchmarks.md, "Products").
//
// Each library is in a process of its own, since OpenBLAS chooses its kernels when it is opened.
// All are pinned to one core and take turns, and so does a measurement of the core's peak.
//
// Exit codes: 0 done; 1 an answer was wrong or a library failed; 2 wrong usage; 130 interrupted,
// with the table of what was complete.

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/file.h"
#include "bench/products/comparison.h"
#include "bench/products/library.h"
#include "bench/products/runner.h"
#include "lab/machine.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

struct Flags {
  bool quick = false;
  double seconds = 160;
  std::string libraries, json, vectors;
};

double SecondsSince(std::int64_t begin_ns) {
  return 1e-9 * static_cast<double>(MonotonicNs() - begin_ns);
}

// The children inherit what is left.
void IgnoreKernelVariables() {
  for (const char* name : KernelVariables()) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    std::fprintf(stderr, "passel_product_bench: %s=%s is ignored\n", name, value);
    ::unsetenv(name);
  }
}

class Comparer {
 public:
  Comparer(const Flags& flags, VectorSet set) : flags_(flags) { found_.set = set; }

  Status Start() {
    for (const LibraryChoice& choice : LibraryChoices(found_.set, !flags_.vectors.empty())) {
      if (choice.is_passels) found_.passels = choice.name;
      Result<Runner> runner = Runner::Start(choice, flags_.libraries);
      if (runner.ok()) {
        if (choice.is_passels) found_.chosen = runners_.size();
        found_.libraries.push_back(choice.name);
        found_.kernels.push_back(runner->kernels());
        runners_.push_back(std::make_unique<Runner>(std::move(*runner)));
      } else if (runner.status().code() == Code::kNotFound) {
        found_.missing.emplace_back(choice.name, runner.status().message());
      } else {
        return runner.status();
      }
    }
    if (runners_.empty()) return NotFound("no library is there at all: install libopenblas0");
    return {};
  }

  // Turns of all libraries until the time of this cell is over.
  Status Measure(const Shape& shape, bool cold, double seconds) {
    const int least_turns = flags_.quick ? 1 : 3, most_turns = flags_.quick ? 2 : 100;
    const std::int64_t begin = MonotonicNs();
    Cell cell{shape, cold, {}, std::vector<Times>(runners_.size())};
    for (int turn = 0; turn < most_turns; ++turn) {
      if (turn >= least_turns && SecondsSince(begin) > seconds) break;
      double peak = 0;
      for (std::size_t i = 0; i < runners_.size(); ++i) {
        if (lab::Interrupted()) return {};  // without a cell that is not complete
        // Who comes first finds the core in another state: they take turns.
        const std::size_t which = (i + static_cast<std::size_t>(turn)) % runners_.size();
        for (int run = 0; run < 3; ++run) peak = std::max(peak, MeasurePeak(found_.set));
        Result<Timing> timing = runners_[which]->Measure(shape, cold, flags_.quick ? 50 : 500);
        if (!timing.ok()) return timing.status().WithContext(shape.Name());
        if (!timing->has_it) continue;
        if (!timing->correct) wrong_ += runners_[which]->name() + ": " + shape.Name() + "\n";
        cell.of[which].push_back(timing->microseconds);
      }
      cell.peak.push_back(peak);
    }
    found_.cells.push_back(std::move(cell));
    return {};
  }

  const Comparison& found() const { return found_; }
  const std::string& wrong() const { return wrong_; }

 private:
  const Flags& flags_;
  Comparison found_;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::string wrong_;
};

int Say(int code, const std::string& sentence) {
  std::fprintf(stderr, "passel_product_bench: %s\n", sentence.c_str());
  return code;
}

int Run(const Flags& flags, VectorSet set) {
  lab::NoteInterrupts();
  IgnoreKernelVariables();
  const std::int64_t begin = MonotonicNs();
  const lab::CpuTimes before = lab::ReadCpuTimes();
  std::vector<lab::Fact> machine = lab::DescribeMachine();
  // The children inherit it.
  const int core = lab::OneCoreEach(1)[0][0];
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  ::sched_setaffinity(0, sizeof cores, &cores);
  Comparer comparer(flags, set);
  Status status = comparer.Start();
  if (!status.ok()) return Say(1, status.message());
  const std::vector<Shape> shapes = Shapes(flags.quick);
  const double seconds = flags.seconds / static_cast<double>(2 * shapes.size());
  double said = 0;
  for (std::size_t i = 0; i < shapes.size() && status.ok() && !lab::Interrupted(); ++i) {
    if (const double now = SecondsSince(begin); now > said + 10) {
      said = now;
      std::fprintf(stderr, "[%4.0f s] %zu of %zu products: %s\n", now, i, shapes.size(),
                   shapes[i].Name().c_str());
    }
    for (const bool cold : {false, true}) {
      if (status.ok()) status = comparer.Measure(shapes[i], cold, seconds);
    }
  }
  const lab::OtherLoad load = lab::LoadBetween(before, lab::ReadCpuTimes());
  machine.emplace_back(
      "load", fmt::format("{:.1f} % steal, load average {}", 100 * load.steal, lab::LoadAverage()));
  machine.emplace_back("length of the run", fmt::format("{:.0f} s", SecondsSince(begin)));
  for (const auto& [what, value] : machine) fmt::print("{:<18} {}\n", what, value);
  fmt::print("\n{}", comparer.found().ToTable());
  if (lab::Interrupted()) fmt::print("interrupted: what was not complete is missing above\n");
  std::fflush(stdout);
  if (!flags.json.empty()) {
    Json json = comparer.found().ToJson();
    json["format"] = 1;
    json["quick"] = flags.quick;
    json["interrupted"] = lab::Interrupted();
    for (const auto& [what, value] : machine) json["machine"][what] = value;
    const std::string text = json.Write(1) + "\n";
    const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
    const Status written = WriteFileAtomically(flags.json, {&piece, 1});
    if (!written.ok()) return Say(1, written.message());
  }
  if (!comparer.wrong().empty()) return Say(1, "WRONG answers of\n" + comparer.wrong());
  if (!status.ok()) return Say(1, status.message());
  return lab::Interrupted() ? 130 : 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Libraries that multiply matrices, on the products of a training step: which share of the "
      "core's peak does each reach?");
  app.add_flag("--quick", flags.quick, "A few tiny products, once: does everything work?");
  app.add_option("--seconds", flags.seconds,
                 "For all products together; the largest take two minutes more")
      ->check(CLI::Range(1.0, 36000.0))
      ->capture_default_str();
  app.add_option("--libraries", flags.libraries,
                 "Folder with libraries (bench/peers/setup), before those of the system");
  app.add_option("--vectors", flags.vectors,
                 "avx2: every library is told to use AVX2 alone, as if there were no AVX-512; "
                 "OpenBLAS's own choice is left out")
      ->check(CLI::IsMember({"avx2"}));
  app.add_option("--json", flags.json, "Write everything to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Say(2, error.what());
  }
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(flags.json).parent_path();
  if (!flags.json.empty() &&
      !std::filesystem::is_directory(folder.empty() ? "." : folder, ignored)) {
    return Say(2, fmt::format("--json {}: there is no such folder", flags.json));
  }
  if (!flags.libraries.empty() && !std::filesystem::is_directory(flags.libraries, ignored)) {
    return Say(2, fmt::format("--libraries {} is no folder", flags.libraries));
  }
  const VectorSet best = BestVectorSet();
  if (!flags.vectors.empty() && best < VectorSet::kAvx2) {
    return Say(2, "--vectors avx2: this processor has no AVX2");
  }
  return Run(flags, flags.vectors.empty() ? best : VectorSet::kAvx2);
}

}  // namespace
}  // namespace passel::bench

int main(int argc, char** argv) { return passel::bench::Main(argc, argv); }
