#include "cuda/cublaslt_functions.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace passel::cuda {
namespace {

#define PASSEL_TEXT_OF(number) #number
#define PASSEL_LIBRARY_OF(major) "libcublasLt.so." PASSEL_TEXT_OF(major)
// Used: whole in the plugin's file, since tools/gpu_check looks for it there.
[[gnu::used]] constexpr char kLibrary[] = PASSEL_LIBRARY_OF(CUBLAS_VER_MAJOR);

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

Result<void*> OpenLibrary(std::string* path) {
  const std::string name = kLibrary;
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

Result<CublasLtFunctions> FunctionsOf(void* library, const std::string& path) {
  CublasLtFunctions functions;
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

}  // namespace

std::vector<std::string> CublasLtPlaces(const std::string& local) {
  const std::string name = kLibrary;
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

Result<CublasLtFunctions> LoadCublasLt(std::string* path) {
  PASSEL_ASSIGN_OR_RETURN(void* library, OpenLibrary(path));
  return FunctionsOf(library, *path);
}

}  // namespace passel::cuda
