// page_memory.h - memory on pages of its own, for what a driver registers page by page.

#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace passel {

/// Zeroed floats on whole pages, where nothing else lies. Throws std::bad_alloc without memory.
class PageFloats {
 public:
  explicit PageFloats(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (count * sizeof(float) + page - 1) / page * page;
    if (bytes == 0) return;
    memory_.reset(static_cast<float*>(std::aligned_alloc(page, bytes)));
    if (memory_ == nullptr) throw std::bad_alloc();
    std::memset(memory_.get(), 0, bytes);
  }

  std::span<float> floats() const { return {memory_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  std::size_t count_;
};

}  // namespace passel
