// passel_model_training DIR - steps of passel's model and optimizer, one worker's, on the images of
// DIR. For bench/framework_steps.py, which starts it: for each byte n read it makes n steps, each
// with a batch that it draws, and writes the microseconds of each, as doubles.

#include <cblas.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/random.h"
#include "bench/model_training.h"
#include "data/dataset.h"

namespace {

constexpr std::size_t kBatch = 100;

passel::Status Run(const char* dir) {
  using namespace passel;
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  openblas_set_num_threads(1);
  const FlushDenormals flushing;
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<bench::ModelTraining> model,
                          bench::ModelTraining::Create(*data));
  Random random(1);
  std::vector<std::uint32_t> batch(kBatch);
  unsigned char steps = 0;
  while (::read(STDIN_FILENO, &steps, 1) == 1) {
    std::vector<double> us(steps);
    for (double& one : us) {
      const std::int64_t begin = MonotonicNs();
      for (std::uint32_t& index : batch) {
        index = static_cast<std::uint32_t>(random.Below(data->train().size()));
      }
      PASSEL_RETURN_IF_ERROR(model->Step(batch));
      one = 1e-3 * static_cast<double>(MonotonicNs() - begin);
    }
    const auto bytes = static_cast<ssize_t>(us.size() * sizeof(double));
    if (::write(STDOUT_FILENO, us.data(), us.size() * sizeof(double)) != bytes) {
      return Unavailable("nobody reads the times");
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: passel_model_training DIR\n");
    return 2;
  }
  const passel::Status status = Run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "passel_model_training: %s\n", status.message().c_str());
  return 1;
}
