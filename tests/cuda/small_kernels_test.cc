// The kernels beside the products, run by the emulator, against the CPU's code and by definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "compute/backend.h"
#include "compute/cpu_kernels.h"
#include "cuda/emulator.h"
#include "cuda/exact_buffer.h"
#include "optim/update_kernels.h"

namespace passel::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<std::uint32_t> Bits(const float* begin, std::size_t n) {
  std::vector<std::uint32_t> bits(n);
  for (std::size_t i = 0; i < n; ++i) bits[i] = std::bit_cast<std::uint32_t>(begin[i]);
  return bits;
}

TEST(Gather, IsThatOfTheCpu) {
  constexpr std::uint32_t kRows = 9;
  Random random(1);
  for (const std::uint32_t cols : {1u, 3u, 15u, 16u, 17u, 32u, 33u, 784u}) {
    for (const std::uint32_t batch : {0u, 1u, 7u, 100u}) {
      for (const std::size_t pad : {0u, 4u, 5u}) {
        SCOPED_TRACE(testing::Message() << cols << " pixels, batch " << batch << ", pad " << pad);
        const std::size_t ld = cols + pad;
        const std::size_t floats = batch == 0 ? 0 : (batch - 1) * ld + cols;
        ExactBuffer<std::uint8_t> pixels(std::size_t{kRows} * cols), labels(kRows), got(batch);
        for (auto& p : pixels) p = static_cast<std::uint8_t>(random.Below(256));
        for (auto& l : labels) l = static_cast<std::uint8_t>(random.Below(10));
        ExactBuffer<std::uint32_t> indices(batch);
        for (auto& i : indices) i = static_cast<std::uint32_t>(random.Below(kRows));
        ExactBuffer<float> out(floats), wanted(floats);
        CpuKernelsFor(CpuIsa::kBaseline)
            ->gather(pixels.data(), cols, indices.data(), batch, wanted.data(), ld);
        Emulate(MakeGather({pixels.data(), labels.data(), indices.data(), batch, cols, out.data(),
                            ld, got.data()}),
                &random);
        // The padding, poisoned in both, too.
        EXPECT_EQ(Bits(out.data(), floats), Bits(wanted.data(), floats));
        for (std::size_t b = 0; b < batch; ++b) EXPECT_EQ(got[b], labels[indices[b]]);
      }
    }
  }
}

struct EntropyCase {
  std::uint32_t batch, classes;
  float spread;  // of the logits
  float clip, scale;
};

struct EntropyOutcome {
  double loss = 0;
  std::size_t correct = 0;
  std::vector<std::uint32_t> gradient;
};

EntropyOutcome OnCpu(std::vector<float> logits, std::size_t ld, const EntropyCase& t,
                     const std::uint8_t* labels) {
  EntropyOutcome outcome;
  CpuKernelsFor(CpuIsa::kBaseline)
      ->cross_entropy(logits.data(), t.batch, t.classes, ld, labels, t.clip, t.scale, &outcome.loss,
                      &outcome.correct);
  outcome.gradient = Bits(logits.data(), logits.size());
  return outcome;
}

EntropyOutcome Emulated(const std::vector<float>& logits, std::size_t ld, const EntropyCase& t,
                        const std::uint8_t* labels, Random* random) {
  ExactBuffer<float> y(logits.size());
  std::copy(logits.begin(), logits.end(), y.begin());
  ExactBuffer<std::uint8_t> l(t.batch);
  std::copy_n(labels, t.batch, l.begin());
  CrossEntropyKernel kernel;
  kernel.logits = y.data();
  kernel.ld = ld;
  kernel.labels = l.data();
  kernel.batch = t.batch;
  kernel.classes = t.classes;
  kernel.clip = t.clip;
  kernel.scale = t.scale;
  ExactBuffer<LossPart> parts(kernel.grid().blocks_x);
  kernel.parts = parts.data();
  Emulate(kernel, random);
  EntropyOutcome outcome;
  for (const LossPart& part : parts) {
    outcome.loss += part.loss;
    outcome.correct += part.correct;
  }
  outcome.gradient = Bits(y.data(), y.size());
  return outcome;
}

TEST(CrossEntropy, IsThatOfTheCpuBitByBit) {
  Random random(2);
  for (const std::uint32_t batch : {1u, 2u, 15u, 16u, 17u, 100u, 333u}) {
    for (const std::uint32_t classes : {1u, 2u, 3u, 10u, 17u, 255u, 256u}) {
      for (const float spread : {1.f, 30.f, 1000.f}) {
        for (const float clip : {0.f, kProbabilityClip}) {
          const EntropyCase t{batch, classes, spread, clip, spread == 1 ? 1.f : 0.01f};
          SCOPED_TRACE(testing::Message() << "batch " << batch << ", classes " << classes
                                          << ", spread " << spread << ", clip " << clip);
          const std::size_t ld = classes + random.Below(4);
          std::vector<float> logits((batch - 1) * ld + classes);
          for (float& y : logits) y = static_cast<float>(random.Normal()) * spread;
          // Equal largest logits now and then.
          for (std::size_t b = 0; b + 1 < batch; b += 5) logits[b * ld] = logits[b * ld + ld - 1];
          std::vector<std::uint8_t> labels(batch);
          for (auto& l : labels) l = static_cast<std::uint8_t>(random.Below(classes));
          const EntropyOutcome wanted = OnCpu(logits, ld, t, labels.data());
          const EntropyOutcome got = Emulated(logits, ld, t, labels.data(), &random);
          EXPECT_EQ(got.correct, wanted.correct);
          EXPECT_NEAR(got.loss, wanted.loss, 1e-12 * std::abs(wanted.loss) + 1e-12);
          EXPECT_EQ(got.gradient, wanted.gradient);
        }
      }
    }
  }
}

TEST(CrossEntropy, LogitsThatAreNotFiniteShowAsOnTheCpu) {
  const std::vector<std::uint8_t> labels = {0, 1, 2, 0, 1};
  const EntropyCase t{5, 3, 1, kProbabilityClip, 1};
  std::vector<float> logits = {kNan, 1, 2, 1, kNan, 2, 1, 2, kInf, -kInf, 0, 0, 1, 2, 3};
  const EntropyOutcome wanted = OnCpu(logits, 3, t, labels.data());
  const EntropyOutcome got = Emulated(logits, 3, t, labels.data(), nullptr);
  EXPECT_TRUE(std::isnan(wanted.loss));
  EXPECT_TRUE(std::isnan(got.loss));
  EXPECT_EQ(got.correct, wanted.correct);
  for (std::size_t i = 0; i < got.gradient.size(); ++i) {
    const auto a = std::bit_cast<float>(got.gradient[i]);
    const auto b = std::bit_cast<float>(wanted.gradient[i]);
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i << ": " << a << ", " << b;
  }
}

TEST(CrossEntropy, AnEmptyBatchIsNothing) {
  EXPECT_EQ(Emulated({}, 3, {0, 3, 1, 0, 1}, nullptr, nullptr).loss, 0);
}

TEST(ReluMask, IsZeroWhereTheValueIsNotAboveZero) {
  Random random(3);
  for (const std::uint32_t rows : {0u, 1u, 7u, 64u}) {
    for (const std::uint32_t cols : {1u, 5u, 64u}) {
      const std::size_t ldh = cols + 1, ldd = cols + 2;
      ExactBuffer<float> h(rows == 0 ? 0 : (rows - 1) * ldh + cols);
      ExactBuffer<float> d(rows == 0 ? 0 : (rows - 1) * ldd + cols);
      FillNormal(h, random);
      FillNormal(d, random);
      if (h.size() > 2) h[0] = kNan, h[1] = 0;
      const std::vector<float> before(d.begin(), d.end());
      Emulate(ReluMaskKernel{h.data(), ldh, d.data(), ldd, rows, cols}, &random);
      for (std::size_t i = 0; i < d.size(); ++i) {
        const std::size_t b = i / ldd, j = i % ldd;
        const bool zero = j < cols && h[b * ldh + j] <= 0;
        EXPECT_EQ(d[i], zero ? 0 : before[i]);
      }
    }
  }
}

TEST(NonFinite, CountsThoseAmongMillions) {
  Random random(4);
  for (const std::size_t count : {0u, 1u, 3u, 4u, 5u, 2047u, 2048u, 2049u, 79510u}) {
    for (const std::size_t shift : {0u, 4u}) {
      ExactBuffer<float> data(count, shift);
      std::uint32_t found = 0;
      const NonFiniteKernel kernel = MakeNonFinite(data.data(), count, &found);
      EXPECT_EQ(kernel.quads, shift == 0);
      for (float& x : data) x = static_cast<float>(random.Normal()) * 1e38f;
      std::replace_if(
          data.begin(), data.end(), [](float x) { return !std::isfinite(x); },
          std::numeric_limits<float>::max());
      Emulate(kernel, &random);
      EXPECT_EQ(found, 0u);
      std::uint32_t wanted = 0;
      for (int i = 0; i < 8 && count != 0; ++i) {
        const std::size_t at = i == 0 ? count - 1 : random.Below(count);
        data[at] = i % 3 == 0 ? kNan : i % 3 == 1 ? kInf : -kInf;
        const auto bad = static_cast<std::uint32_t>(
            std::count_if(data.begin(), data.end(), [](float x) { return !std::isfinite(x); }));
        Emulate(kernel, &random);
        wanted += bad;
        EXPECT_EQ(found, wanted) << "it adds";
      }
    }
  }
}

TEST(Report, AddsUpAndSignals) {
  Random random(5);
  for (const std::uint32_t count : {1u, 7u, 32u, 33u, 1000u}) {
    ExactBuffer<LossPart> parts(count);
    ExactBuffer<std::uint32_t> nonfinite(count);
    double loss = 0;
    std::uint64_t correct = 0;
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = {random.Uniform(), static_cast<std::uint32_t>(random.Below(100)), 0};
      loss += parts[i].loss;
      correct += parts[i].correct;
      nonfinite[i] = 0;
    }
    const std::uint64_t number = 77 + count;
    StepReportLine line;
    const ReportKernel kernel{parts.data(), count, nonfinite.data(), count, &number, &line};
    Emulate(kernel, &random);
    EXPECT_NEAR(line.loss, loss, 1e-9);
    EXPECT_EQ(line.correct, correct);
    EXPECT_EQ(line.nonfinite, 0u);
    EXPECT_EQ(line.number, number);
    // Once: the counters begin at 0 for the next step.
    for (const bool again : {false, true}) {
      if (!again) nonfinite[count - 1] = 1;
      Emulate(kernel, &random);
      EXPECT_EQ(line.nonfinite, again ? 0u : 1u);
      EXPECT_EQ(line.where, again ? count : count - 1);
    }
    nonfinite[count - 1] = 1;
    nonfinite[count / 2] = 5;
    Emulate(kernel, &random);
    EXPECT_EQ(line.nonfinite, count / 2 == count - 1 ? 5u : 6u);
    EXPECT_EQ(line.where, count / 2);
  }
}

TEST(UpdateGate, LetsTheRateThroughForALossThatIsFinite) {
  Random random(8);
  const float asked = 0.125f;
  for (const std::uint32_t count : {1u, 31u, 32u, 33u, 1000u}) {
    ExactBuffer<LossPart> parts(count);
    for (LossPart& part : parts) part = {random.Uniform(), 1, 0};
    ExactBuffer<float> rate(1);
    const UpdateGateKernel gate{parts.data(), count, &asked, rate.data()};
    Emulate(gate, &random);
    EXPECT_EQ(rate[0], asked);
    for (const double bad : {static_cast<double>(kNan), static_cast<double>(kInf)}) {
      const std::size_t at = random.Below(count);
      const double kept = parts[at].loss;
      parts[at].loss = bad;
      Emulate(gate, &random);
      EXPECT_EQ(rate[0], 0.f) << "part " << at << " of " << count;
      parts[at].loss = kept;
    }
  }
}

// --- Updates -----------------------------------------------------------------------------------

TEST(AtomicSgd, OneWriterGivesTheCpusBits) {
  Random random(7);
  OptimizerConfig config;
  config.kind = OptimizerKind::kSgd;
  config.learning_rate = 0.03;
  const StepScalars scalars = Prepare(config, 1);
  for (const std::size_t count : {0u, 1u, 5u, 1024u, 1031u}) {
    ExactBuffer<float> got(count), wanted(count), gradient(count);
    FillNormal(got, random);
    FillNormal(gradient, random);
    std::copy(got.begin(), got.end(), wanted.begin());
    Emulate(AtomicSgdKernel<>{&scalars, got.data(), gradient.data(), count}, &random);
    Apply(scalars, wanted.data(), nullptr, gradient.data(), count);
    EXPECT_EQ(Bits(got.data(), count), Bits(wanted.data(), count));
  }
}

// The counting workload: each update adds one, and every sum of ones is exact.
TEST(AtomicSgd, WritersAtTheSameTimeLoseNothing) {
  constexpr std::size_t kCount = 1031;
  constexpr int kWriters = 4, kUpdates = 200;
  OptimizerConfig config;
  config.kind = OptimizerKind::kSgd;
  config.learning_rate = 1;
  const StepScalars scalars = Prepare(config, 1);
  ExactBuffer<float> values(kCount), gradient(kCount);
  std::fill(values.begin(), values.end(), 0.f);
  std::fill(gradient.begin(), gradient.end(), -1.f);
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < kUpdates; ++i) {
        Emulate(AtomicSgdKernel<>{&scalars, values.data(), gradient.data(), kCount}, nullptr);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (const float v : values) ASSERT_EQ(v, kWriters * kUpdates);
}

TEST(Fetch, CopiesEveryWordAndNothingElse) {
  Random random(11);
  for (const std::size_t count : {0u, 1u, 3u, 4u, 5u, 1023u, 1024u, 1031u}) {
    for (const std::size_t shift : {0u, 4u}) {
      ExactBuffer<float> from(count, shift), to(count, shift);
      FillNormal(from, random);
      // Bits as they are, whatever they are the bits of.
      if (count > 2) from[2] = std::bit_cast<float>(0x7fa12345u);
      const FetchKernel kernel = MakeFetch(to.data(), from.data(), count * sizeof(float));
      EXPECT_EQ(kernel.quads, shift == 0);
      Emulate(kernel, &random);
      EXPECT_EQ(Bits(to.data(), count), Bits(from.data(), count));
    }
  }
}

}  // namespace
}  // namespace passel::cuda
