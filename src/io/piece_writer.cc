#include "io/piece_writer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/give_way.h"
#include "base/nvtx.h"

namespace passel::checked_internal {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes
constexpr std::size_t kPieces = 4;
constexpr std::uint64_t kLong = std::uint64_t{16} << 20;
// So many bytes are still in a core's cache when they were copied.
constexpr std::size_t kInCache = std::size_t{64} << 10;
// For a helper that only helps.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

PieceWriter::PieceWriter(AtomicFile file, std::uint64_t bytes) : file_(std::move(file)) {
  if (bytes >= kLong && (file_.GoPastCache() || !GivesWay())) {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      // No more threads for this user.
    }
  }
  pieces_.resize(thread_.joinable() ? kPieces : 1);
  for (Piece& piece : pieces_) free_.push_back(&piece);
}

PieceWriter::~PieceWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status PieceWriter::WriteAt(std::uint64_t offset, std::span<const std::byte> data, Crc32* sum) {
  while (!data.empty()) {
    if (filling_ != nullptr && filling_->end() != offset) PASSEL_RETURN_IF_ERROR(HandOver());
    if (filling_ == nullptr) PASSEL_RETURN_IF_ERROR(Take(offset));
    const std::size_t at = offset % kPiece;
    const auto part = data.first(std::min({data.size(), kPiece - at, kInCache}));
    std::byte* const copy = filling_->memory.get() + at;
    std::memcpy(copy, part.data(), part.size());
    if (sum != nullptr) sum->Add({copy, part.size()});
    filling_->size += part.size();
    offset += part.size();
    data = data.subspan(part.size());
    if (offset % kPiece == 0) PASSEL_RETURN_IF_ERROR(HandOver());
  }
  return {};
}

Status PieceWriter::Take(std::uint64_t offset) {
  {
    std::unique_lock lock(mutex_);
    while (free_.empty()) PutOrWait(lock);
    if (!failed_.ok()) return failed_;
    filling_ = free_.front();
    free_.pop_front();
  }
  if (filling_->memory == nullptr) {
    filling_->memory.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectBytes, kPiece)));
    if (filling_->memory == nullptr) throw std::bad_alloc();
  }
  filling_->offset = offset;
  filling_->size = 0;
  return {};
}

Status PieceWriter::HandOver() {
  Piece* const piece = std::exchange(filling_, nullptr);
  if (!thread_.joinable()) {
    free_.push_back(piece);
    return Put(*piece);
  }
  {
    const std::lock_guard lock(mutex_);
    full_.push_back(piece);
  }
  changed_.notify_all();
  return {};
}

Status PieceWriter::Put(const Piece& piece) {
  return file_.WriteAt(piece.offset, {piece.memory.get() + piece.offset % kPiece, piece.size});
}

// The next piece; while the helper writes, until it has done that.
void PieceWriter::PutOrWait(std::unique_lock<std::mutex>& lock) {
  if (!writing_ && !full_.empty()) return PutNext(lock);
  const bool late = changed_.wait_for(lock, kPatience) == std::cv_status::timeout;
  // It gets no processor, so that each of its pieces would be waited for. Or the disk is slow, and
  // then it is no help either.
  if (late && GivesWay()) end_ = true;
}

void PieceWriter::PutNext(std::unique_lock<std::mutex>& lock) {
  Piece* const piece = full_.front();
  full_.pop_front();
  if (failed_.ok()) {
    writing_ = true;
    lock.unlock();
    Status written = Put(*piece);
    lock.lock();
    writing_ = false;
    failed_ = std::move(written);
  }
  free_.push_back(piece);
  changed_.notify_all();
}

void PieceWriter::Run() {
  nvtx::NameThread("checkpoints");
  if (GivesWay()) OnlyHelp();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return end_ || (!writing_ && !full_.empty()); });
    if (end_) return;
    PutNext(lock);
  }
}

Status PieceWriter::Commit() {
  if (filling_ != nullptr) PASSEL_RETURN_IF_ERROR(HandOver());
  {
    std::unique_lock lock(mutex_);
    while (writing_ || !full_.empty()) PutOrWait(lock);
    PASSEL_RETURN_IF_ERROR(failed_);
  }
  return file_.Commit();
}

}  // namespace passel::checked_internal
