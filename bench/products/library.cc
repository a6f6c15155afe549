#include "bench/products/library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace passel::bench {
namespace {

using Kind = LibraryChoice::Kind;

Result<void*> Open(const std::string& folder, const std::string& name,
                   std::initializer_list<const char*> below) {
  std::string first_problem;
  std::vector<std::string> paths;
  if (!folder.empty()) {
    for (const char* where : below) paths.push_back(fmt::format("{}/{}{}", folder, where, name));
  }
  paths.push_back(name);
  for (const std::string& path : paths) {
    void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    const char* const problem = ::dlerror();
    // What lies there but does not load says more than what is nowhere.
    if (problem != nullptr &&
        (first_problem.empty() || std::string(problem).find("No such file") == std::string::npos)) {
      first_problem = problem;
    }
  }
  return NotFound(first_problem);
}

template <typename Function>
Status Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (*function != nullptr) return {};
  return NotFound(fmt::format("it has no {}", name));
}

// CBLAS's numbers: cblas.h is that of one library.
constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
using CblasSgemm = void(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                        int lda, const float* b, int ldb, float beta, float* c, int ldc);

std::function<void(const Product&)> ByCblas(CblasSgemm* sgemm) {
  return [sgemm](const Product& p) {
    sgemm(kRowMajor, p.transpose_a ? kTrans : kNoTrans, p.transpose_b ? kTrans : kNoTrans,
          static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), 1, p.a,
          static_cast<int>(p.lda), p.b, static_cast<int>(p.ldb), p.beta, p.c,
          static_cast<int>(p.ldc));
  };
}

bool Any(const Product&) { return true; }

Result<Library> OpenOpenBlas(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(void* const library, Open(folder, "libopenblas.so.0", {""}));
  CblasSgemm* sgemm = nullptr;
  const char* (*core)() = nullptr;
  void (*set_threads)(int) = nullptr;
  PASSEL_RETURN_IF_ERROR(Find(library, "cblas_sgemm", &sgemm));
  PASSEL_RETURN_IF_ERROR(Find(library, "openblas_get_corename", &core));
  PASSEL_RETURN_IF_ERROR(Find(library, "openblas_set_num_threads", &set_threads));
  set_threads(1);
  return Library{core(), Any, ByCblas(sgemm)};
}

Result<Library> OpenBlis(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(
      void* const library,
      Open(folder, "libblis.so.4", {"", "blis/usr/lib/x86_64-linux-gnu/blis-serial/"}));
  CblasSgemm* sgemm = nullptr;
  void (*initialize)() = nullptr;
  int (*query)() = nullptr;
  const char* (*name)(int) = nullptr;
  PASSEL_RETURN_IF_ERROR(Find(library, "cblas_sgemm", &sgemm));
  PASSEL_RETURN_IF_ERROR(Find(library, "bli_init", &initialize));
  PASSEL_RETURN_IF_ERROR(Find(library, "bli_arch_query_id", &query));
  PASSEL_RETURN_IF_ERROR(Find(library, "bli_arch_string", &name));
  // A question before that ends the process if BLIS_ARCH_TYPE is set, whatever to: no kernels are
  // registered yet.
  initialize();
  return Library{name(query()), Any, ByCblas(sgemm)};
}

Result<Library> OpenOneDnn(const std::string& folder) {
  // Whose loader is linked in, and which only that package would bring: one that is not found
  // elsewhere is taken from beside it.
  static_cast<void>(Open(folder, "libOpenCL.so.1", {"", "onednn/usr/lib/x86_64-linux-gnu/"}));
  PASSEL_ASSIGN_OR_RETURN(void* const library,
                          Open(folder, "libdnnl.so.2", {"", "onednn/usr/lib/x86_64-linux-gnu/"}));
  using Sgemm = int(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                    const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
                    float* c, std::int64_t ldc);
  Sgemm* sgemm = nullptr;
  int (*isa)() = nullptr;
  PASSEL_RETURN_IF_ERROR(Find(library, "dnnl_sgemm", &sgemm));
  PASSEL_RETURN_IF_ERROR(Find(library, "dnnl_get_effective_cpu_isa", &isa));
  return Library{fmt::format("cpu_isa {:#x}", isa()), Any, [sgemm](const Product& p) {
                   const auto n = [](std::size_t x) { return static_cast<std::int64_t>(x); };
                   sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', n(p.m), n(p.n),
                         n(p.k), 1, p.a, n(p.lda), p.b, n(p.ldb), p.beta, p.c, n(p.ldc));
                 }};
}

// It makes kernels for small products without transposed operands; larger ones are put together of
// them here, as its users do. Its matrices lie by columns: c' = b' a'.
Result<Library> OpenLibxsmm(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(void* const library,
                          Open(folder, "libxsmm.so", {"", "libxsmm/usr/lib/"}));
  using Kernel = void (*)(const float* a, const float* b, float* c);
  using Dispatch =
      Kernel(int m, int n, int k, const int* lda, const int* ldb, const int* ldc,
             const float* alpha, const float* beta, const int* flags, const int* prefetch);
  Dispatch* dispatch = nullptr;
  void (*initialize)() = nullptr;
  const char* (*target)() = nullptr;
  PASSEL_RETURN_IF_ERROR(Find(library, "libxsmm_init", &initialize));
  PASSEL_RETURN_IF_ERROR(Find(library, "libxsmm_get_target_arch", &target));
  PASSEL_RETURN_IF_ERROR(Find(library, "libxsmm_smmdispatch", &dispatch));
  initialize();
  const auto multiply = [dispatch](const Product& p) {
    constexpr std::size_t kRows = 48, kColumns = 64, kDepth = 392;
    const int lda = static_cast<int>(p.lda), ldb = static_cast<int>(p.ldb);
    const int ldc = static_cast<int>(p.ldc), none = 0;
    const float one = 1, zero = 0;
    for (std::size_t k = 0; k < p.k; k += kDepth) {
      const float* const beta = k > 0 || p.beta != 0 ? &one : &zero;
      const int depth = static_cast<int>(std::min(kDepth, p.k - k));
      for (std::size_t j = 0; j < p.n; j += kColumns) {
        const int columns = static_cast<int>(std::min(kColumns, p.n - j));
        for (std::size_t i = 0; i < p.m; i += kRows) {
          const int rows = static_cast<int>(std::min(kRows, p.m - i));
          dispatch(columns, rows, depth, &ldb, &lda, &ldc, &one, beta, &none, &none)(
              p.b + k * p.ldb + j, p.a + i * p.lda + k, p.c + i * p.ldc + j);
        }
      }
    }
  };
  return Library{target(), [](const Product& p) { return !p.transpose_a && !p.transpose_b; },
                 multiply};
}

}  // namespace

const std::vector<const char*>& KernelVariables() {
  static const std::vector<const char*> names = {"OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE",
                                                 "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",
                                                 "LIBXSMM_TARGET"};
  return names;
}

std::vector<LibraryChoice> LibraryChoices(VectorSet set, bool told) {
  std::vector<LibraryChoice> choices;
  if (!told) choices.push_back({"OpenBLAS, own choice", Kind::kOpenBlas, {}, false, false});
  const auto add = [&choices](const std::string& core, bool in_pieces) {
    choices.push_back({"OpenBLAS " + core + (in_pieces ? ", pieces" : ""),
                       Kind::kOpenBlas,
                       {{"OPENBLAS_CORETYPE", core}},
                       in_pieces,
                       false});
  };
  if (set != VectorSet::kBaseline) add("Haswell", false);
  if (set == VectorSet::kAvx512) {
    add("SkylakeX", false);
    add("SkylakeX", true);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) {
      add("Cooperlake", false);
      add("Cooperlake", true);
    }
#endif
  }
  // Own choice, Haswell, and the newest kernels in pieces.
  choices.back().is_passels = true;
  if (set == VectorSet::kAvx2) {
    add("Haswell", true);
    add("Zen", false);
  }
  LibraryChoice blis{"BLIS", Kind::kBlis, {{"BLIS_NUM_THREADS", "1"}}, false, false};
  LibraryChoice dnn{"oneDNN", Kind::kOneDnn, {{"OMP_NUM_THREADS", "1"}}, false, false};
  LibraryChoice xsmm{"libxsmm", Kind::kLibxsmm, {}, false, false};
  if (told) {
    // haswell, by its number in 0.9.0 (arch_t): that version takes a name for 0, AVX-512's.
    blis.variables.emplace_back("BLIS_ARCH_TYPE", "3");
    dnn.variables.emplace_back("ONEDNN_MAX_CPU_ISA", "AVX2");
    xsmm.variables.emplace_back("LIBXSMM_TARGET", "hsw");
  }
  choices.push_back(std::move(blis));
  choices.push_back(std::move(dnn));
  choices.push_back(std::move(xsmm));
  return choices;
}

Result<Library> OpenLibrary(const LibraryChoice& choice, const std::string& folder) {
  for (const auto& [name, value] : choice.variables) ::setenv(name.c_str(), value.c_str(), 1);
  Result<Library> library = choice.kind == Kind::kOpenBlas ? OpenOpenBlas(folder)
                            : choice.kind == Kind::kBlis   ? OpenBlis(folder)
                            : choice.kind == Kind::kOneDnn ? OpenOneDnn(folder)
                                                           : OpenLibxsmm(folder);
  if (library.ok() && choice.in_pieces) {
    library->multiply = [whole = library->multiply](const Product& product) {
      MultiplyInPieces(product, SmallPieces(product), whole);
    };
  }
  return library;
}

}  // namespace passel::bench
