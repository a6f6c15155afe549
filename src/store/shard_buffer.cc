#include "store/shard_buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>

#include "base/atomic_word.h"
#include "base/deadline.h"
#include "base/memory_file.h"
#include "base/subprocess.h"
#include "optim/update_kernels.h"

namespace passel {
namespace {

constexpr std::size_t kCopyPiece = std::size_t{1} << 18;  // floats: a fraction of a millisecond
// A thread takes as long to begin as it takes to copy about so many pieces.
constexpr std::size_t kPiecesPerThread = 4;
constexpr int kMostCopyThreads = 8;
constexpr std::size_t kFloatsPerPage = 4096 / sizeof(float);
constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
constexpr std::chrono::microseconds kLastPieces{20};

struct CopyPiece {
  float* to;
  const float* from;
  std::size_t floats;
};

std::vector<CopyPiece> PiecesOf(std::span<const ShardMemory> shards,
                                std::span<const std::vector<float*>> out) {
  std::vector<CopyPiece> pieces;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::vector<const float*> from = ContentsOf(shards[s]);
    const std::size_t floats = shards[s].floats;
    for (std::size_t k = 0; k < out[s].size(); ++k) {
      for (std::size_t begin = 0; begin < floats; begin += kCopyPiece) {
        pieces.push_back(
            {out[s][k] + begin, from[k] + begin, std::min(kCopyPiece, floats - begin)});
      }
    }
  }
  return pieces;
}

}  // namespace

std::vector<const float*> ContentsOf(const ShardMemory& memory) {
  std::vector<const float*> contents = {memory.values};
  for (int k = 0; k < memory.num_slots; ++k) contents.push_back(memory.slots[k]);
  return contents;
}

std::uint64_t ContentsBytes(const ShardMemory& memory, bool slots) {
  const auto parts = static_cast<std::uint64_t>(slots ? 1 + memory.num_slots : 1);
  return memory.floats * parts * sizeof(float);
}

void ShardBuffer::Unmap::operator()(float* memory) const { ::munmap(memory, bytes); }

// Whole huge pages: parts of one would stay until all of it goes.
void ShardBuffer::GiveBack(std::size_t floats) {
  const auto up = [](const float* at) {
    return (reinterpret_cast<std::uintptr_t>(at) + kHugePage - 1) & ~(kHugePage - 1);
  };
  const auto down = [](const float* at) {
    return reinterpret_cast<std::uintptr_t>(at) & ~(kHugePage - 1);
  };
  for (float* const content : contents_) {
    const std::uintptr_t begin = std::max(up(content), down(content + given_back_));
    const std::uintptr_t end = down(content + floats);
    if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  given_back_ = floats;
}

Result<std::vector<ShardBuffer>> MakeShardBuffers(std::span<const ShardMemory> shards, bool slots,
                                                  double share, bool touch) {
  std::uint64_t bytes = 0;
  for (const ShardMemory& shard : shards) bytes += ContentsBytes(shard, slots);
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  if (static_cast<double>(bytes) > share * static_cast<double>(budget.available_bytes)) {
    return ResourceExhausted(
        fmt::format("a copy of the variables needs {} bytes of memory, and {} has {} free", bytes,
                    budget.limit, budget.available_bytes));
  }
  std::vector<ShardBuffer> buffers;
  for (const ShardMemory& shard : shards) {
    ShardBuffer& buffer = buffers.emplace_back();
    const std::size_t size = std::max<std::size_t>(ContentsBytes(shard, slots), sizeof(float));
    void* const base =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      return ErrnoStatus(errno, "cannot get memory for a copy of the variables");
    }
    (void)::madvise(base, size, MADV_HUGEPAGE);  // a wish
    float* const memory = static_cast<float*>(base);
    // The kernel clears each page when it is touched.
    for (std::size_t i = 0; touch && i < size / sizeof(float); i += kFloatsPerPage) memory[i] = 0;
    buffer.memory_ = {memory, ShardBuffer::Unmap{size}};
    const int parts = slots ? 1 + shard.num_slots : 1;
    for (int k = 0; k < parts; ++k) {
      buffer.contents_.push_back(memory + static_cast<std::size_t>(k) * shard.floats);
    }
  }
  return buffers;
}

void CopyShards(std::span<const ShardMemory> shards, std::span<const std::vector<float*>> out,
                int threads, const std::function<void()>& between) {
  const std::vector<CopyPiece> pieces = PiecesOf(shards, out);
  std::atomic<std::size_t> taken{0}, copied{0};
  const auto copy_one = [&] {
    const std::size_t i = taken.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces.size()) return false;
    CopyValues(pieces[i].to, pieces[i].from, pieces[i].floats);
    EndOfCopy();
    copied.fetch_add(1, std::memory_order_release);
    return true;
  };
  const std::size_t useful = pieces.size() / kPiecesPerThread;
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < std::min(useful, static_cast<std::size_t>(threads))) {
      others.emplace_back([&copy_one] {
        while (copy_one()) {
        }
      });
    }
  } catch (const std::system_error&) {
    // No more threads for this user: the others copy all.
  }
  Deadline due = Deadline::After(kBetweenCopies);
  const auto look = [&] {
    if (!between || !due.Expired()) return;
    between();
    due = Deadline::After(kBetweenCopies);
  };
  while (copy_one()) look();
  // Acquire, paired with the release of each piece.
  while (copied.load(std::memory_order_acquire) < pieces.size()) {
    std::this_thread::sleep_for(kLastPieces);
    look();
  }
  for (std::thread& other : others) other.join();
}

int CopyThreads() {
  return std::min(kMostCopyThreads, std::max(1, static_cast<int>(UsableCpus().size())));
}

}  // namespace passel
