// blas_variables.h - which kernels OpenBLAS is to use: read by its constructor, from the
// environment.

#pragma once

namespace passel::job {

/// OpenBLAS's own variable.
inline constexpr char kBlasCore[] = "OPENBLAS_CORETYPE";
/// Set if that one is the choice of a process of passel (tools/passel/process_start.cc), so that
/// programs of the user do not get it.
inline constexpr char kBlasCoreIsOurs[] = "PASSEL_BLAS_CORE";

/// Logs a warning where the user has set kBlasCore to what OpenBLAS did not take.
void WarnOfBlasCore();

}  // namespace passel::job
