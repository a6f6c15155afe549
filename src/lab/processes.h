// processes.h - several workers as several processes: forked, pinned, started at one moment.
//
// A child runs a function of this program and ends; what it found lies in SharedArray memory. It
// dies with its parent, ignores Ctrl-C (the parent decides), and is killed at the deadline.

#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <new>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/status.h"

namespace passel::lab {

/// Zeroed memory that processes forked later share with this one. T on line pairs of its own.
template <typename T>
class SharedArray {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  explicit SharedArray(std::size_t count) : bytes_(count * sizeof(Cell)) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    PASSEL_CHECK(memory != MAP_FAILED, "no memory for the results of a benchmark");
    cells_ = static_cast<Cell*>(memory);
    for (std::size_t i = 0; i < count; ++i) new (&cells_[i]) Cell{};
  }
  ~SharedArray() { ::munmap(cells_, bytes_); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;

  T& operator[](std::size_t i) { return cells_[i].value; }
  const T& operator[](std::size_t i) const { return cells_[i].value; }

 private:
  struct alignas(128) Cell {
    T value{};
  };
  std::size_t bytes_;
  Cell* cells_ = nullptr;
};

/// Where all processes of one run meet.
class Gate {
 public:
  /// Returns in all processes at nearly the same moment, once all have come; any number of times.
  /// Spins. Errors: kDeadlineExceeded.
  Status Wait(Deadline deadline);

 private:
  friend Status RunProcesses(const std::vector<std::vector<int>>&, Deadline,
                             const std::function<Status(int, Gate&)>&);
  std::atomic<int> arrived_{0};
  std::atomic<int> turn_{0};
  int count_ = 0;
};

/// Runs body(i, gate) in one child process per entry of `cpus`; child i may run on the processors
/// cpus[i] (empty: anywhere). Returns when all have ended.
/// Errors: the first one that a child returned; kDeadlineExceeded; kCancelled once Interrupted().
/// All are killed then.
Status RunProcesses(const std::vector<std::vector<int>>& cpus, Deadline deadline,
                    const std::function<Status(int index, Gate& gate)>& body);

/// The calling process may run on these alone.
Status PinTo(const std::vector<int>& cpus);

/// The first `count` usable processors, one for each process. REQUIRES: there are so many.
std::vector<std::vector<int>> OneCoreEach(int count);

/// True once the user pressed Ctrl-C. What is under way is given up: it counts for nothing.
bool Interrupted();
/// From now on SIGINT and SIGTERM are noted rather than deadly.
void NoteInterrupts();

}  // namespace passel::lab
