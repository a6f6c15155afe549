// cublaslt_functions.h - the functions of cuBLASLt, found and opened at run time.
//
// The library weighs 0.5 GB and takes a second to open, so nothing links it. It is the file that
// $PASSEL_CUBLASLT_PATH names, absolute, or else the first of CublasLtPlaces() that can be opened.

#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace passel::cuda {

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

struct CublasLtFunctions {
#define PASSEL_MEMBER(name) decltype(&cublasLt##name) name = nullptr;
  PASSEL_CUBLASLT_FUNCTIONS(PASSEL_MEMBER)
#undef PASSEL_MEMBER
};

/// Where the library is looked for, in this order: by its name (libcublasLt.so.13 for a build with
/// CUDA 13) as the dynamic loader does, then in the toolkit `local`/cuda, then in those of
/// `local`/cuda-*, the newest first.
std::vector<std::string> CublasLtPlaces(const std::string& local);

/// Opens the library; it stays open, as its kernels may run until the process ends. `*path`: which.
/// Errors: kNotFound where there is none; kInvalidArgument or kFailedPrecondition for one that
/// cannot be used; each with the remedy.
Result<CublasLtFunctions> LoadCublasLt(std::string* path);

}  // namespace passel::cuda
