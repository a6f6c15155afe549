// exact_buffer.h - memory that ends where it ends, for AddressSanitizer to watch over.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"

namespace passel::cuda {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// `count` elements, 64-byte aligned, or `shift` bytes behind such an address. Poisoned at first.
template <typename T>
class ExactBuffer {
 public:
  explicit ExactBuffer(std::size_t count, std::size_t shift = 0) : count_(count) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, count * sizeof(T) + shift) != 0) std::abort();
    memory_.reset(memory);
    data_ = reinterpret_cast<T*>(static_cast<char*>(memory) + shift);
    if (count != 0) std::memset(static_cast<void*>(data_), 0xff, count * sizeof(T));
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_ = nullptr;
  std::size_t count_;
};

inline void FillNormal(ExactBuffer<float>& buffer, Random& random) {
  for (float& x : buffer) x = static_cast<float>(random.Normal());
}

/// |got - wanted| / |wanted|, Frobenius norms; infinite if a number is not finite.
inline double RelativeError(const std::vector<double>& got, const std::vector<double>& wanted) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace passel::cuda
