#include "cuda/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cuda/gemm_layout.h"

namespace passel::cuda {
namespace {

// The types of cublasLt.h without its library. One line for each function that is called.
#define PASSEL_CUBLASLT_FUNCTIONS(F) \
  F(Create)                          \
  F(Destroy)                         \
  F(GetStatusName)                   \
  F(GetVersion)                      \
  F(Matmul)                          \
  F(MatmulAlgoConfigGetAttribute)    \
  F(MatmulAlgoGetHeuristic)          \
  F(MatmulDescCreate)                \
  F(MatmulDescDestroy)               \
  F(MatmulDescSetAttribute)          \
  F(MatmulPreferenceCreate)          \
  F(MatmulPreferenceDestroy)         \
  F(MatmulPreferenceSetAttribute)    \
  F(MatrixLayoutCreate)              \
  F(MatrixLayoutDestroy)

struct Functions {
#define PASSEL_MEMBER(name) decltype(&cublasLt##name) name = nullptr;
  PASSEL_CUBLASLT_FUNCTIONS(PASSEL_MEMBER)
#undef PASSEL_MEMBER
};

std::string LibraryName() { return fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR); }

// The numbers of "cuda-13.0", so that 13.10 is newer than 13.9.
std::vector<int> VersionOf(std::string_view toolkit) {
  std::vector<int> numbers;
  bool in_number = false;
  for (const char c : toolkit) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) numbers.push_back(0);
    if (digit && numbers.back() < 100000) numbers.back() = 10 * numbers.back() + (c - '0');
    in_number = digit;
  }
  return numbers;
}

// Opens the library; it stays open, as its kernels may run until the process ends.
Result<void*> OpenLibrary(std::string* path) {
  const std::string name = LibraryName();
  const auto open = [path](const std::string& candidate) {
    *path = candidate;
    return dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
  };
  if (const char* set = std::getenv("PASSEL_CUBLASLT_PATH"); set != nullptr) {
    if (set[0] != '/') {
      return InvalidArgument(
          fmt::format("PASSEL_CUBLASLT_PATH is '{}', but it must be the absolute path of {}: "
                      "correct or unset it",
                      set, name));
    }
    if (void* library = open(set); library != nullptr) return library;
    return FailedPrecondition(
        fmt::format("PASSEL_CUBLASLT_PATH is '{}', which cannot be opened ({}): correct or unset "
                    "it",
                    set, dlerror()));
  }
  std::string reason;
  for (const std::string& candidate : CublasLtPlaces("/usr/local")) {
    if (void* library = open(candidate); library != nullptr) return library;
    if (reason.empty()) reason = dlerror();
  }
  return NotFound(
      fmt::format("{} cannot be opened ({}): install the cuBLAS of CUDA {}, or name its file in "
                  "PASSEL_CUBLASLT_PATH",
                  name, reason, CUBLAS_VER_MAJOR));
}

Result<Functions> LoadFunctions(void* library, const std::string& path) {
  Functions functions;
  const char* missing = nullptr;
#define PASSEL_LOAD(name)                                                   \
  if (void* symbol = dlsym(library, "cublasLt" #name); symbol != nullptr) { \
    std::memcpy(&functions.name, &symbol, sizeof symbol);                   \
  } else {                                                                  \
    missing = "cublasLt" #name;                                             \
  }
  PASSEL_CUBLASLT_FUNCTIONS(PASSEL_LOAD)
#undef PASSEL_LOAD
  if (missing != nullptr) {
    return FailedPrecondition(fmt::format("{} has no function {}: install the cuBLAS of CUDA {}",
                                          path, missing, CUBLAS_VER_MAJOR));
  }
  if (functions.GetVersion() / 10000 != CUBLAS_VER_MAJOR) {
    return FailedPrecondition(
        fmt::format("{} is of version {}, but this build needs {}.x: install "
                    "the cuBLAS of CUDA {}",
                    path, functions.GetVersion(), CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR));
  }
  return functions;
}

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
    case LargeGemm::Epilogue::kBiasReluMask:
      return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case LargeGemm::Epilogue::kMask:
      return CUBLASLT_EPILOGUE_DRELU;
    case LargeGemm::Epilogue::kMaskSums:
      return CUBLASLT_EPILOGUE_DRELU_BGRAD;
    case LargeGemm::Epilogue::kSums:
      return CUBLASLT_EPILOGUE_BGRADA;
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

// `bytes`, so that what lies behind is aligned as device memory is.
std::size_t Rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

class LibraryMatmul : public CublasLt::Matmul {
 public:
  LibraryMatmul(const Functions& functions, cublasLtHandle_t handle, void* workspace)
      : f_(functions), handle_(handle), workspace_(workspace) {}
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
    // Before the heuristic is asked: it looks how these addresses are aligned.
    PASSEL_RETURN_IF_ERROR(SetVectors(layout_.sums, layout_.mask));
    if (layout_.mask != nullptr) {
      PASSEL_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, layout_.mask_ld));
    }
    PASSEL_RETURN_IF_ERROR(
        MakeLayout(layout_.first.rows, layout_.first.cols, layout_.first.ld, &first_));
    PASSEL_RETURN_IF_ERROR(
        MakeLayout(layout_.second.rows, layout_.second.cols, layout_.second.ld, &second_));
    PASSEL_RETURN_IF_ERROR(MakeLayout(layout_.rows, layout_.cols, layout_.result_ld, &out_));
    return Choose(gemm);
  }

  Status Run(cudaStream_t stream) override {
    return Check(Queue(stream, layout_.result), "Matmul");
  }

  std::size_t scratch_bytes() const override {
    return Rounded(ResultBytes()) + Rounded(SumsBytes()) + Rounded(MaskBytes());
  }

  Status Try(cudaStream_t stream, void* scratch) override {
    auto* const result = static_cast<std::byte*>(scratch);
    std::byte* const sums = result + Rounded(ResultBytes());
    std::byte* const mask = sums + Rounded(SumsBytes());
    PASSEL_RETURN_IF_ERROR(SetVectors(layout_.sums == nullptr ? nullptr : sums,
                                      MaskBytes() == 0 ? layout_.mask : mask));
    const cublasStatus_t queued = Queue(stream, reinterpret_cast<float*>(result));
    PASSEL_RETURN_IF_ERROR(SetVectors(layout_.sums, layout_.mask));
    if (IsRefusal(queued)) {
      return FailedPrecondition(fmt::format("cuBLASLt {} refuses its own algorithm ({}) with {}",
                                            f_.GetVersion(), description_,
                                            f_.GetStatusName(queued)));
    }
    return Check(queued, "Matmul");
  }

  std::string Describe() const override { return description_; }

 private:
  static cublasOperation_t Op(const GemmLayout::Operand& operand) {
    return operand.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  // What the product writes, as far as its epilogue does.
  std::size_t ResultBytes() const {
    return layout_.cols * static_cast<std::size_t>(layout_.result_ld) * sizeof(float);
  }
  std::size_t SumsBytes() const {
    return layout_.sums == nullptr ? 0 : layout_.rows * sizeof(float);
  }
  std::size_t MaskBytes() const {
    return layout_.epilogue == LargeGemm::Epilogue::kBiasReluMask
               ? layout_.cols * static_cast<std::size_t>(layout_.mask_ld) / 8
               : 0;
  }

  // Where the bias or, in its place, the sums are, and the mask.
  Status SetVectors(const void* sums, const void* mask) {
    const void* const vector = layout_.bias != nullptr ? layout_.bias : sums;
    if (vector != nullptr) {
      PASSEL_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector));
    }
    if (mask == nullptr) return {};
    return Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
  }

  cublasStatus_t Queue(cudaStream_t stream, float* c) {
    const float one = 1;
    const float zero = 0;
    return f_.Matmul(handle_, desc_, &one, layout_.first.data, first_, layout_.second.data, second_,
                     &zero, c, out_, c, out_, &algorithm_, workspace_, CublasLt::kWorkspaceBytes,
                     stream);
  }

  Status Check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    const std::string text =
        fmt::format("cublasLt{} failed with {}", call, f_.GetStatusName(status));
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? Unavailable(text) : Internal(text);
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

  // Bytes that every operand's address is a multiple of, at most 256.
  static std::uint32_t Alignment(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
    return static_cast<std::uint32_t>(bits & -bits);
  }

  // The heuristic's first choice: the same shape gets the same algorithm in every run of one build
  // of the library on one kind of GPU.
  Status Choose(const LargeGemm& gemm) {
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
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    if (status.ok()) {
      cublasStatus_t answer = f_.MatmulAlgoGetHeuristic(handle_, desc_, first_, second_, out_, out_,
                                                        preference, 1, &found, &count);
      if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state;
      }
      if (IsRefusal(answer)) {
        status = FailedPrecondition(fmt::format(
            "cuBLASLt {} has no algorithm for a product of {} x {} x {} with the epilogue {} on "
            "this GPU ({}){}",
            f_.GetVersion(), gemm.m, gemm.n, gemm.k, EpilogueName(gemm.epilogue),
            f_.GetStatusName(answer),
            gemm.is_optional() ? "" : ": update cuBLAS, or change the layers' sizes"));
      } else {
        status = Check(answer, "MatmulAlgoGetHeuristic");
      }
    }
    static_cast<void>(f_.MatmulPreferenceDestroy(preference));
    PASSEL_RETURN_IF_ERROR(std::move(status));
    algorithm_ = found.algo;
    std::int32_t id = -1;
    std::size_t written = 0;
    static_cast<void>(f_.MatmulAlgoConfigGetAttribute(&algorithm_, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                      sizeof id, &written));
    description_ = fmt::format("{} x {} x {}, {}: algorithm {} of cuBLASLt {}, {} KiB of workspace",
                               gemm.m, gemm.n, gemm.k, EpilogueName(gemm.epilogue), id,
                               f_.GetVersion(), found.workspaceSize / 1024);
    return {};
  }

  const Functions& f_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
  GemmLayout layout_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  std::string description_;
};

class Library : public CublasLt {
 public:
  Library(const Functions& functions, cublasLtHandle_t handle, void* workspace)
      : functions_(functions), handle_(handle), workspace_(workspace) {}
  ~Library() override { static_cast<void>(functions_.Destroy(handle_)); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Result<std::unique_ptr<Matmul>> Prepare(const LargeGemm& gemm) override {
    auto matmul = std::make_unique<LibraryMatmul>(functions_, handle_, workspace_);
    PASSEL_RETURN_IF_ERROR(matmul->Init(gemm));
    return std::unique_ptr<Matmul>(std::move(matmul));
  }

 private:
  const Functions functions_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
};

}  // namespace

std::vector<std::string> CublasLtPlaces(const std::string& local) {
  const std::string name = LibraryName();
  const std::string in_toolkit = "/targets/x86_64-linux/lib/" + name;
  std::vector<std::string> toolkits;
  std::error_code ignored;  // of a folder that is not there
  for (std::filesystem::directory_iterator entry(local, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string toolkit = entry->path().filename().string();
    if (toolkit.starts_with("cuda-")) toolkits.push_back(toolkit);
  }
  std::sort(toolkits.begin(), toolkits.end(), [](const std::string& a, const std::string& b) {
    return std::pair(VersionOf(a), a) > std::pair(VersionOf(b), b);
  });
  std::vector<std::string> places = {name, local + "/cuda/lib64/" + name,
                                     local + "/cuda" + in_toolkit};
  for (const std::string& toolkit : toolkits) {
    places.push_back(fmt::format("{}/{}{}", local, toolkit, in_toolkit));
  }
  return places;
}

Result<std::unique_ptr<CublasLt>> CublasLt::Open(void* workspace) {
  std::string path;
  PASSEL_ASSIGN_OR_RETURN(void* library, OpenLibrary(&path));
  PASSEL_ASSIGN_OR_RETURN(const Functions functions, LoadFunctions(library, path));
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = functions.Create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return Internal(
        fmt::format("cublasLtCreate of {} failed with {}", path, functions.GetStatusName(status)));
  }
  return std::unique_ptr<CublasLt>(std::make_unique<Library>(functions, handle, workspace));
}

}  // namespace passel::cuda
