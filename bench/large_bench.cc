// Steps of large models against the products alone that they are made of, and what a second thread
// of the matrix library is worth to either.

#include <cblas.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/denormals.h"
#include "bench/model_training.h"
#include "bench/suite.h"
#include "compute/cpu_backend.h"
#include "data/dataset.h"
#include "lab/processes.h"
#include "lab/samples.h"

namespace passel::bench {
namespace {

// The products of one step, on operands of their own, laid out as those of src/nn.
class BareProducts {
 public:
  BareProducts(std::vector<std::size_t> widths, std::size_t batch)
      : widths_(std::move(widths)), batch_(batch) {
    std::size_t widest = 0, largest = 0;
    for (std::size_t i = 0; i + 1 < widths_.size(); ++i) {
      widest = std::max({widest, widths_[i], widths_[i + 1]});
      largest = std::max(largest, widths_[i] * widths_[i + 1]);
    }
    x_.assign(batch_ * (widest + 16), 0.5F);
    y_.assign(batch_ * (widest + 16), 0.25F);
    for (std::size_t i = 0; i + 1 < widths_.size(); ++i) {
      weights_.emplace_back(widths_[i] * widths_[i + 1], 1e-3F);
      gradients_.emplace_back(widths_[i] * widths_[i + 1]);
    }
  }

  void Step() {
    const auto last = widths_.size() - 1;
    for (std::size_t i = 0; i < last; ++i) {
      Multiply(false, false, batch_, widths_[i + 1], widths_[i], x_, Line(widths_[i]), weights_[i],
               widths_[i + 1], y_, Line(widths_[i + 1]));
    }
    for (std::size_t i = last; i-- > 0;) {
      Multiply(true, false, widths_[i], widths_[i + 1], batch_, x_, Line(widths_[i]), y_,
               Line(widths_[i + 1]), gradients_[i], widths_[i + 1]);
      if (i == 0) break;
      Multiply(false, true, batch_, widths_[i], widths_[i + 1], y_, Line(widths_[i + 1]),
               weights_[i], widths_[i + 1], x_, Line(widths_[i]));
    }
    // What was multiplied again and again must not grow.
    std::fill(x_.begin(), x_.end(), 0.5F);
  }

 private:
  static std::size_t Line(std::size_t width) { return (width + 15) / 16 * 16; }
  static void Multiply(bool ta, bool tb, std::size_t m, std::size_t n, std::size_t k,
                       const std::vector<float>& a, std::size_t lda, const std::vector<float>& b,
                       std::size_t ldb, std::vector<float>& c, std::size_t ldc) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a.data(),
                static_cast<int>(lda), b.data(), static_cast<int>(ldb), 0, c.data(),
                static_cast<int>(ldc));
  }

  const std::vector<std::size_t> widths_;
  const std::size_t batch_;
  std::vector<float> x_, y_;
  std::vector<std::vector<float>> weights_, gradients_;
};

template <typename Work>
Result<double> Milliseconds(int times, const Work& work) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const std::int64_t begin = MonotonicNs();
    PASSEL_RETURN_IF_ERROR(work());
    all.push_back(1e-6 * static_cast<double>(MonotonicNs() - begin));
  }
  return lab::Median(all);
}

constexpr int kPairs = 3;  // of tiny sizes, too: the note is of them all

struct LargeLog {
  std::size_t parameters;
  double step_ms[2], update_ms[2], products_ms[2];  // with one thread, with two
};

struct LargeCase {
  std::vector<std::size_t> hidden;
  std::size_t batch;
  std::string optimizer;
  int most_threads;  // 1 or 2
};

Status RunLarge(const Dataset& data, const LargeCase& the_case, int steps, LargeLog* log) {
  const FlushDenormals flushing;
  std::vector<std::size_t> widths = the_case.hidden;
  widths.insert(widths.begin(), data.train().image_pixels);
  widths.push_back(data.num_classes());
  BareProducts products(widths, the_case.batch);
  ModelTrainingOptions options{the_case.hidden, the_case.optimizer, the_case.most_threads,
                               the_case.batch};
  PASSEL_ASSIGN_OR_RETURN(const auto training, ModelTraining::Create(data, options));
  log->parameters = training->floats();
  Batches batches(data.train().size(), the_case.batch);
  for (int threads = 1; threads <= the_case.most_threads; ++threads) {
    PASSEL_RETURN_IF_ERROR(SetThreads(threads));
    PASSEL_RETURN_IF_ERROR(training->Step(batches.Next()));  // first touches
    products.Step();
    const auto at = static_cast<std::size_t>(threads - 1);
    std::vector<double> step, update, product;
    for (int i = 0; i < steps; ++i) {  // in turns
      PASSEL_ASSIGN_OR_RETURN(const double p,
                              Milliseconds(1, [&] { return products.Step(), Status(); }));
      PASSEL_ASSIGN_OR_RETURN(const double s,
                              Milliseconds(1, [&] { return training->Step(batches.Next()); }));
      PASSEL_ASSIGN_OR_RETURN(const double u,
                              Milliseconds(1, [&] { return training->Update(), Status(); }));
      product.push_back(p);
      step.push_back(s);
      update.push_back(u);
    }
    log->step_ms[at] = lab::Median(step);
    log->update_ms[at] = lab::Median(update);
    log->products_ms[at] = lab::Median(product);
  }
  return {};
}

// Of the medians of all pairs, as the row itself; times in ms.
std::string Note(std::size_t parameters, double step, double products, double update) {
  return fmt::format(
      "{:.1f} M parameters; a step {:.4g} ms: products {:.4g} ({:.0f} %), update {:.4g} ({:.0f} "
      "%), "
      "the rest {:.4g}",
      1e-6 * static_cast<double>(parameters), step, products, 100 * products / step, update,
      100 * update / step, step - products - update);
}

Status Bench(benchmark::State& state, Suite& suite, const LargeCase& the_case, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  const int steps = suite.settings().smoke ? 1 : 3;
  const auto with = static_cast<std::size_t>(the_case.most_threads - 1);
  std::vector<double> measured, limit, one_thread, step, products, update;
  std::size_t parameters = 0;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    lab::SharedArray<LargeLog> logs(1);
    std::vector<int> cores;
    for (const auto& one : lab::OneCoreEach(the_case.most_threads)) cores.push_back(one[0]);
    PASSEL_RETURN_IF_ERROR(lab::RunProcesses(
        {cores}, Deadline::After(std::chrono::seconds(300)),
        [&](int, lab::Gate&) { return RunLarge(*data, the_case, steps, &logs[0]); }));
    const LargeLog& log = logs[0];
    if (with == 0) {
      measured.push_back(1e3 / log.step_ms[0]);
      limit.push_back(1e3 / log.products_ms[0]);
    } else {
      measured.push_back(log.step_ms[0] / log.step_ms[1]);
      limit.push_back(log.products_ms[0] / log.products_ms[1]);
    }
    parameters = log.parameters;
    one_thread.push_back(log.step_ms[0]);
    step.push_back(log.step_ms[with]);
    products.push_back(log.products_ms[with]);
    update.push_back(log.update_ms[with]);
    state.SetIterationTime(1e-3 * log.step_ms[0]);
  }
  Compare(measured, limit, &row);
  row.note = Note(parameters, lab::Median(step), lab::Median(products), lab::Median(update));
  if (with > 0) row.note += fmt::format("; with one thread a step {:.4g}", lab::Median(one_thread));
  return {};
}

}  // namespace

void RegisterLargeBenchmarks(Suite& suite) {
  const bool smoke = suite.settings().smoke;
  const std::size_t wide = smoke ? 32 : 4096, less_wide = smoke ? 32 : 2048;
  const auto add = [&suite](const std::string& name, Row row, const LargeCase& the_case) {
    suite.Register(name, row, kPairs, [&suite, the_case](benchmark::State& state, Row& found) {
      return Bench(state, suite, the_case, found);
    });
  };
  for (const char* optimizer : {"sgd", "adam"}) {
    Row row;
    row.what = fmt::format("one worker's step, 784-{}-{}-10, {}; its products alone", wide, wide,
                           optimizer);
    row.unit = "steps/s";
    row.target = RatioAtLeast(optimizer == std::string("sgd") ? 0.9 : 0.85);
    add(fmt::format("BM_Large/opt:{}/hidden:{}/batch:256", optimizer, wide), row,
        {{wide, wide}, smoke ? std::size_t{16} : 256, optimizer, 1});
  }
  Row row;
  row.what = fmt::format("speed-up by a second thread, 784-{}-{}-10, sgd; of its products alone",
                         less_wide, less_wide);
  row.unit = "x";
  row.is_reference = true;
  row.target = RatioAtLeast(0.9);
  if (suite.usable_cores() < 2) row.not_applicable = "needs 2 cores, 1 is usable";
  add(fmt::format("BM_Threads/opt:sgd/hidden:{}/batch:256/threads:2", less_wide), row,
      {{less_wide, less_wide}, smoke ? std::size_t{16} : 256, "sgd", 2});
}

}  // namespace passel::bench
