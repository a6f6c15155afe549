// Fits y = 2x - 1 in C++: errors are exceptions, and the job is left at the end of its scope.
#include <passel.h>

#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

class Job {
 public:
  Job(std::span<const char* const> settings, std::span<const passel_variable> variables) {
    const passel_options options{sizeof options, settings.data(), settings.size()};
    Check(passel_open(&options, variables.data(), variables.size(), &job_));
  }
  ~Job() { passel_leave(job_); }
  Job(const Job&) = delete;
  operator passel_job*() const { return job_; }
  const float* Values(std::size_t id) const {
    const float* values = nullptr;
    Check(passel_values(job_, id, &values, nullptr));
    return values;
  }
  float* Gradient(std::size_t id) const {
    float* gradient = nullptr;
    Check(passel_gradient(job_, id, &gradient, nullptr));
    return gradient;
  }
  static void Check(passel_status status) {
    if (status != PASSEL_OK) throw std::runtime_error(passel_error());
  }

 private:
  passel_job* job_ = nullptr;
};

int main(int argc, char** argv) try {
  const std::vector<passel_variable> variables{{sizeof(passel_variable), "w", nullptr, 0, 0},
                                               {sizeof(passel_variable), "b", nullptr, 0, 0}};
  const Job job({argv + 1, argv + argc}, variables);
  Job::Check(passel_initialize(job, nullptr, 60));
  for (int step = 0; step < 10000; ++step) {
    Job::Check(passel_pull(job, PASSEL_PULL_AUTO));
    float gradient[2] = {};
    for (float x = -1; x < 1; x += 0.125F) {
      const float error = job.Values(0)[0] * x + job.Values(1)[0] - (2 * x - 1);
      gradient[0] += error * x / 16;
      gradient[1] += error / 16;
    }
    for (std::size_t id = 0; id < 2; ++id) job.Gradient(id)[0] = gradient[id];
    Job::Check(passel_push(job, 60));
    Job::Check(passel_wait(job, 60, nullptr));
  }
  Job::Check(passel_pull(job, PASSEL_PULL_COPY));
  std::printf("y = %.2f x + %.2f\n", job.Values(0)[0], job.Values(1)[0]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
