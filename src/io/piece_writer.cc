#include "io/piece_writer.h"

#include <algorithm>
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
    changed_.wait(lock, [this] { return !free_.empty(); });
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

void PieceWriter::Run() {
  nvtx::NameThread("checkpoints");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return end_ || !full_.empty(); });
    if (end_ || full_.empty()) return;
    Piece* const piece = full_.front();
    Status written = failed_;
    if (failed_.ok()) {
      lock.unlock();
      written = Put(*piece);
      lock.lock();
    }
    failed_ = written;
    full_.pop_front();
    free_.push_back(piece);
    changed_.notify_all();
  }
}

Status PieceWriter::Commit() {
  if (filling_ != nullptr) PASSEL_RETURN_IF_ERROR(HandOver());
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return full_.empty(); });
    PASSEL_RETURN_IF_ERROR(failed_);
  }
  return file_.Commit();
}

}  // namespace passel::checked_internal
