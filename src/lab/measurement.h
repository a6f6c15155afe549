// measurement.h - what the processes of one measurement share (lab/measure.h), and what each of its
// writers does (run_writer.cc).

#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "lab/cell.h"
#include "lab/measure.h"
#include "lab/processes.h"
#include "lab/writers.h"
#include "store/store_plan.h"

namespace passel::lab {

inline constexpr int kMaxPairs = 64;

/// One timed run of one writer.
struct RunLog {
  std::size_t samples = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct WriterLog {
  RunLog limit[kMaxPairs], cell[kMaxPairs];
  std::int64_t pushes = 0;  // of the cell, after the check
  Collisions collisions;
  bool late = false;  // an open loop gave up before its last operation
};

/// What the writers of one timed run agree on; 0: not decided yet.
struct Common {
  std::atomic<std::int64_t> start_ns;        // open loops: the first one's start, for all of them
  std::atomic<std::int64_t> end_operations;  // rounds, and ssp: all end after the same operation
};

/// Samples of all writers in us, shared with them: [writers][limit, cell][pairs][capacity].
class SampleMemory {
 public:
  SampleMemory(int writers, int pairs, std::size_t capacity)
      : pairs_(static_cast<std::size_t>(pairs)),
        capacity_(capacity),
        bytes_(static_cast<std::size_t>(writers) * 2 * pairs_ * capacity * sizeof(float)) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) samples_ = static_cast<float*>(memory);
  }
  ~SampleMemory() {
    if (samples_ != nullptr) ::munmap(samples_, bytes_);
  }
  SampleMemory(const SampleMemory&) = delete;
  SampleMemory& operator=(const SampleMemory&) = delete;

  bool valid() const { return samples_ != nullptr; }
  std::size_t capacity() const { return capacity_; }
  float* Of(int writer, bool limit, int pair) const {
    const std::size_t run = (static_cast<std::size_t>(writer) * 2 + (limit ? 0 : 1)) * pairs_ +
                            static_cast<std::size_t>(pair);
    return samples_ + run * capacity_;
  }

 private:
  const std::size_t pairs_;
  const std::size_t capacity_;  // of one run
  const std::size_t bytes_;
  float* samples_ = nullptr;
};

/// What all processes of one measurement know.
struct Measurement {
  Cell cell;
  StorePlan plan;
  LabOptions options;
  int usable_cores = 1;
  Deadline deadline = Deadline::After(std::chrono::seconds(0));
  int arena_fd = -1;
  const SampleMemory* samples = nullptr;
  SharedArray<WriterLog>* logs = nullptr;
  SharedArray<Common>* common = nullptr;  // [pairs]
  SharedArray<SharedMutex>* mutex = nullptr;

  std::int64_t RunNs() const { return static_cast<std::int64_t>(1e9 * options.run_seconds); }
  bool EndsTogether() const { return cell.sharing.in_rounds() || cell.sharing.traits().bounded; }
  // Operations that a writer can be ahead of another, and one more.
  std::int64_t Lead() const {
    const ModeTraits& traits = cell.sharing.traits();
    return traits.bounded ? traits.omitted + 2 : 1;
  }
  // However long they take.
  std::int64_t LeastOperations() const { return cell.elements > 4'000'000 ? 2 : 5; }
  // Untimed, before each run: caches and branches as they will be.
  int WarmUps() const {
    return static_cast<int>(std::clamp<std::size_t>(1'000'000 / cell.elements, 1, 1000));
  }
  // Every writer that waits for its time has a core to do so on.
  bool CoresForAll() const {
    return cell.placement != Placement::kOne && cell.writers <= usable_cores;
  }
};

/// Everything that the writer of that index does.
Status RunWriter(const Measurement& m, int index, Gate& gate);

}  // namespace passel::lab
