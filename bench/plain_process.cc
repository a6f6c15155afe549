#include "bench/plain_process.h"

#include <chrono>

#include "job/blas_variables.h"

namespace passel::bench {

Result<PlainProcess> PlainProcess::Start(const std::string& data_dir) {
  PASSEL_ASSIGN_OR_RETURN(ChildProcess child,
                          ChildProcess::StartBeside("passel_plain_training", {data_dir},
                                                    {job::kBlasCore, job::kBlasCoreIsOurs}));
  return PlainProcess(std::move(child));
}

Result<std::vector<double>> PlainProcess::Steps(int count) {
  const auto wanted = static_cast<unsigned char>(count);
  PASSEL_RETURN_IF_ERROR(child_.Send(&wanted, sizeof wanted));
  std::vector<double> us(wanted);
  PASSEL_RETURN_IF_ERROR(child_.Receive(us.data(), us.size() * sizeof(double),
                                        Deadline::After(std::chrono::seconds(60))));
  return us;
}

}  // namespace passel::bench
