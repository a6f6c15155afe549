// Compiled with -march=native: nothing here but plain loops, and no inline function of a library
// that another file might be given.

#include "bench/plain_training.h"

#include <cblas.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace passel::bench {

struct PlainTraining::Buffers {
  const std::uint8_t* images;
  const std::uint8_t* labels;
  std::size_t inputs, hidden, classes, batch, parameters;
  float *values, *m, *v, *gradient;  // each (parameters): w1, b1, w2, b2
  float *x, *h, *y, *dh;             // (batch, inputs), (batch, hidden), (batch, classes), as h
  double beta1_power, beta2_power;
};

namespace {

float* Zeros(std::size_t count) {
  const std::size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, bytes);
  if (memory == nullptr) std::abort();
  std::memset(memory, 0, bytes);
  return static_cast<float*>(memory);
}

void Gather(const std::uint8_t* images, const std::uint32_t* indices, std::size_t batch,
            std::size_t inputs, float* __restrict x) {
  for (std::size_t b = 0; b < batch; ++b) {
    const std::uint8_t* __restrict from = images + indices[b] * inputs;
    for (std::size_t i = 0; i < inputs; ++i) {
      x[b * inputs + i] = static_cast<float>(from[i]) * (1.0F / 255);
    }
  }
}

void AddBias(const float* __restrict bias, float* __restrict y, std::size_t rows,
             std::size_t cols) {
  for (std::size_t b = 0; b < rows; ++b) {
    for (std::size_t j = 0; j < cols; ++j) y[b * cols + j] += bias[j];
  }
}

void Relu(float* __restrict h, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) h[i] = h[i] > 0 ? h[i] : 0;
}

// y becomes dL/dy of the mean cross-entropy.
void SoftmaxGradient(float* y, const std::uint8_t* labels, const std::uint32_t* indices,
                     std::size_t rows, std::size_t cols) {
  const float scale = 1.0F / static_cast<float>(rows);
  for (std::size_t b = 0; b < rows; ++b, y += cols) {
    float most = y[0];
    for (std::size_t j = 1; j < cols; ++j) most = y[j] > most ? y[j] : most;
    float sum = 0;
    for (std::size_t j = 0; j < cols; ++j) sum += y[j] = __builtin_expf(y[j] - most);
    for (std::size_t j = 0; j < cols; ++j) y[j] = y[j] / sum * scale;
    y[labels[indices[b]]] -= scale;
  }
}

void ColumnSums(const float* __restrict d, std::size_t rows, std::size_t cols,
                float* __restrict sums) {
  for (std::size_t j = 0; j < cols; ++j) sums[j] = 0;
  for (std::size_t b = 0; b < rows; ++b) {
    for (std::size_t j = 0; j < cols; ++j) sums[j] += d[b * cols + j];
  }
}

void ReluGradient(const float* __restrict h, float* __restrict dh, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) dh[i] = h[i] > 0 ? dh[i] : 0;
}

__attribute__((noinline)) void Adam(float* __restrict w, float* __restrict m, float* __restrict v,
                                    const float* __restrict g, float rate, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    m[i] += 0.1F * (g[i] - m[i]);
    v[i] += 0.001F * (g[i] * g[i] - v[i]);
    w[i] -= rate * m[i] / (__builtin_sqrtf(v[i]) + 1e-8F);
  }
}

}  // namespace

PlainTraining::PlainTraining(const std::uint8_t* images, const std::uint8_t* labels,
                             std::size_t inputs, std::size_t hidden, std::size_t classes,
                             std::size_t batch)
    : buffers_(static_cast<Buffers*>(std::malloc(sizeof(Buffers)))) {
  if (buffers_ == nullptr) std::abort();
  const std::size_t parameters = inputs * hidden + hidden + hidden * classes + classes;
  Buffers& b = *buffers_;
  b.images = images;
  b.labels = labels;
  b.inputs = inputs;
  b.hidden = hidden;
  b.classes = classes;
  b.batch = batch;
  b.parameters = parameters;
  for (float** p : {&b.values, &b.m, &b.v, &b.gradient}) *p = Zeros(parameters);
  b.x = Zeros(batch * inputs);
  b.h = Zeros(batch * hidden);
  b.y = Zeros(batch * classes);
  b.dh = Zeros(batch * hidden);
  b.beta1_power = b.beta2_power = 1;
}

PlainTraining::~PlainTraining() {
  Buffers& b = *buffers_;
  for (float* p : {b.values, b.m, b.v, b.gradient, b.x, b.h, b.y, b.dh}) std::free(p);
  std::free(buffers_);
}

void PlainTraining::SetValues(const float* w1, const float* b1, const float* w2, const float* b2) {
  const Buffers& b = *buffers_;
  float* to = b.values;
  std::memcpy(to, w1, b.inputs * b.hidden * sizeof(float));
  to += b.inputs * b.hidden;
  std::memcpy(to, b1, b.hidden * sizeof(float));
  to += b.hidden;
  std::memcpy(to, w2, b.hidden * b.classes * sizeof(float));
  to += b.hidden * b.classes;
  std::memcpy(to, b2, b.classes * sizeof(float));
}

const float* PlainTraining::w1() const { return buffers_->values; }

void PlainTraining::Step(const std::uint32_t* indices) {
  Buffers& s = *buffers_;
  const auto inputs = static_cast<int>(s.inputs), hidden = static_cast<int>(s.hidden);
  const auto classes = static_cast<int>(s.classes), batch = static_cast<int>(s.batch);
  const std::size_t b1 = s.inputs * s.hidden, w2 = b1 + s.hidden, b2 = w2 + s.hidden * s.classes;
  const auto product = [](CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int rows, int cols, int depth,
                          const float* a, int lda, const float* b, int ldb, float* c) {
    cblas_sgemm(CblasRowMajor, ta, tb, rows, cols, depth, 1, a, lda, b, ldb, 0, c, cols);
  };
  Gather(s.images, indices, s.batch, s.inputs, s.x);
  product(CblasNoTrans, CblasNoTrans, batch, hidden, inputs, s.x, inputs, s.values, hidden, s.h);
  AddBias(s.values + b1, s.h, s.batch, s.hidden);
  Relu(s.h, s.batch * s.hidden);
  product(CblasNoTrans, CblasNoTrans, batch, classes, hidden, s.h, hidden, s.values + w2, classes,
          s.y);
  AddBias(s.values + b2, s.y, s.batch, s.classes);
  SoftmaxGradient(s.y, s.labels, indices, s.batch, s.classes);
  ColumnSums(s.y, s.batch, s.classes, s.gradient + b2);
  product(CblasTrans, CblasNoTrans, hidden, classes, batch, s.h, hidden, s.y, classes,
          s.gradient + w2);
  product(CblasNoTrans, CblasTrans, batch, hidden, classes, s.y, classes, s.values + w2, classes,
          s.dh);
  ReluGradient(s.h, s.dh, s.batch * s.hidden);
  ColumnSums(s.dh, s.batch, s.hidden, s.gradient + b1);
  product(CblasTrans, CblasNoTrans, inputs, hidden, batch, s.x, inputs, s.dh, hidden, s.gradient);
  s.beta1_power *= 0.9;
  s.beta2_power *= 0.999;
  const auto rate =
      static_cast<float>(0.001 * __builtin_sqrt(1 - s.beta2_power) / (1 - s.beta1_power));
  Adam(s.values, s.m, s.v, s.gradient, rate, s.parameters);
}

}  // namespace passel::bench
