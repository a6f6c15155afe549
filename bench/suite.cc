#include "bench/suite.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/subprocess.h"
#include "data/digits.h"
#include "lab/processes.h"

namespace passel::bench {

int Suite::UsableCores() { return static_cast<int>(UsableCpus().size()); }

Suite::~Suite() {
  if (!remove_data_) return;
  std::error_code ignored;  // a directory of ours in the temporary directory: no harm if it stays
  std::filesystem::remove_all(data_dir_, ignored);
}

Result<std::string> Suite::DataDir() {
  if (!data_dir_.empty()) return data_dir_;
  if (!settings_.data_dir.empty()) {
    data_dir_ = settings_.data_dir;
    return data_dir_;
  }
  std::string dir = std::filesystem::temp_directory_path() / "passel-bench-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) {
    return ErrnoStatus(errno, fmt::format("cannot create {}", dir));
  }
  data_dir_ = dir;
  remove_data_ = true;
  const std::uint32_t train = settings_.smoke ? 1000 : 60000;
  PASSEL_RETURN_IF_ERROR(WriteGeneratedDigits(data_dir_, train, train / 6, /*seed=*/1));
  return data_dir_;
}

void Suite::Register(const std::string& name, const Row& row, int pairs,
                     std::function<Status(benchmark::State&, Row&)> body) {
  const auto run = [this, name, row, body = std::move(body)](benchmark::State& state) {
    Row found = row;
    found.benchmark = name;
    if (lab::Interrupted()) {
      state.SkipWithError("interrupted");
      return;
    }
    const lab::CpuTimes before = lab::ReadCpuTimes();
    Status status;
    if (found.not_applicable.empty()) status = body(state, found);
    const lab::CpuTimes after = lab::ReadCpuTimes();
    found.load = lab::LoadBetween(before, after);
    found.seconds = 1e-9 * static_cast<double>(after.at_ns - before.at_ns);
    if (lab::Interrupted()) {  // an incomplete row is none
      state.SkipWithError("interrupted");
      return;
    }
    if (!found.not_applicable.empty()) {
      state.SkipWithError(found.not_applicable.c_str());
    } else if (!status.ok()) {
      found.error = status.message();
      state.SkipWithError(found.error.c_str());
    } else {
      state.counters["measured"] = found.measured;
      if (found.limit) state.counters[found.is_reference ? "reference" : "limit"] = *found.limit;
      if (found.ratio) state.counters["ratio"] = *found.ratio;
      if (found.latency) {
        state.counters["p50"] = found.latency->p50;
        state.counters["p99"] = found.latency->p99;
        state.counters["p999"] = found.latency->p999;
        state.counters["max"] = found.latency->maximum;
      }
      state.SetLabel(found.unit);
    }
    report_.Add(std::move(found));
  };
  names_.push_back(name);
  register_.push_back([name, run, pairs] {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Iterations(pairs);
  });
}

void Suite::RegisterPlain(const std::string& name, std::function<void(benchmark::State&)> body) {
  names_.push_back(name);
  register_.push_back([name, body = std::move(body)] {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Iterations(1);
  });
}

void Suite::Select(const std::function<bool(const std::string&)>& wanted) {
  selected_.clear();
  for (const std::string& name : names_) {
    if (wanted(name)) selected_.push_back(name);
  }
}

void Suite::RunSelected(benchmark::BenchmarkReporter* reporter) {
  // Google Benchmark appends to the names, so that its own filter would not understand a '$'.
  for (std::size_t i = 0, next = 0; i < names_.size() && next < selected_.size(); ++i) {
    if (names_[i] != selected_[next]) continue;
    register_[i]();
    ++next;
  }
  benchmark::RunSpecifiedBenchmarks(reporter, ".");
}

void Compare(const std::vector<double>& measured, const std::vector<double>& limit, Row* row) {
  row->measured = lab::Median(measured);
  row->limit = lab::Median(limit);
  row->pairs.clear();
  for (std::size_t i = 0; i < measured.size(); ++i) row->pairs.push_back(measured[i] / limit[i]);
  row->ratio = row->measured / *row->limit;
}

}  // namespace passel::bench
