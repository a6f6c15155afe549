#include "cuda/cublaslt.h"

#include <cublasLt.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/cublaslt_functions.h"
#include "cuda/gemm_layout.h"

namespace passel::cuda {
namespace {

cublasComputeType_t ComputeType(MathMode math) {
  switch (math) {
    case MathMode::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MathMode::kBfloat16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case MathMode::kFloat32:
      break;
  }
  return CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t EpilogueOf(LargeGemm::Epilogue epilogue) {
  switch (epilogue) {
    case LargeGemm::Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case LargeGemm::Epilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case LargeGemm::Epilogue::kNone:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// What the library answers for a product that this build of it, or this GPU, does not have.
bool IsRefusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH ||
         status == CUBLAS_STATUS_INVALID_VALUE;
}

// REQUIRES: no success.
Status LibraryStatus(const CublasLtFunctions& functions, cublasStatus_t status,
                     std::string_view call) {
  std::string text = fmt::format("{} failed with {}", call, functions.GetStatusName(status));
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:  // by an error of the runtime, or of the hardware
    case CUBLAS_STATUS_MAPPING_ERROR:
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return Unavailable(std::move(text) +
                         "; this process cannot use the GPU any more: start the task again");
    case CUBLAS_STATUS_ALLOC_FAILED:
      return ResourceExhausted(std::move(text));
    default:
      return Internal(std::move(text));
  }
}

constexpr int kAsked = 8;      // algorithms, of the heuristic
constexpr int kCompared = 3;   // of those that run
constexpr int kTimedRuns = 3;  // of each, behind one that is not
// A later one is taken only if it is faster than by chance: the heuristic's order means something.
constexpr double kFaster = 0.95;

// What was chosen for a product, for all that are like it: the same algorithm in every gradient
// slot, and in one process the same bits.
struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  std::string description;
};
using Likeness = std::tuple<std::array<std::size_t, 6>, bool, bool, LargeGemm::Epilogue, MathMode,
                            std::array<std::uint32_t, 4>>;
using Choices = std::map<Likeness, Choice>;

// Bytes that an address is a multiple of, at most 256.
std::uint32_t Alignment(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(bits & -bits);
}

Likeness LikenessOf(const LargeGemm& gemm) {
  return {{gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc},
          gemm.transpose_a,
          gemm.transpose_b,
          gemm.epilogue,
          gemm.math,
          {Alignment(gemm.a), Alignment(gemm.b), Alignment(gemm.c),
           Alignment(gemm.has_bias() ? gemm.bias : nullptr)}};
}

class LibraryMatmul : public CublasLt::Matmul {
 public:
  LibraryMatmul(const CublasLtFunctions& functions, cublasLtHandle_t handle, void* workspace,
                Choices& choices)
      : f_(functions), handle_(handle), workspace_(workspace), choices_(choices) {}
  ~LibraryMatmul() override {
    for (cublasLtMatrixLayout_t layout : {first_, second_, out_}) {
      if (layout != nullptr) static_cast<void>(f_.MatrixLayoutDestroy(layout));
    }
    if (desc_ != nullptr) static_cast<void>(f_.MatmulDescDestroy(desc_));
  }
  LibraryMatmul(const LibraryMatmul&) = delete;
  LibraryMatmul& operator=(const LibraryMatmul&) = delete;

  Status Init(const LargeGemm& gemm) {
    PASSEL_ASSIGN_OR_RETURN(layout_, LayoutOf(gemm));
    PASSEL_RETURN_IF_ERROR(
        Check(f_.MatmulDescCreate(&desc_, ComputeType(gemm.math), CUDA_R_32F), "MatmulDescCreate"));
    PASSEL_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, Op(layout_.first)));
    PASSEL_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, Op(layout_.second)));
    if (layout_.epilogue != LargeGemm::Epilogue::kNone) {
      PASSEL_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(layout_.epilogue)));
    }
    // Before the heuristic is asked: it looks how this address is aligned.
    if (layout_.bias != nullptr) {
      PASSEL_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, layout_.bias));
    }
    PASSEL_RETURN_IF_ERROR(
        MakeLayout(layout_.first.rows, layout_.first.cols, layout_.first.ld, &first_));
    PASSEL_RETURN_IF_ERROR(
        MakeLayout(layout_.second.rows, layout_.second.cols, layout_.second.ld, &second_));
    PASSEL_RETURN_IF_ERROR(MakeLayout(layout_.rows, layout_.cols, layout_.result_ld, &out_));
    likeness_ = LikenessOf(gemm);
    if (const auto known = choices_.find(likeness_); known != choices_.end()) {
      algorithm_ = known->second.algorithm;
      description_ = known->second.description;
      return {};
    }
    return AskHeuristic(gemm);
  }

  Status Run(cudaStream_t stream) override {
    return Check(Queue(stream, layout_.result), "Matmul");
  }

  std::size_t scratch_bytes() const override {
    if (candidates_.empty()) return 0;
    return layout_.cols * static_cast<std::size_t>(layout_.result_ld) * sizeof(float);
  }

  Status Choose(cudaStream_t stream, void* scratch, const CublasLt::Stopwatch& stopwatch) override {
    if (candidates_.empty()) return {};
    PASSEL_RETURN_IF_ERROR(TakeFastest(stream, static_cast<float*>(scratch), stopwatch));
    candidates_.clear();
    choices_[likeness_] = {algorithm_, description_};
    return {};
  }

  std::string Describe() const override { return description_; }

 private:
  static cublasOperation_t Op(const GemmLayout::Operand& operand) {
    return operand.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  }

  cublasStatus_t Queue(cudaStream_t stream, float* c) {
    const float one = 1;
    const float zero = 0;
    return f_.Matmul(handle_, desc_, &one, layout_.first.data, first_, layout_.second.data, second_,
                     &zero, c, out_, c, out_, &algorithm_, workspace_, CublasLt::kWorkspaceBytes,
                     stream);
  }

  Status Check(cublasStatus_t status, const char* call) const {
    return status == CUBLAS_STATUS_SUCCESS
               ? Status()
               : LibraryStatus(f_, status, fmt::format("cublasLt{}", call));
  }
  template <typename T>
  Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return Check(f_.MatmulDescSetAttribute(desc_, attribute, &value, sizeof value),
                 "MatmulDescSetAttribute");
  }
  Status MakeLayout(std::uint64_t rows, std::uint64_t cols, std::int64_t ld,
                    cublasLtMatrixLayout_t* out) {
    return Check(f_.MatrixLayoutCreate(out, CUDA_R_32F, rows, cols, ld), "MatrixLayoutCreate");
  }

  // The heuristic's algorithms for this product, the most promising first.
  Status AskHeuristic(const LargeGemm& gemm) {
    cublasLtMatmulPreference_t preference = nullptr;
    PASSEL_RETURN_IF_ERROR(Check(f_.MatmulPreferenceCreate(&preference), "MatmulPreferenceCreate"));
    const std::uint64_t bytes = CublasLt::kWorkspaceBytes;
    Status status =
        Check(f_.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &bytes, sizeof bytes),
              "MatmulPreferenceSetAttribute");
    const std::pair<cublasLtMatmulPreferenceAttributes_t, const void*> operands[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, layout_.first.data},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, layout_.second.data},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, layout_.result},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, layout_.result}};
    for (const auto& [attribute, address] : operands) {
      const std::uint32_t alignment = Alignment(address);
      if (status.ok()) {
        status = Check(
            f_.MatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment),
            "MatmulPreferenceSetAttribute");
      }
    }
    std::vector<cublasLtMatmulHeuristicResult_t> found(kAsked);
    int count = 0;
    if (status.ok()) {
      cublasStatus_t answer = f_.MatmulAlgoGetHeuristic(handle_, desc_, first_, second_, out_, out_,
                                                        preference, kAsked, found.data(), &count);
      if (answer == CUBLAS_STATUS_SUCCESS) {
        found.resize(static_cast<std::size_t>(count));
        const cublasStatus_t none =
            found.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : found.front().state;
        std::erase_if(found, [](const cublasLtMatmulHeuristicResult_t& one) {
          return one.state != CUBLAS_STATUS_SUCCESS;
        });
        if (found.empty()) answer = none;
      }
      if (IsRefusal(answer)) {
        status = FailedPrecondition(fmt::format(
            "cuBLASLt {} has no algorithm for a product of {} x {} x {} with the epilogue {} on "
            "this GPU ({}): update cuBLAS, or change the layers' sizes",
            f_.GetVersion(), gemm.m, gemm.n, gemm.k, EpilogueName(gemm.epilogue),
            f_.GetStatusName(answer)));
      } else {
        status = Check(answer, "MatmulAlgoGetHeuristic");
      }
    }
    static_cast<void>(f_.MatmulPreferenceDestroy(preference));
    PASSEL_RETURN_IF_ERROR(std::move(status));
    candidates_ = std::move(found);
    algorithm_ = candidates_.front().algo;
    product_ = fmt::format("{} x {} x {}, {}", gemm.m, gemm.n, gemm.k, EpilogueName(gemm.epilogue));
    description_ = DescriptionOf(candidates_.front());
    return {};
  }

  std::string DescriptionOf(const cublasLtMatmulHeuristicResult_t& candidate) const {
    std::int32_t id = -1;
    std::size_t written = 0;
    static_cast<void>(f_.MatmulAlgoConfigGetAttribute(&candidate.algo, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                      sizeof id, &written));
    return fmt::format("{}: algorithm {} of cuBLASLt {}, {} KiB of workspace", product_, id,
                       f_.GetVersion(), candidate.workspaceSize / 1024);
  }

  // Tries the candidates in their order, and times the first few that run.
  Status TakeFastest(cudaStream_t stream, float* result, const CublasLt::Stopwatch& stopwatch) {
    Status refused;
    std::size_t best = 0;
    double best_seconds = 0;
    std::string times;
    int ran = 0;
    for (std::size_t i = 0; i < candidates_.size() && ran < kCompared; ++i) {
      algorithm_ = candidates_[i].algo;
      const auto queue = [&]() -> Status {
        const cublasStatus_t queued = Queue(stream, result);
        return IsRefusal(queued) ? Refusal(candidates_[i], queued) : Check(queued, "Matmul");
      };
      // The first run is not counted: it loads what the library loads on first use.
      const Status first = stopwatch(queue).status();
      if (first.code() == Code::kFailedPrecondition) {
        if (refused.ok()) refused = first;
        continue;
      }
      PASSEL_RETURN_IF_ERROR(first);
      double seconds = std::numeric_limits<double>::infinity();
      for (int run = 0; candidates_.size() > 1 && run < kTimedRuns; ++run) {
        PASSEL_ASSIGN_OR_RETURN(const double took, stopwatch(queue));
        seconds = std::min(seconds, took);
      }
      if (ran++ == 0 || seconds < kFaster * best_seconds) {
        best = i;
        best_seconds = seconds;
      }
      times += fmt::format("{}{}: {:.1f} us", times.empty() ? "" : ", ", i + 1, 1e6 * seconds);
    }
    if (ran == 0) return refused;
    algorithm_ = candidates_[best].algo;
    description_ = DescriptionOf(candidates_[best]);
    if (candidates_.size() > 1) {
      description_ += fmt::format(", choice {} of {} ({})", best + 1, candidates_.size(), times);
    }
    return {};
  }

  Status Refusal(const cublasLtMatmulHeuristicResult_t& candidate, cublasStatus_t status) const {
    return FailedPrecondition(fmt::format("cuBLASLt {} refuses its own algorithm ({}) with {}",
                                          f_.GetVersion(), DescriptionOf(candidate),
                                          f_.GetStatusName(status)));
  }

  const CublasLtFunctions& f_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
  Choices& choices_;
  Likeness likeness_{};
  GemmLayout layout_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;  // until one is chosen
  cublasLtMatmulAlgo_t algorithm_{};
  std::string product_, description_;
};

class Library : public CublasLt {
 public:
  Library(const CublasLtFunctions& functions, cublasLtHandle_t handle, void* workspace)
      : functions_(functions), handle_(handle), workspace_(workspace) {}
  ~Library() override { static_cast<void>(functions_.Destroy(handle_)); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Result<std::unique_ptr<Matmul>> Prepare(const LargeGemm& gemm) override {
    auto matmul = std::make_unique<LibraryMatmul>(functions_, handle_, workspace_, choices_);
    PASSEL_RETURN_IF_ERROR(matmul->Init(gemm));
    return std::unique_ptr<Matmul>(std::move(matmul));
  }

 private:
  const CublasLtFunctions functions_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
  Choices choices_;
};

}  // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::Open(void* workspace) {
  std::string path;
  PASSEL_ASSIGN_OR_RETURN(const CublasLtFunctions functions, LoadCublasLt(&path));
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = functions.Create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return LibraryStatus(functions, status, "cublasLtCreate of " + path);
  }
  return std::unique_ptr<CublasLt>(std::make_unique<Library>(functions, handle, workspace));
}

}  // namespace passel::cuda
