#include "data/idx.h"

#include <fmt/core.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"

namespace passel {
namespace {

constexpr std::uint32_t kImagesMagic = 2051;
constexpr std::uint32_t kLabelsMagic = 2049;
constexpr std::size_t kInputBytes = 128 * 1024;

std::uint32_t BigEndian32(const std::byte* bytes) {
  return std::to_integer<std::uint32_t>(bytes[0]) << 24 |
         std::to_integer<std::uint32_t>(bytes[1]) << 16 |
         std::to_integer<std::uint32_t>(bytes[2]) << 8 | std::to_integer<std::uint32_t>(bytes[3]);
}

}  // namespace

Result<std::size_t> ReadUpTo(ByteSource& source, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t got, source.Read(out.subspan(done)));
    if (got == 0) break;
    done += got;
  }
  return done;
}

Result<std::size_t> SpanSource::Read(std::span<std::byte> to) {
  const std::size_t count = std::min(to.size(), rest_.size());
  std::copy_n(rest_.begin(), count, to.begin());
  rest_ = rest_.subspan(count);
  return count;
}

FileSource::FileSource(FileDescriptor fd, std::uint64_t size, std::string path)
    : fd_(std::move(fd)), size_(size), path_(std::move(path)) {}

Result<std::unique_ptr<FileSource>> FileSource::Open(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(OpenFile file, OpenRegularFile(path));
  return std::unique_ptr<FileSource>(new FileSource(std::move(file.fd), file.bytes, path));
}

Result<std::size_t> FileSource::Read(std::span<std::byte> to) {
  for (;;) {
    const ssize_t got = ::read(fd_.get(), to.data(), to.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return ErrnoStatus(errno, fmt::format("cannot read {}", path_));
  }
}

void IdxReader::EndInflate::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

IdxReader::IdxReader(std::unique_ptr<ByteSource> source, IdxKind kind, std::string name)
    : source_(std::move(source)),
      kind_(kind),
      name_(std::move(name)),
      input_(std::make_unique_for_overwrite<std::byte[]>(kInputBytes)) {}

// Reads more input behind what is there. REQUIRES: the buffer is empty, or not full.
Status IdxReader::Refill() {
  if (input_begin_ == input_end_) input_begin_ = input_end_ = 0;
  PASSEL_ASSIGN_OR_RETURN(
      const std::size_t got,
      source_->Read(std::span(input_.get() + input_end_, kInputBytes - input_end_)));
  input_end_ += got;
  if (got == 0) source_ended_ = true;
  return {};
}

Status IdxReader::StartDecoding() {
  while (!source_ended_ && input_end_ < 2) PASSEL_RETURN_IF_ERROR(Refill());
  if (input_end_ < 2 || input_[0] != std::byte{0x1f} || input_[1] != std::byte{0x8b}) return {};
  auto stream = std::make_unique<z_stream>();
  // 15 + 16: the largest window, and a gzip header is required. zlib checks CRC and length.
  if (inflateInit2(stream.get(), 15 + 16) != Z_OK) {
    return ResourceExhausted(fmt::format("zlib cannot allocate its state for {}", name_));
  }
  stream_.reset(stream.release());
  return {};
}

Result<std::size_t> IdxReader::ReadPlain(std::span<std::byte> out) {
  std::size_t done = std::min(out.size(), input_end_ - input_begin_);
  std::copy_n(input_.get() + input_begin_, done, out.begin());
  input_begin_ += done;
  while (done < out.size() && !source_ended_) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t got, source_->Read(out.subspan(done)));
    done += got;
    if (got == 0) source_ended_ = true;
  }
  return done;
}

Result<std::size_t> IdxReader::Inflate(std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size() && !gzip_ended_) {
    if (input_begin_ == input_end_ && !source_ended_) PASSEL_RETURN_IF_ERROR(Refill());
    const std::size_t room = std::min<std::size_t>(out.size() - done, std::size_t{1} << 30);
    stream_->next_in = reinterpret_cast<Bytef*>(input_.get() + input_begin_);
    stream_->avail_in = static_cast<uInt>(input_end_ - input_begin_);
    stream_->next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream_->avail_out = static_cast<uInt>(room);
    const int code = inflate(stream_.get(), Z_NO_FLUSH);
    input_begin_ = input_end_ - stream_->avail_in;
    done += room - stream_->avail_out;
    if (code == Z_STREAM_END) {
      if (input_begin_ == input_end_ && !source_ended_) PASSEL_RETURN_IF_ERROR(Refill());
      if (input_begin_ == input_end_) {
        gzip_ended_ = true;
      } else if (input_[input_begin_] == std::byte{0x1f}) {
        inflateReset(stream_.get());  // gzip allows several members, one behind the other
      } else {
        return DataLoss(fmt::format(
            "{} goes on after the end of its gzip data: replace it by an intact copy", name_));
      }
    } else if (code == Z_BUF_ERROR) {
      if (source_ended_) return done;  // cut off: the caller knows what was expected
    } else if (code == Z_MEM_ERROR) {
      return ResourceExhausted(fmt::format("zlib cannot allocate its window for {}", name_));
    } else if (code != Z_OK) {
      return DataLoss(
          fmt::format("the gzip data of {} is corrupt ({}): replace it by an intact copy", name_,
                      stream_->msg ? stream_->msg : "unknown reason"));
    }
  }
  return done;
}

Status IdxReader::CheckShape() const {
  const std::uint64_t count = shape_.count, rows = shape_.rows, cols = shape_.cols;
  if (count == 0 || rows == 0 || cols == 0) {
    return InvalidArgument(
        kind_ == IdxKind::kImages
            ? fmt::format("{} announces {} images of {} x {} pixels, and at least 1 of 1 x 1 is "
                          "needed: use another file",
                          name_, count, rows, cols)
            : fmt::format("{} announces 0 labels, and at least 1 is needed: use another file",
                          name_));
  }
  // count * rows cannot overflow, and below the limit the second product cannot either.
  if (count * rows > kMaxIdxPayloadBytes || count * rows * cols > kMaxIdxPayloadBytes) {
    return InvalidArgument(
        fmt::format("{} announces {} x {} x {} bytes, more than the {} bytes allowed: use fewer or "
                    "smaller images",
                    name_, count, rows, cols, kMaxIdxPayloadBytes));
  }
  const std::uint64_t expected = header_bytes() + count * rows * cols;
  const std::uint64_t actual = source_->size();
  if (stream_ == nullptr && actual != expected) {
    return DataLoss(fmt::format(
        "{} {}: its header announces {} bytes and it has {}; replace it by "
        "an intact copy",
        name_, actual < expected ? "is cut off" : "has trailing bytes", expected, actual));
  }
  if (stream_ != nullptr && expected / kMaxDeflateRatio > actual) {
    return DataLoss(
        fmt::format("{} is cut off or corrupt: its header announces {} bytes, but {} "
                    "bytes of gzip data hold at most {}; replace it by an intact copy",
                    name_, expected, actual, actual * kMaxDeflateRatio));
  }
  return {};
}

Status IdxReader::ReadHeader() {
  PASSEL_RETURN_IF_ERROR(StartDecoding());
  const bool images = kind_ == IdxKind::kImages;
  std::array<std::byte, 16> header{};
  PASSEL_ASSIGN_OR_RETURN(const std::size_t got,
                          ReadFully(std::span(header).first(header_bytes())));
  const std::uint32_t wanted = images ? kImagesMagic : kLabelsMagic;
  if (const std::uint32_t magic = BigEndian32(header.data()); got >= 4 && magic != wanted) {
    return InvalidArgument(
        fmt::format("Invalid magic number {} in MNIST {} file: {} (expected {}: put the {} file of "
                    "MNIST or of a set like it there)",
                    magic, images ? "image" : "label", name_, wanted, images ? "image" : "label"));
  }
  if (got < header_bytes()) {
    return DataLoss(
        fmt::format("{} is cut off: an IDX header has {} bytes and this one has {}; "
                    "replace it by an intact copy",
                    name_, header_bytes(), got));
  }
  shape_.count = BigEndian32(&header[4]);
  if (images) {
    shape_.rows = BigEndian32(&header[8]);
    shape_.cols = BigEndian32(&header[12]);
  }
  return CheckShape();
}

Status IdxReader::ReadPayload(std::span<std::byte> out) {
  PASSEL_CHECK(out.size() == shape_.PayloadBytes(), "the buffer must fit the payload");
  PASSEL_ASSIGN_OR_RETURN(const std::size_t got, ReadFully(out));
  if (got < out.size()) {
    return DataLoss(
        fmt::format("{} is cut off: its header announces {} bytes and it holds {}; "
                    "replace it by an intact copy",
                    name_, header_bytes() + out.size(), header_bytes() + got));
  }
  // One more byte: there must be none. For gzip this also takes the checksum in.
  std::byte extra;
  PASSEL_ASSIGN_OR_RETURN(const std::size_t more, ReadFully(std::span(&extra, 1)));
  if (more > 0) {
    return DataLoss(
        fmt::format("{} has trailing bytes: it goes on after the {} bytes that its "
                    "header announces; replace it by an intact copy",
                    name_, header_bytes() + out.size()));
  }
  if (stream_ != nullptr && !gzip_ended_) {
    return DataLoss(
        fmt::format("{} is cut off: the checksum that ends its gzip data is missing; "
                    "replace it by an intact copy",
                    name_));
  }
  return {};
}

Result<IdxReader> IdxReader::Open(std::unique_ptr<ByteSource> source, IdxKind kind,
                                  std::string name) {
  IdxReader reader(std::move(source), kind, std::move(name));
  PASSEL_RETURN_IF_ERROR(reader.ReadHeader());
  return reader;
}

}  // namespace passel
