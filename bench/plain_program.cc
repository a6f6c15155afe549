// passel_plain_training DIR - PlainTraining on the images of DIR, with the kernels that OpenBLAS
// chooses: nothing here chooses for it. For BM_Compute, which starts it: for each byte n read it
// makes n steps and writes the microseconds of each, as doubles.

#include <cblas.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/random.h"
#include "bench/plain_training.h"
#include "data/dataset.h"

namespace {

constexpr std::size_t kBatch = 100, kHidden = 100;

int Run(const char* dir) {
  using namespace passel;
  const Result<OwnedDataset> data = OwnedDataset::Load(dir);
  if (!data.ok()) {
    std::fprintf(stderr, "passel_plain_training: %s\n", data.status().message().c_str());
    return 1;
  }
  const ImageSet& train = (*data)->train();
  openblas_set_num_threads(1);
  const FlushDenormals flushing;
  bench::PlainTraining plain(train.images.data(), train.labels.data(), train.image_pixels, kHidden,
                             (*data)->num_classes(), kBatch);
  Random random(1);
  const auto draw = [&random](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = 0.1F * (static_cast<float>(random.Below(1001)) * 2e-3F - 1);
    return values;
  };
  plain.SetValues(draw(train.image_pixels * kHidden).data(), draw(kHidden).data(),
                  draw(kHidden * (*data)->num_classes()).data(),
                  draw((*data)->num_classes()).data());
  std::vector<std::uint32_t> batch(kBatch);
  unsigned char steps = 0;
  while (::read(STDIN_FILENO, &steps, 1) == 1) {
    std::vector<double> us(steps);
    for (double& one : us) {
      for (std::uint32_t& index : batch) {
        index = static_cast<std::uint32_t>(random.Below(train.size()));
      }
      const std::int64_t begin = MonotonicNs();
      plain.Step(batch.data());
      one = 1e-3 * static_cast<double>(MonotonicNs() - begin);
    }
    const auto bytes = static_cast<ssize_t>(us.size() * sizeof(double));
    if (::write(STDOUT_FILENO, us.data(), us.size() * sizeof(double)) != bytes) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) return Run(argv[1]);
  std::fprintf(stderr, "usage: passel_plain_training DIR\n");
  return 2;
}
