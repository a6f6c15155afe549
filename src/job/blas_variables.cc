#include "job/blas_variables.h"

#include <strings.h>

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "compute/matrix_kernels.h"

namespace passel::job {

void WarnOfBlasCore() {
  const char* const given = std::getenv(kBlasCore);
  if (given == nullptr || std::getenv(kBlasCoreIsOurs) != nullptr) return;
  const std::string taken = MatrixLibraryCore();
  if (::strcasecmp(given, taken.c_str()) == 0) return;
  LogWarning(
      "{} is {}, which OpenBLAS does not know or have: it multiplies with kernels for {}; unset "
      "the variable, and passel chooses those that suit this processor",
      kBlasCore, Quoted(given), taken);
}

}  // namespace passel::job
