// piece_writer.h - a file that is written while what comes next in it is made ready.
//
// What is given is copied into pieces of memory, and those are written. A long file is written past
// the page cache where the file system can do that. Then, or if the thread that calls does not give
// way to others, a thread of its own helps to write.
//
// Memory     A few MiB.
// Threads    One thread at a time. Who calls writes a piece itself where the helper is behind.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "io/crc32.h"

namespace passel::checked_internal {

class PieceWriter {
 public:
  /// `bytes`: of the whole file.
  PieceWriter(AtomicFile file, std::uint64_t bytes);
  PieceWriter(const PieceWriter&) = delete;
  PieceWriter& operator=(const PieceWriter&) = delete;
  /// Waits for what is being written.
  ~PieceWriter();

  /// Copies `data`; the copy is added to `sum` and written, now or later. Errors: those of the file
  /// system, perhaps of what was given before; no call but the destructor's may follow.
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> data, Crc32* sum = nullptr);
  /// Writes all that waits. Errors: the same; those of AtomicFile::Commit().
  Status Commit();

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  // Of one stretch of the file between two multiples of kPiece; memory[0] is for the first of them.
  struct Piece {
    std::uint64_t end() const { return offset + size; }
    std::unique_ptr<std::byte[], Free> memory;
    std::uint64_t offset = 0;  // in the file
    std::size_t size = 0;
  };

  Status Take(std::uint64_t offset);
  Status HandOver();
  Status Put(const Piece& piece);
  void PutOrWait(std::unique_lock<std::mutex>& lock);
  void PutNext(std::unique_lock<std::mutex>& lock);
  void Run();

  AtomicFile file_;
  std::vector<Piece> pieces_;
  Piece* filling_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece*> free_, full_;  // full ones are written in their order
  bool writing_ = false;            // one, which is in neither
  Status failed_;                   // the first write that did
  bool end_ = false;                // of the helper
  std::thread thread_;              // not joinable: none; last: it uses the rest
};

}  // namespace passel::checked_internal
