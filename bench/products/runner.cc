#include "bench/products/runner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/random.h"

namespace passel::bench {
namespace {

constexpr std::size_t kLine = 64;

struct Request {
  Shape shape;
  bool cold = false;
  double least_us = 0;
};

struct Hello {
  bool ok = false;
  char text[500] = {};  // kernels, or why not
};

struct Free {
  void operator()(float* memory) const { ::operator delete (memory, std::align_val_t{kLine}); }
};
using Floats = std::unique_ptr<float, Free>;

Floats Allocate(std::size_t count) {
  return Floats(
      static_cast<float*>(::operator new ((count + 16) * sizeof(float), std::align_val_t{kLine})));
}

void FillRandom(float* to, std::size_t count, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < count; ++i)
    to[i] = static_cast<float>(random.Below(2001)) * 1e-3F - 1;
}

// The matrices of the latest shape.
class Operands {
 public:
  void Make(const Shape& shape) {
    if (product_.a != nullptr && shape.Name() == name_) return;
    name_ = shape.Name();
    product_ = shape.ToProduct();
    Product& p = product_;
    sizes_[0] = (p.transpose_a ? p.k : p.m) * p.lda;
    sizes_[1] = (p.transpose_b ? p.n : p.k) * p.ldb;
    sizes_[2] = p.m * p.ldc;
    for (int i = 0; i < 3; ++i) {
      memory_[i].reset();
      memory_[i] = Allocate(sizes_[i]);
      FillRandom(memory_[i].get(), sizes_[i], static_cast<std::uint64_t>(i) + 1);
    }
    p.a = memory_[0].get();
    p.b = memory_[1].get();
    p.c = memory_[2].get();
    verified_ = false;
  }
  const Product& product() const { return product_; }

  // Out of all caches. Elsewhere than on x86-64 by reading something else.
  void Flush() {
#if defined(__x86_64__)
    for (int i = 0; i < 3; ++i) {
      const char* at = reinterpret_cast<const char*>(memory_[i].get());
      for (std::size_t byte = 0; byte < sizes_[i] * sizeof(float); byte += kLine) {
        __builtin_ia32_clflush(at + byte);
      }
    }
    __builtin_ia32_mfence();
#else
    constexpr std::size_t kBeyondCaches = std::size_t{64} << 20;
    if (!other_) other_ = Allocate(kBeyondCaches / sizeof(float));
    std::memset(static_cast<void*>(other_.get()), 1, kBeyondCaches);
#endif
  }

  // 64 elements of c beside their sums in double precision, once for each shape.
  bool Correct() {
    if (verified_) return true;
    const Product& p = product_;
    Random random(9);
    for (int sample = 0; sample < 64; ++sample) {
      const std::size_t i = random.Below(p.m), j = random.Below(p.n);
      double sum = 0, size = 0;
      for (std::size_t l = 0; l < p.k; ++l) {
        const double a = p.a[p.transpose_a ? l * p.lda + i : i * p.lda + l];
        const double b = p.b[p.transpose_b ? j * p.ldb + l : l * p.ldb + j];
        sum += a * b;
        size += std::abs(a * b);
      }
      const double error = std::abs(static_cast<double>(p.c[i * p.ldc + j]) - sum);
      if (!(error <= 1e-5 * size + 1e-6)) return false;
    }
    verified_ = true;
    return true;
  }

 private:
  std::string name_;
  Product product_;
  Floats memory_[3];
  std::size_t sizes_[3] = {};
  bool verified_ = false;
#if !defined(__x86_64__)
  Floats other_;
#endif
};

double Microseconds(const Library& library, const Product& product, int times) {
  const std::int64_t begin = MonotonicNs();
  for (int i = 0; i < times; ++i) library.multiply(product);
  return 1e-3 * static_cast<double>(MonotonicNs() - begin) / times;
}

Timing Answer(const Library& library, Operands& operands, const Request& request) {
  if (!library.can(request.shape.ToProduct())) return {};
  operands.Make(request.shape);
  Timing found{true, false, 0};
  if (request.cold) {
    operands.Flush();
    found.microseconds = Microseconds(library, operands.product(), 1);
  } else {
    const double first = Microseconds(library, operands.product(), 1);
    const double times = std::ceil(request.least_us / std::max(first, 0.1));
    found.microseconds =
        Microseconds(library, operands.product(), static_cast<int>(std::clamp(times, 1.0, 1e5)));
  }
  found.correct = operands.Correct();
  return found;
}

int RunChild(const LibraryChoice& choice, const std::string& folder, int socket) {
  Hello hello;
  Result<Library> library = OpenLibrary(choice, folder);
  hello.ok = library.ok();
  const std::string text = library.ok() ? library->kernels : library.status().message();
  std::memcpy(hello.text, text.data(), std::min(text.size(), sizeof hello.text - 1));
  if (::write(socket, &hello, sizeof hello) != sizeof hello || !library.ok()) return 0;
  Operands operands;
  Request request;
  while (::read(socket, &request, sizeof request) == sizeof request) {
    const Timing found = Answer(*library, operands, request);
    if (::write(socket, &found, sizeof found) != sizeof found) break;
  }
  return 0;
}

Deadline ReplyDeadline() { return Deadline::After(std::chrono::seconds(60)); }

}  // namespace

Result<Runner> Runner::Start(const LibraryChoice& choice, const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(ChildProcess child,
                          ChildProcess::Start(choice.name, [&choice, &folder](int socket) {
                            return RunChild(choice, folder, socket);
                          }));
  Hello hello;
  PASSEL_RETURN_IF_ERROR(child.Receive(&hello, sizeof hello, ReplyDeadline()));
  if (!hello.ok) return NotFound(hello.text);
  return Runner(choice.name, hello.text, std::move(child));
}

Result<Timing> Runner::Measure(const Shape& shape, bool cold, double least_us) {
  const Request request{shape, cold, least_us};
  PASSEL_RETURN_IF_ERROR(child_.Send(&request, sizeof request));
  Timing found;
  PASSEL_RETURN_IF_ERROR(child_.Receive(&found, sizeof found, ReplyDeadline()));
  return found;
}

}  // namespace passel::bench
