#include "data/npz_writer.h"

#include <fmt/core.h>
#include <zip.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "data/npy.h"

namespace passel {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are written as they are");

constexpr std::size_t kNpyAlignment = 64;  // bytes, of the elements
constexpr std::size_t kPieceFloats = std::size_t{1} << 16;

// Version 1.0, padded as NumPy does it.
std::string NpyPrefix(const std::vector<std::uint64_t>& shape) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", NpyShapeText(shape));
  constexpr std::size_t kBefore = 10;
  while ((kBefore + header.size() + 1) % kNpyAlignment != 0) header += ' ';
  header += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(header.size() & 0xff);
  prefix += static_cast<char>(header.size() >> 8);
  return prefix + header;
}

// Keeps why a callback failed: libzip only knows that it did.
int Fail(Status* kept, zip_error_t* error, Status why) {
  if (kept->ok()) *kept = std::move(why);
  zip_error_set(error, ZIP_ER_INTERNAL, 0);
  return -1;
}

// One array, as libzip reads it.
class ArraySource {
 public:
  ArraySource(const NpzArray& array, Status* failed)
      : array_(&array), prefix_(NpyPrefix(array.shape)), failed_(failed) {
    for (const std::uint64_t size : array.shape) floats_ *= size;
  }

  static zip_int64_t Call(void* self, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    return static_cast<ArraySource*>(self)->Do(data, bytes, command);
  }

 private:
  zip_int64_t Do(void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at_ = next_ = 0;
        buffer_ = prefix_;
        return 0;
      case ZIP_SOURCE_READ:
        return Read(static_cast<char*>(data), bytes);
      case ZIP_SOURCE_STAT: {
        auto* const stat = static_cast<zip_stat_t*>(data);
        zip_stat_init(stat);
        stat->size = prefix_.size() + floats_ * sizeof(float);
        stat->valid |= ZIP_STAT_SIZE;
        return sizeof(zip_stat_t);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, bytes);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:  // whoever made it has it
        return 0;
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  zip_int64_t Read(char* out, zip_uint64_t bytes) {
    if (at_ == buffer_.size() && next_ < floats_) {
      const std::size_t count = std::min<std::uint64_t>(kPieceFloats, floats_ - next_);
      piece_.resize(count);
      if (Status read = array_->read(next_, piece_); !read.ok()) {
        return Fail(failed_, &error_, std::move(read));
      }
      next_ += count;
      buffer_.assign(reinterpret_cast<const char*>(piece_.data()), count * sizeof(float));
      at_ = 0;
    }
    const std::size_t count = std::min<std::uint64_t>(bytes, buffer_.size() - at_);
    std::memcpy(out, buffer_.data() + at_, count);
    at_ += count;
    return static_cast<zip_int64_t>(count);
  }

  const NpzArray* array_;
  const std::string prefix_;
  Status* failed_;
  std::uint64_t floats_ = 1, next_ = 0;
  std::vector<float> piece_;
  std::string buffer_;
  std::size_t at_ = 0;  // of the buffer
  zip_error_t error_{};
};

// The archive, as libzip writes it: to a file that replaces another.
class ArchiveSink {
 public:
  ArchiveSink(AtomicFile file, Status* failed) : file_(std::move(file)), failed_(failed) {}

  static zip_int64_t Call(void* self, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    return static_cast<ArchiveSink*>(self)->Do(data, bytes, command);
  }

 private:
  zip_int64_t Do(void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_STAT:  // nothing is there yet
        zip_error_set(&error_, ZIP_ER_READ, ENOENT);
        return -1;
      case ZIP_SOURCE_BEGIN_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_FREE:
        return 0;
      case ZIP_SOURCE_COMMIT_WRITE:
        if (Status done = file_.Commit(); !done.ok()) {
          return Fail(failed_, &error_, std::move(done));
        }
        return 0;
      case ZIP_SOURCE_WRITE: {
        const std::span<const std::byte> piece(static_cast<const std::byte*>(data), bytes);
        if (Status wrote = file_.WriteAt(at_, piece); !wrote.ok()) {
          return Fail(failed_, &error_, std::move(wrote));
        }
        at_ += bytes;
        end_ = std::max(end_, at_);
        return static_cast<zip_int64_t>(bytes);
      }
      case ZIP_SOURCE_SEEK_WRITE: {
        const zip_int64_t to = zip_source_seek_compute_offset(at_, end_, data, bytes, &error_);
        if (to < 0) return -1;
        at_ = static_cast<std::uint64_t>(to);
        return 0;
      }
      case ZIP_SOURCE_TELL_WRITE:
        return static_cast<zip_int64_t>(at_);
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, bytes);
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  AtomicFile file_;
  Status* failed_;
  std::uint64_t at_ = 0, end_ = 0;
  zip_error_t error_{};
};

struct DiscardArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};

}  // namespace

Status WriteNpz(const std::string& path, std::span<const NpzArray> arrays, FileOps& ops) {
  PASSEL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, ops));
  Status failed;  // the first one of a callback
  std::vector<ArraySource> sources;
  for (const NpzArray& array : arrays) sources.emplace_back(array, &failed);
  ArchiveSink sink(std::move(file), &failed);

  zip_error_t error;
  zip_error_init(&error);
  const auto cannot = [&](zip_error_t* why) {
    Status status =
        failed.ok() ? Internal(fmt::format("cannot write {}: {}", path, zip_error_strerror(why)))
                    : failed;
    zip_error_fini(&error);
    return status;
  };
  zip_source_t* const target = zip_source_function_create(ArchiveSink::Call, &sink, &error);
  if (target == nullptr) return cannot(&error);
  std::unique_ptr<zip_t, DiscardArchive> owned(
      zip_open_from_source(target, ZIP_CREATE | ZIP_TRUNCATE, &error));
  if (!owned) {
    zip_source_free(target);
    return cannot(&error);
  }
  zip_t* const archive = owned.get();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    zip_source_t* const source = zip_source_function(archive, ArraySource::Call, &sources[i]);
    if (source == nullptr) return cannot(zip_get_error(archive));
    const std::string name = arrays[i].name + ".npy";
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      return cannot(zip_get_error(archive));
    }
    const auto at = static_cast<zip_uint64_t>(index);
    constexpr zip_uint16_t kFirstDay = (1 << 5) | 1;  // of 1980, where the format begins
    if (zip_set_file_compression(archive, at, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(archive, at, 0, kFirstDay, 0) != 0) {
      return cannot(zip_get_error(archive));
    }
  }
  if (zip_close(archive) != 0) return cannot(zip_get_error(archive));
  (void)owned.release();  // closing has freed it
  zip_error_fini(&error);
  return {};
}

}  // namespace passel
