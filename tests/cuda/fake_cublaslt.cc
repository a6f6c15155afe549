// fake_cublaslt.cc - libpassel_fake_cublaslt.so: in place of libcublasLt.so, computing in host
// memory.
//
//   PASSEL_CUBLASLT_PATH=.../libpassel_fake_cublaslt.so
//
// It has the functions that cublaslt.cc calls, takes each thing that they are told as the cuBLAS
// documentation describes it, and complains (FakeCublasltComplaints()) of what that does not allow:
// an attribute of another size, matrices that do not fit together, an epilogue without its memory,
// an operand that is aligned worse than the heuristic was told. After a complaint the call fails.
// Products are computed column by column, by the documentation, not by the code under test.
//
// $PASSEL_FAKE_CUBLASLT, words with spaces between them, makes it one that has less:
//
//   refuse=N      no algorithm for the epilogue of this number (cublasLtEpilogue_t)
//   empty=N       the heuristic succeeds without a result
//   stateless=N   its only result says that it is not one
//   invalid=N     the heuristic calls it an invalid value
//   late=N        the product is refused when it runs
//   broken=N      the heuristic fails: CUBLAS_STATUS_INTERNAL_ERROR
//   algorithms=N  the heuristic has so many (1), numbered from 21 on
//   refused=ID    the algorithm of this number is refused when it runs
//   slow=ID       it takes some milliseconds longer
//   status=N      products fail with this cublasStatus_t
//   version=N     of the library, in place of that of its header
//
// One thread at a time.

#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace {

std::string g_complaints;
int g_alive = 0;

cublasStatus_t Complain(const std::string& what) {
  g_complaints += what + "\n";
  return CUBLAS_STATUS_INVALID_VALUE;
}

// True if the variable has `name=number`.
bool Says(std::string_view name, std::uint64_t number) {
  const char* const text = std::getenv("PASSEL_FAKE_CUBLASLT");
  std::istringstream words(text == nullptr ? "" : text);
  const std::string wanted = std::string(name) + "=" + std::to_string(number);
  for (std::string word; words >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

struct Handle {
  std::uint32_t magic = 0x17171717;
};

struct Desc {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
};

struct Layout {
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

constexpr std::int32_t kFirstAlgorithm = 21;

// What the heuristic was asked, kept in the algorithm that it found.
struct Algorithm {
  std::uint32_t magic = 0x2a2a2a2a;
  std::uint32_t epilogue = 0;
  std::uint32_t alignment[4] = {};
  std::uint32_t bias_alignment = 0;
  std::int32_t id = kFirstAlgorithm;
  std::uint32_t rows = 0, cols = 0;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <typename To, typename From>
To* As(From* opaque) {
  return reinterpret_cast<To*>(opaque);
}
template <typename To, typename From>
const To* As(const From* opaque) {
  return reinterpret_cast<const To*>(opaque);
}

template <typename T, typename Opaque>
cublasStatus_t Make(Opaque** out, const T& value) {
  *out = reinterpret_cast<Opaque*>(new T(value));
  ++g_alive;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Opaque>
cublasStatus_t Destroy(Opaque* object) {
  delete As<T>(object);
  --g_alive;
  return CUBLAS_STATUS_SUCCESS;
}

std::uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(bits & -bits);
}

template <typename T>
cublasStatus_t Take(T* to, const void* from, std::size_t bytes, const char* what) {
  if (bytes != sizeof(T)) return Complain(std::string(what) + " is of another size");
  std::memcpy(to, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

struct Epilogue {
  bool bias = false, relu = false;
};

std::optional<Epilogue> Known(std::uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return Epilogue{};
    case CUBLASLT_EPILOGUE_BIAS:
      return Epilogue{.bias = true};
    case CUBLASLT_EPILOGUE_RELU_BIAS:
      return Epilogue{.bias = true, .relu = true};
    default:
      return std::nullopt;
  }
}

// Of the product as a whole.
cublasStatus_t Check(const Desc& desc, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  const bool turn_a = desc.first == CUBLAS_OP_T, turn_b = desc.second == CUBLAS_OP_T;
  if ((turn_a ? a.cols : a.rows) != d.rows || (turn_b ? b.rows : b.cols) != d.cols ||
      (turn_a ? a.rows : a.cols) != (turn_b ? b.cols : b.rows) || c.rows != d.rows ||
      c.cols != d.cols) {
    return Complain("the matrices do not fit together");
  }
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->ld < static_cast<std::int64_t>(layout->rows)) {
      return Complain("columns overlap");
    }
  }
  const std::optional<Epilogue> known = Known(desc.epilogue);
  if (!known) return Complain("epilogue " + std::to_string(desc.epilogue) + " is not known");
  if (known->bias && desc.bias == nullptr) return Complain("an epilogue lacks its vector");
  return CUBLAS_STATUS_SUCCESS;
}

void Compute(const Desc& desc, const float* a, const Layout& a_layout, const float* b,
             const Layout& b_layout, float* d, const Layout& d_layout) {
  const Epilogue epilogue = *Known(desc.epilogue);
  const auto at = [](const float* data, const Layout& layout, bool turn, std::uint64_t row,
                     std::uint64_t col) {
    return double{turn ? data[row * static_cast<std::uint64_t>(layout.ld) + col]
                       : data[col * static_cast<std::uint64_t>(layout.ld) + row]};
  };
  const bool turn_a = desc.first == CUBLAS_OP_T, turn_b = desc.second == CUBLAS_OP_T;
  const std::uint64_t inner = turn_a ? a_layout.rows : a_layout.cols;
  const auto* const bias = static_cast<const float*>(desc.bias);
  for (std::uint64_t col = 0; col < d_layout.cols; ++col) {
    for (std::uint64_t row = 0; row < d_layout.rows; ++row) {
      double value = epilogue.bias ? double{bias[row]} : 0;
      for (std::uint64_t i = 0; i < inner; ++i) {
        value += at(a, a_layout, turn_a, row, i) * at(b, b_layout, turn_b, i, col);
      }
      if (epilogue.relu && value < 0) value = 0;
      d[col * static_cast<std::uint64_t>(d_layout.ld) + row] = static_cast<float>(value);
    }
  }
}

}  // namespace

#define PASSEL_EXPORT extern "C" __attribute__((visibility("default")))

/// What was wrong so far, a line each; forgets it.
PASSEL_EXPORT const char* FakeCublasltComplaints() {
  static std::string told;
  told = g_complaints;
  g_complaints.clear();
  return told.c_str();
}
/// Objects that were made and not destroyed.
PASSEL_EXPORT int FakeCublasltAlive() { return g_alive; }

PASSEL_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new Handle);
  ++g_alive;
  return CUBLAS_STATUS_SUCCESS;
}
PASSEL_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<Handle*>(handle);
  --g_alive;
  return CUBLAS_STATUS_SUCCESS;
}
PASSEL_EXPORT const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
PASSEL_EXPORT size_t cublasLtGetVersion() {
  for (const std::size_t other : {120000u, 990000u}) {
    if (Says("version", other)) return other;
  }
  return CUBLAS_VERSION;
}

PASSEL_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out,
                                                      cublasComputeType_t compute,
                                                      cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return Complain("alpha and beta are not floats");
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32 &&
      compute != CUBLAS_COMPUTE_32F_FAST_16BF) {
    return Complain("a compute type that nobody asks for");
  }
  return Make(out, Desc{compute});
}
PASSEL_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return Destroy<Desc>(desc);
}
PASSEL_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute, const void* value,
    size_t bytes) {
  Desc* const desc = As<Desc>(opaque);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(&desc->first, value, bytes, "TRANSA");
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(&desc->second, value, bytes, "TRANSB");
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(&desc->epilogue, value, bytes, "EPILOGUE");
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(&desc->bias, value, bytes, "BIAS_POINTER");
    default:
      return Complain("a descriptor's attribute that nobody sets");
  }
}

PASSEL_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out,
                                                        cudaDataType type, uint64_t rows,
                                                        uint64_t cols, int64_t ld) {
  if (type != CUDA_R_32F) return Complain("a matrix is not of floats");
  return Make(out, Layout{rows, cols, ld});
}
PASSEL_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy<Layout>(layout);
}

PASSEL_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return Make(out, Preference{});
}
PASSEL_EXPORT cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<Preference>(preference);
}
PASSEL_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t opaque, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value, size_t bytes) {
  Preference* const preference = As<Preference>(opaque);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(&preference->workspace, value, bytes, "MAX_WORKSPACE_BYTES");
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Take(&preference->alignment[0], value, bytes, "MIN_ALIGNMENT_A_BYTES");
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Take(&preference->alignment[1], value, bytes, "MIN_ALIGNMENT_B_BYTES");
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Take(&preference->alignment[2], value, bytes, "MIN_ALIGNMENT_C_BYTES");
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Take(&preference->alignment[3], value, bytes, "MIN_ALIGNMENT_D_BYTES");
    default:
      return Complain("a preference that nobody sets");
  }
}

PASSEL_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t opaque_preference, int requested,
    cublasLtMatmulHeuristicResult_t* results, int* count) {
  const Desc& desc = *As<Desc>(opaque);
  const Preference& preference = *As<Preference>(opaque_preference);
  *count = 0;
  if (handle == nullptr || requested < 1) return Complain("nothing is asked for");
  if (preference.workspace == 0) return Complain("there is no workspace");
  const cublasStatus_t good =
      Check(desc, *As<Layout>(a), *As<Layout>(b), *As<Layout>(c), *As<Layout>(d));
  if (good != CUBLAS_STATUS_SUCCESS) return good;
  if (Says("refuse", desc.epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (Says("invalid", desc.epilogue)) return CUBLAS_STATUS_INVALID_VALUE;
  if (Says("broken", desc.epilogue)) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (Says("empty", desc.epilogue)) return CUBLAS_STATUS_SUCCESS;
  Algorithm algorithm;
  algorithm.epilogue = desc.epilogue;
  std::memcpy(algorithm.alignment, preference.alignment, sizeof algorithm.alignment);
  algorithm.bias_alignment = AlignmentOf(desc.bias);
  algorithm.rows = static_cast<std::uint32_t>(As<Layout>(d)->rows);
  algorithm.cols = static_cast<std::uint32_t>(As<Layout>(d)->cols);
  int has = 1;
  for (int n = 2; n <= 16; ++n) {
    if (Says("algorithms", static_cast<std::uint64_t>(n))) has = n;
  }
  for (; *count < std::min(has, requested); ++*count, ++algorithm.id) {
    cublasLtMatmulHeuristicResult_t& result = results[*count];
    result = {};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = 64 << 10;
    result.state =
        Says("stateless", desc.epilogue) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}
PASSEL_EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
    size_t bytes, size_t* written) {
  if (attribute != CUBLASLT_ALGO_CONFIG_ID) return Complain("another attribute than the number");
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
  const std::int32_t id = algorithm.id;
  if (bytes != sizeof id) return Complain("the number of an algorithm is of another size");
  std::memcpy(value, &id, sizeof id);
  *written = sizeof id;
  return CUBLAS_STATUS_SUCCESS;
}

PASSEL_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque,
                                            const void* alpha, const void* a,
                                            cublasLtMatrixLayout_t a_layout, const void* b,
                                            cublasLtMatrixLayout_t b_layout, const void* beta,
                                            const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                            cublasLtMatrixLayout_t d_layout,
                                            const cublasLtMatmulAlgo_t* algo, void* workspace,
                                            size_t workspace_bytes, cudaStream_t) {
  const Desc& desc = *As<Desc>(opaque);
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
  if (handle == nullptr || algorithm.magic != Algorithm().magic) return Complain("no algorithm");
  const Layout& out = *As<Layout>(d_layout);
  if (algorithm.epilogue != desc.epilogue || algorithm.rows != out.rows ||
      algorithm.cols != out.cols) {
    return Complain("the algorithm was found for another product");
  }
  if (workspace_bytes < (64 << 10) || workspace == nullptr || AlignmentOf(workspace) < 256) {
    return Complain("the workspace is too small");
  }
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 || c != d) {
    return Complain("a sum with what was there before");
  }
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (operands[i] == nullptr || AlignmentOf(operands[i]) < algorithm.alignment[i]) {
      return Complain("an operand is aligned worse than the heuristic was told");
    }
  }
  if (AlignmentOf(desc.bias) < algorithm.bias_alignment) {
    return Complain("a vector is aligned worse than when the heuristic was asked");
  }
  const cublasStatus_t good =
      Check(desc, *As<Layout>(a_layout), *As<Layout>(b_layout), *As<Layout>(c_layout), out);
  if (good != CUBLAS_STATUS_SUCCESS) return good;
  const auto id = static_cast<std::uint64_t>(algorithm.id);
  if (Says("late", desc.epilogue) || Says("refused", id)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int failure = 1; failure <= CUBLAS_STATUS_LICENSE_ERROR; ++failure) {
    if (Says("status", static_cast<std::uint64_t>(failure))) {
      return static_cast<cublasStatus_t>(failure);
    }
  }
  if (Says("slow", id)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Compute(desc, static_cast<const float*>(a), *As<Layout>(a_layout), static_cast<const float*>(b),
          *As<Layout>(b_layout), static_cast<float*>(d), out);
  return CUBLAS_STATUS_SUCCESS;
}
