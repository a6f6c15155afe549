// cublaslt.cc against a library that computes in host memory and takes every attribute at its word
// (fake_cublaslt.cc).

#include "cuda/cublaslt.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/random.h"
#include "cuda/cublaslt_functions.h"
#include "cuda/emulator.h"
#include "cuda/exact_buffer.h"
#include "cuda/fake_device.h"
#include "cuda/large_gemm_emulator.h"
#include "cuda/plans_under_test.h"
#include "cuda/step_plan.h"
#include "cuda/step_world.h"

namespace passel::cuda {
namespace {

using testing::HasSubstr;
using Epilogue = LargeGemm::Epilogue;

constexpr Epilogue kAll[] = {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasRelu};
constexpr int kReluBias = 6;  // as cublasLt.h numbers it

class CublasLtTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("PASSEL_CUBLASLT_PATH", PASSEL_FAKE_CUBLASLT_LIBRARY, 1);
    setenv("PASSEL_FAKE_CUBLASLT", "", 1);
    void* const library = dlopen(PASSEL_FAKE_CUBLASLT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    complaints_ = reinterpret_cast<const char* (*)()>(dlsym(library, "FakeCublasltComplaints"));
    alive_ = reinterpret_cast<int (*)()>(dlsym(library, "FakeCublasltAlive"));
    ASSERT_TRUE(complaints_ != nullptr && alive_ != nullptr);
    complaints_();
    workspace_ = Aligned(CublasLt::kWorkspaceBytes);
    OpenAnew();
  }
  // One that has chosen nothing yet.
  void OpenAnew() {
    auto opened = CublasLt::Open(workspace_.get());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    library_ = std::move(opened).value();
  }
  void TearDown() override {
    EXPECT_STREQ(complaints_(), "");
    library_.reset();
    EXPECT_EQ(alive_(), 0);
    unsetenv("PASSEL_CUBLASLT_PATH");
    unsetenv("PASSEL_FAKE_CUBLASLT");
  }
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;
  static Memory Aligned(std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(posix_memalign(&memory, 256, bytes), 0);
    return Memory(memory);
  }

  // By the clock: this library has done what it was told when it returns.
  static Result<double> Stopwatch(const std::function<Status()>& queue) {
    const auto begin = std::chrono::steady_clock::now();
    PASSEL_RETURN_IF_ERROR(queue());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  static Status Choose(CublasLt::Matmul& matmul) {
    const Memory scratch = Aligned(matmul.scratch_bytes());
    return matmul.Choose(nullptr, scratch.get(), Stopwatch);
  }

  const char* (*complaints_)() = nullptr;
  int (*alive_)() = nullptr;
  Memory workspace_;
  std::unique_ptr<CublasLt> library_;
};

// A product with memory of exact sizes, `shift` bytes behind aligned addresses.
class Product {
 public:
  Product(Random& random, std::size_t m, std::size_t n, std::size_t k, bool transpose_a,
          bool transpose_b, Epilogue epilogue, std::size_t padding, std::size_t shift)
      : bias_(n, shift),
        a_((transpose_a ? k : m) * ((transpose_a ? m : k) + padding), shift),
        b_((transpose_b ? n : k) * ((transpose_b ? k : n) + padding), shift),
        c_(m * (n + padding), shift) {
    for (auto* buffer : {&bias_, &a_, &b_}) FillNormal(*buffer, random);
    gemm.transpose_a = transpose_a;
    gemm.transpose_b = transpose_b;
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.a = a_.data();
    gemm.lda = (transpose_a ? m : k) + padding;
    gemm.b = b_.data();
    gemm.ldb = (transpose_b ? k : n) + padding;
    gemm.c = c_.data();
    gemm.ldc = n + padding;
    gemm.bias = bias_.data();
    gemm.epilogue = epilogue;
  }
  /// All of c's rows but the padding, which nobody may rely on.
  std::vector<float> written() const {
    std::vector<float> all;
    for (std::size_t i = 0; i < gemm.m; ++i) {
      const float* row = gemm.c + i * gemm.ldc;
      all.insert(all.end(), row, row + gemm.n);
    }
    return all;
  }
  /// The bytes of everything that a product may write.
  std::vector<std::byte> Bytes() const {
    const auto* begin = reinterpret_cast<const std::byte*>(c_.data());
    return {begin, begin + c_.size() * sizeof(float)};
  }

  LargeGemm gemm;

 private:
  ExactBuffer<float> bias_, a_, b_, c_;
};

void ExpectNear(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << "element " << i;
  }
}

// The same product by the fake device's loops, which know rows, and by the library, which is told
// of columns.
TEST_F(CublasLtTest, EveryEpilogueIsThatOfTheRowMajorProduct) {
  int products = 0;
  for (const Epilogue epilogue : kAll) {
    for (const int transposed : {0, 1, 2, 3}) {
      for (const auto& [m, n, k] : std::vector<std::array<std::size_t, 3>>{
               {1, 1, 1}, {5, 129, 3}, {3, 128, 7}, {8, 13, 200}, {2, 300, 1}}) {
        for (const std::size_t padding : {0, 3}) {
          SCOPED_TRACE(testing::Message()
                       << EpilogueName(epilogue) << ", transposed " << transposed << ", " << m
                       << " x " << n << " x " << k << ", padding " << padding);
          const std::uint64_t seed = static_cast<std::uint64_t>(++products);
          const std::size_t shift = 4 * (seed % 5);
          Random one(seed), other(seed);
          Product wanted(one, m, n, k, (transposed & 1) != 0, (transposed & 2) != 0, epilogue,
                         padding, shift);
          Product got(other, m, n, k, (transposed & 1) != 0, (transposed & 2) != 0, epilogue,
                      padding, shift);
          EmulateLargeGemm(wanted.gemm);
          auto matmul = library_->Prepare(got.gemm);
          ASSERT_TRUE(matmul.ok()) << matmul.status().message() << complaints_();
          EXPECT_THAT((*matmul)->Describe(), HasSubstr(std::string(EpilogueName(epilogue))));
          // Into scratch, which leaves everything as it was; then for good.
          const auto before = got.Bytes();
          const Status chosen = Choose(**matmul);
          ASSERT_TRUE(chosen.ok()) << chosen.message() << complaints_();
          ASSERT_EQ(got.Bytes(), before);
          const Status run = (*matmul)->Run(nullptr);
          ASSERT_TRUE(run.ok()) << run.message() << complaints_();
          ExpectNear(got.written(), wanted.written());
        }
      }
    }
  }
  EXPECT_EQ(products, 3 * 4 * 5 * 2);
}

// The scratch holds all that is written, and not a byte less would.
TEST_F(CublasLtTest, ScratchIsAsLargeAsItSays) {
  Random random(1);
  for (const Epilogue epilogue : kAll) {
    Product product(random, 4, 130, 3, false, false, epilogue, 2, 0);
    auto matmul = library_->Prepare(product.gemm);
    ASSERT_TRUE(matmul.ok()) << matmul.status().message();
    EXPECT_EQ((*matmul)->scratch_bytes(), 4 * 132 * sizeof(float));
    EXPECT_TRUE(Choose(**matmul).ok()) << complaints_();
    // Known from now on.
    auto again = library_->Prepare(product.gemm);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ((*again)->scratch_bytes(), 0u);
  }
}

TEST_F(CublasLtTest, WhatTheLibraryDoesNotHaveIsAFailedPrecondition) {
  Random random(2);
  Product product(random, 4, 13, 3, false, false, Epilogue::kBiasRelu, 0, 0);
  Product other(random, 4, 13, 3, false, false, Epilogue::kBias, 0, 0);
  const auto set = [](const char* how) {
    setenv("PASSEL_FAKE_CUBLASLT", fmt::format("{}={}", how, kReluBias).c_str(), 1);
  };
  for (const auto& [how, status] :
       {std::pair("refuse", "NOT_SUPPORTED"), std::pair("empty", "NOT_SUPPORTED"),
        std::pair("stateless", "NOT_SUPPORTED"), std::pair("invalid", "INVALID_VALUE")}) {
    SCOPED_TRACE(how);
    set(how);
    const Status refused = library_->Prepare(product.gemm).status();
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("4 x 13 x 3 with the epilogue RELU_BIAS"));
    EXPECT_THAT(refused.message(), HasSubstr(status));
    EXPECT_THAT(refused.message(), HasSubstr(": update cuBLAS"));
    EXPECT_TRUE(library_->Prepare(other.gemm).ok());
  }
  // Found, and then refused.
  set("late");
  auto late = library_->Prepare(product.gemm);
  ASSERT_TRUE(late.ok()) << late.status().message();
  const Status refused = Choose(**late);
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("refuses its own algorithm"));
  EXPECT_EQ((*late)->Run(nullptr).code(), Code::kInternal);
  // What is broken is no answer.
  set("broken");
  EXPECT_EQ(library_->Prepare(product.gemm).status().code(), Code::kInternal);
}

// Of several algorithms the first that run are timed.
TEST_F(CublasLtTest, TheFastestOfTheFirstThreeThatRunIsTaken) {
  struct Case {
    const char* fake;
    const char* described;  // "": refused
  };
  for (const auto& [fake, described] :
       {Case{"", "algorithm 21 of"}, Case{"slow=21", "algorithm 21 of"},
        Case{"algorithms=2 slow=21", "algorithm 22 of"},
        Case{"algorithms=2 refused=21", "algorithm 22 of"},
        Case{"algorithms=3 slow=21 slow=23", "algorithm 22 of"},
        Case{"algorithms=8 slow=21 slow=22", "algorithm 23 of"},
        // The fourth is not timed unless one before it is refused.
        Case{"algorithms=8 slow=22 slow=23", "algorithm 21 of"},
        Case{"algorithms=8 refused=21 slow=22 slow=23", "algorithm 24 of"},
        // More than were asked for.
        Case{"algorithms=9 refused=21 refused=22 refused=23 refused=24 refused=25 refused=26 "
             "refused=27",
             "algorithm 28 of"},
        Case{"algorithms=3 refused=21 refused=22 refused=23", ""}, Case{"refused=21", ""}}) {
    SCOPED_TRACE(fake);
    setenv("PASSEL_FAKE_CUBLASLT", fake, 1);
    OpenAnew();
    Random one(4), other(4);
    Product got(one, 4, 13, 3, false, false, Epilogue::kBiasRelu, 0, 0);
    Product wanted(other, 4, 13, 3, false, false, Epilogue::kBiasRelu, 0, 0);
    auto matmul = library_->Prepare(got.gemm);
    ASSERT_TRUE(matmul.ok()) << matmul.status().message();
    const auto before = got.Bytes();
    const Status chosen = Choose(**matmul);
    EXPECT_EQ(got.Bytes(), before);
    if (described[0] == '\0') {
      EXPECT_EQ(chosen.code(), Code::kFailedPrecondition);
      EXPECT_THAT(chosen.message(), HasSubstr("refuses its own algorithm (4 x 13 x 3, "
                                              "RELU_BIAS: algorithm 21 of"));
      continue;
    }
    ASSERT_TRUE(chosen.ok()) << chosen.message();
    const std::string text = (*matmul)->Describe();
    EXPECT_THAT(text, HasSubstr(described));
    const bool several = std::string(fake).starts_with("algorithms");
    EXPECT_EQ(text.find(", choice ") != std::string::npos, several) << text;
    ASSERT_TRUE((*matmul)->Run(nullptr).ok()) << complaints_();
    EmulateLargeGemm(wanted.gemm);
    ExpectNear(got.written(), wanted.written());
    // Whoever comes later gets the same, whatever a clock would say by then.
    setenv("PASSEL_FAKE_CUBLASLT", "algorithms=8 slow=21 slow=22 slow=23 slow=24 slow=28", 1);
    auto later = library_->Prepare(got.gemm);
    ASSERT_TRUE(later.ok());
    EXPECT_EQ((*later)->scratch_bytes(), 0u);
    EXPECT_TRUE(Choose(**later).ok());
    EXPECT_EQ((*later)->Describe(), text);
  }
}

TEST_F(CublasLtTest, AStatusOfALostDeviceIsUnavailable) {
  Random random(6);
  Product product(random, 4, 13, 3, false, false, Epilogue::kBias, 0, 0);
  auto matmul = library_->Prepare(product.gemm);
  ASSERT_TRUE(matmul.ok());
  for (const auto& [status, code] :
       {std::pair(1, Code::kUnavailable), std::pair(3, Code::kResourceExhausted),
        std::pair(11, Code::kUnavailable), std::pair(13, Code::kUnavailable),
        std::pair(14, Code::kInternal), std::pair(16, Code::kInternal)}) {
    SCOPED_TRACE(status);
    setenv("PASSEL_FAKE_CUBLASLT", fmt::format("status={}", status).c_str(), 1);
    EXPECT_EQ((*matmul)->Run(nullptr).code(), code);
    EXPECT_EQ(Choose(**matmul).code(), code);
  }
}

TEST_F(CublasLtTest, WhatBreaksWhileItIsTimedIsAnError) {
  setenv("PASSEL_FAKE_CUBLASLT", "algorithms=3", 1);
  Random random(5);
  Product product(random, 4, 13, 3, false, false, Epilogue::kBias, 0, 0);
  auto matmul = library_->Prepare(product.gemm);
  ASSERT_TRUE(matmul.ok());
  const Memory scratch = Aligned((*matmul)->scratch_bytes());
  int runs = 0;
  const auto breaks = [&runs](const std::function<Status()>& queue) -> Result<double> {
    PASSEL_RETURN_IF_ERROR(queue());
    if (++runs == 6) return Unavailable("the GPU is gone");
    return 1.0;
  };
  EXPECT_EQ((*matmul)->Choose(nullptr, scratch.get(), breaks).code(), Code::kUnavailable);
  EXPECT_EQ(runs, 6);
}

TEST_F(CublasLtTest, AProductThatDoesNotFitIsRefusedBeforeTheLibraryHearsOfIt) {
  Random random(3);
  Product product(random, 4, 13, 3, false, false, Epilogue::kBias, 0, 0);
  product.gemm.bias = nullptr;
  EXPECT_EQ(library_->Prepare(product.gemm).status().code(), Code::kInvalidArgument);
}

TEST_F(CublasLtTest, AnotherLibraryIsRefused) {
  setenv("PASSEL_FAKE_CUBLASLT", "version=120000", 1);
  const Status old = CublasLt::Open(workspace_.get()).status();
  EXPECT_EQ(old.code(), Code::kFailedPrecondition);
  EXPECT_THAT(old.message(), HasSubstr("is of version 120000"));
  setenv("PASSEL_CUBLASLT_PATH", "libcublasLt.so", 1);
  EXPECT_EQ(CublasLt::Open(workspace_.get()).status().code(), Code::kInvalidArgument);
  setenv("PASSEL_CUBLASLT_PATH", "/nowhere/libcublasLt.so", 1);
  const Status named = CublasLt::Open(workspace_.get()).status();
  EXPECT_EQ(named.code(), Code::kFailedPrecondition);  // what was asked for is not done without
  EXPECT_THAT(named.message(), HasSubstr("PASSEL_CUBLASLT_PATH is '/nowhere/libcublasLt.so', which "
                                         "cannot be opened"));
}

// A whole step, its products by the library: what the plan tells it, it computes rightly, by
// whichever algorithm.
TEST_F(CublasLtTest, AStepThroughTheLibraryIsThatOfDoublePrecision) {
  for (const char* fake : {"", "algorithms=3", "algorithms=3 refused=21 refused=22"}) {
    SCOPED_TRACE(fake);
    setenv("PASSEL_FAKE_CUBLASLT", fake, 1);
    OpenAnew();
    StepWorld world({513, 514, 515, 3}, 3, Placement::kRoundRobin, 51, 1);
    FakeDevice device({});
    auto memory = StepMemory::Create(device, world.options);
    ASSERT_TRUE(memory.ok());
    PinnedHost pinned(device, world.options);
    const StepHostMemory& host = pinned.host;
    const auto batch = world.RandomBatch();
    pinned.Order(1, batch);
    const Plan plan = BuildStepPlan(world.options, *memory, host);
    int products = 0;
    for (const Node& node : plan.nodes()) {
      if (const auto* copy = std::get_if<Copy>(&node.operation)) {
        std::memcpy(copy->to, copy->from, copy->bytes);
      } else if (const auto* gemm = std::get_if<LargeGemm>(&node.operation)) {
        auto matmul = library_->Prepare(*gemm);
        ASSERT_TRUE(matmul.ok()) << node.name << ": " << matmul.status().message();
        ASSERT_TRUE(Choose(**matmul).ok()) << node.name;
        ASSERT_TRUE((*matmul)->Run(nullptr).ok()) << node.name;
        ++products;
      } else {
        Emulate(std::get<AnyKernel>(node.operation), nullptr);
      }
    }
    EXPECT_EQ(products, 5);
    EXPECT_EQ(host.line->nonfinite, 0u);
    const ReferenceResult wanted = world.Reference(batch);
    EXPECT_NEAR(host.line->loss, wanted.loss, 1e-5 * wanted.loss);
    const auto got = world.Variables(pinned.gradients);
    for (std::size_t v = 0; v < got.size(); ++v) {
      EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), 1e-5) << "variable " << v;
    }
  }
}

}  // namespace
}  // namespace passel::cuda
