#include "data/zip_archive.h"

#include <fmt/core.h>
#include <zip.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file.h"

namespace passel {

namespace {

// A data set has four files, and a few more do no harm.
constexpr zip_int64_t kMaxEntries = 65'536;

// `error` may come from the archive, a member or an attempt to open.
Status ZipStatus(zip_error_t* error, const std::string& what) {
  const std::string reason = zip_error_strerror(error);
  switch (zip_error_code_zip(error)) {
    case ZIP_ER_MEMORY:
      return ResourceExhausted(fmt::format("libzip cannot allocate memory for {}", what));
    case ZIP_ER_NOZIP:
    case ZIP_ER_MULTIDISK:
      return DataLoss(fmt::format(
          "{} is no zip archive, or is cut off ({}): replace it by an intact copy", what, reason));
    default:
      return DataLoss(
          fmt::format("{} cannot be read ({}): replace it by an intact copy", what, reason));
  }
}

class ZipMember : public ByteSource {
 public:
  ZipMember(zip_file_t* file, std::uint64_t size, std::string name)
      : file_(file), size_(size), name_(std::move(name)) {}
  ~ZipMember() override { zip_fclose(file_); }
  ZipMember(const ZipMember&) = delete;
  ZipMember& operator=(const ZipMember&) = delete;

  std::uint64_t size() const override { return size_; }
  Result<std::size_t> Read(std::span<std::byte> to) override {
    const zip_int64_t got = zip_fread(file_, to.data(), to.size());
    if (got < 0) return ZipStatus(zip_file_get_error(file_), name_);
    return static_cast<std::size_t>(got);
  }

 private:
  zip_file_t* file_;
  std::uint64_t size_;
  std::string name_;
};

}  // namespace

// Nothing was changed, so there is nothing to write back.
void ZipArchive::Discard::operator()(zip* archive) const { zip_discard(archive); }

Result<ZipArchive> ZipArchive::OpenSource(zip_source* source, zip_error* error, std::string name,
                                          std::uint64_t archive_bytes) {
  zip_t* archive = source == nullptr ? nullptr : zip_open_from_source(source, ZIP_RDONLY, error);
  if (archive == nullptr) {
    if (source != nullptr) zip_source_free(source);
    Status status = ZipStatus(error, name);
    zip_error_fini(error);
    return status;
  }
  zip_error_fini(error);
  ZipArchive result(archive, std::move(name));
  PASSEL_RETURN_IF_ERROR(result.ReadDirectory(archive_bytes));
  return result;
}

Status ZipArchive::ReadDirectory(std::uint64_t archive_bytes) {
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  if (count > kMaxEntries) {
    return InvalidArgument(fmt::format("{} holds {} files, more than the {} allowed: use another",
                                       name_, count, kMaxEntries));
  }
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t info;
    if (zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(i), 0, &info) != 0) {
      return ZipStatus(zip_get_error(archive_.get()), name_);
    }
    ZipEntry entry;
    if ((info.valid & ZIP_STAT_NAME) != 0 && info.name != nullptr) entry.name = info.name;
    if ((info.valid & ZIP_STAT_SIZE) != 0) entry.size = info.size;
    if ((info.valid & ZIP_STAT_COMP_SIZE) != 0) entry.compressed_size = info.comp_size;
    // So that the ratio of the two sizes is worth something to who looks at it.
    if (entry.compressed_size > archive_bytes) {
      return DataLoss(
          fmt::format("{} is corrupt: it has {} bytes and a file in it claims {}; replace it by an "
                      "intact copy",
                      name_, archive_bytes, entry.compressed_size));
    }
    entries_.push_back(std::move(entry));
  }
  return {};
}

Result<ZipArchive> ZipArchive::Open(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(OpenFile opened, OpenRegularFile(path, "put an npz file there"));
  std::FILE* file = ::fdopen(opened.fd.get(), "rb");
  if (file == nullptr) return ErrnoStatus(errno, fmt::format("cannot open {}", path));
  (void)opened.fd.Release();  // now the file's
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_filep_create(file, 0, -1, &error);
  if (source == nullptr) std::fclose(file);
  return OpenSource(source, &error, path, opened.bytes);
}

Result<ZipArchive> ZipArchive::OpenBytes(std::span<const std::byte> bytes, std::string name) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  return OpenSource(source, &error, std::move(name), bytes.size());
}

Result<std::unique_ptr<ByteSource>> ZipArchive::OpenMember(std::size_t index) {
  const ZipEntry& entry = entries_.at(index);
  const std::string name = fmt::format("{} in {}", entry.name, name_);
  zip_stat_t info;
  if (zip_stat_index(archive_.get(), index, 0, &info) != 0) {
    return ZipStatus(zip_get_error(archive_.get()), name);
  }
  if ((info.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && info.encryption_method != ZIP_EM_NONE) {
    return InvalidArgument(fmt::format("{} is encrypted: use an npz file without password", name));
  }
  if ((info.valid & ZIP_STAT_COMP_METHOD) != 0 && info.comp_method != ZIP_CM_STORE &&
      info.comp_method != ZIP_CM_DEFLATE) {
    return InvalidArgument(
        fmt::format("{} is compressed with method {}, and an npz file is stored (0) or deflated "
                    "(8): write it again with numpy.savez_compressed",
                    name, info.comp_method));
  }
  zip_file_t* file = zip_fopen_index(archive_.get(), index, 0);
  if (file == nullptr) return ZipStatus(zip_get_error(archive_.get()), name);
  return std::unique_ptr<ByteSource>(std::make_unique<ZipMember>(file, entry.size, name));
}

}  // namespace passel
