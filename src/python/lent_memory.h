// lent_memory.h - memory that arrays of Python show, for as long as any of them lives.
//
// What the library lends ends with passel_leave(); an array may live on. So an array shows a
// mapping of our own of the same pages, and Detach() makes that private when the job is left.
//
// Thread safety: one thread at a time.

#pragma once

#include <cstddef>
#include <memory>

namespace passel::python {

class LentMemory {
 public:
  /// The pages behind `floats`, which the library lends; null where they cannot be mapped a second
  /// time, because they are no shared memory.
  static std::shared_ptr<LentMemory> Alias(const float* floats, std::size_t count);
  /// Zeros of our own, 64-byte aligned; null without memory.
  static std::shared_ptr<LentMemory> Own(std::size_t count);

  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;
  ~LentMemory();

  float* floats() const { return floats_; }
  bool IsAlias() const { return shared_; }
  /// From here on nobody else sees what is written, nor changes it.
  void Detach();
  /// As Detach(), but zeros take the place of what is there: for a child of fork(), at no cost.
  void Forget();

 private:
  LentMemory(void* base, std::size_t bytes, float* floats, bool shared)
      : base_(base), bytes_(bytes), floats_(floats), shared_(shared) {}
  void* const base_;
  const std::size_t bytes_;  // whole pages
  float* const floats_;
  bool shared_;
};

}  // namespace passel::python
