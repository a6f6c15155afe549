#include "data/zip_archive.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <zip.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/file_descriptor.h"

namespace passel {

// The functions of libzip that are used here.
struct LibZip {
  decltype(&zip_source_filep_create) source_filep_create;
  decltype(&zip_open_from_source) open_from_source;
  decltype(&zip_source_buffer_create) source_buffer_create;
  decltype(&zip_source_free) source_free;
  decltype(&zip_discard) discard;
  decltype(&zip_get_error) get_error;
  decltype(&zip_get_num_entries) get_num_entries;
  decltype(&zip_stat_index) stat_index;
  decltype(&zip_fopen_index) fopen_index;
  decltype(&zip_fread) fread;
  decltype(&zip_fclose) fclose;
  decltype(&zip_file_get_error) file_get_error;
  decltype(&zip_error_init) error_init;
  decltype(&zip_error_fini) error_fini;
  decltype(&zip_error_code_zip) error_code_zip;
  decltype(&zip_error_strerror) error_strerror;
};

namespace {

// A data set has four files, and a few more do no harm.
constexpr zip_int64_t kMaxEntries = 65'536;

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

// Loads libzip once per process and keeps it.
Result<const LibZip*> LoadZip() {
  static std::once_flag once;
  static LibZip zip;
  static std::string problem;
  std::call_once(once, [] {
    void* library = nullptr;
    for (const char* name : {"libzip.so.4", "libzip.so.5"}) {
      library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      problem = "libzip.so.4 is not installed, and npz files need it: install the package libzip4";
      return;
    }
    const bool found = Find(library, "zip_source_filep_create", &zip.source_filep_create) &&
                       Find(library, "zip_open_from_source", &zip.open_from_source) &&
                       Find(library, "zip_source_buffer_create", &zip.source_buffer_create) &&
                       Find(library, "zip_source_free", &zip.source_free) &&
                       Find(library, "zip_discard", &zip.discard) &&
                       Find(library, "zip_get_error", &zip.get_error) &&
                       Find(library, "zip_get_num_entries", &zip.get_num_entries) &&
                       Find(library, "zip_stat_index", &zip.stat_index) &&
                       Find(library, "zip_fopen_index", &zip.fopen_index) &&
                       Find(library, "zip_fread", &zip.fread) &&
                       Find(library, "zip_fclose", &zip.fclose) &&
                       Find(library, "zip_file_get_error", &zip.file_get_error) &&
                       Find(library, "zip_error_init", &zip.error_init) &&
                       Find(library, "zip_error_fini", &zip.error_fini) &&
                       Find(library, "zip_error_code_zip", &zip.error_code_zip) &&
                       Find(library, "zip_error_strerror", &zip.error_strerror);
    if (!found) problem = "the installed libzip.so.4 lacks functions: install a complete libzip4";
  });
  if (!problem.empty()) return Unavailable(problem);
  return &zip;
}

// `error` may come from the archive, a member or an attempt to open.
Status ZipStatus(const LibZip& zip, zip_error_t* error, const std::string& what) {
  const std::string reason = zip.error_strerror(error);
  switch (zip.error_code_zip(error)) {
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
  ZipMember(const LibZip* zip, zip_file_t* file, std::uint64_t size, std::string name)
      : zip_(zip), file_(file), size_(size), name_(std::move(name)) {}
  ~ZipMember() override { zip_->fclose(file_); }
  ZipMember(const ZipMember&) = delete;
  ZipMember& operator=(const ZipMember&) = delete;

  std::uint64_t size() const override { return size_; }
  Result<std::size_t> Read(std::span<std::byte> to) override {
    const zip_int64_t got = zip_->fread(file_, to.data(), to.size());
    if (got < 0) return ZipStatus(*zip_, zip_->file_get_error(file_), name_);
    return static_cast<std::size_t>(got);
  }

 private:
  const LibZip* zip_;
  zip_file_t* file_;
  std::uint64_t size_;
  std::string name_;
};

}  // namespace

class ZipArchive::Impl {
 public:
  Impl(const LibZip* zip, zip_t* archive, std::string name)
      : zip_(zip), archive_(archive), name_(std::move(name)) {}
  // Nothing was changed, so there is nothing to write back.
  ~Impl() { zip_->discard(archive_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Takes `source` over (nullptr: why is in `error`) and finishes `error`.
  static Result<ZipArchive> OpenSource(const LibZip* zip, zip_source_t* source, zip_error_t* error,
                                       std::string name, std::uint64_t archive_bytes);
  Status ReadDirectory(std::uint64_t archive_bytes);

  const LibZip* zip_;
  zip_t* archive_;
  std::string name_;
  std::vector<ZipEntry> entries_;
};

Result<ZipArchive> ZipArchive::Impl::OpenSource(const LibZip* zip, zip_source_t* source,
                                                zip_error_t* error, std::string name,
                                                std::uint64_t archive_bytes) {
  zip_t* archive = source == nullptr ? nullptr : zip->open_from_source(source, ZIP_RDONLY, error);
  if (archive == nullptr) {
    if (source != nullptr) zip->source_free(source);
    Status status = ZipStatus(*zip, error, name);
    zip->error_fini(error);
    return status;
  }
  zip->error_fini(error);
  auto impl = std::make_unique<Impl>(zip, archive, std::move(name));
  PASSEL_RETURN_IF_ERROR(impl->ReadDirectory(archive_bytes));
  return ZipArchive(std::move(impl));
}

Status ZipArchive::Impl::ReadDirectory(std::uint64_t archive_bytes) {
  const zip_int64_t count = zip_->get_num_entries(archive_, 0);
  if (count > kMaxEntries) {
    return InvalidArgument(fmt::format("{} holds {} files, more than the {} allowed: use another",
                                       name_, count, kMaxEntries));
  }
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t info;
    if (zip_->stat_index(archive_, static_cast<zip_uint64_t>(i), 0, &info) != 0) {
      return ZipStatus(*zip_, zip_->get_error(archive_), name_);
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

ZipArchive::ZipArchive(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ZipArchive::ZipArchive(ZipArchive&&) noexcept = default;
ZipArchive& ZipArchive::operator=(ZipArchive&&) noexcept = default;
ZipArchive::~ZipArchive() = default;

const std::string& ZipArchive::name() const { return impl_->name_; }
const std::vector<ZipEntry>& ZipArchive::entries() const { return impl_->entries_; }

Result<ZipArchive> ZipArchive::Open(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const LibZip* const zip, LoadZip());
  // Non-blocking: a pipe under this name must not stop us before fstat() tells what it is.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, fmt::format("cannot open {}", path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, fmt::format("cannot stat {}", path));
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format("{} is not a regular file: put an npz file there", path));
  }
  std::FILE* file = ::fdopen(fd.get(), "rb");
  if (file == nullptr) return ErrnoStatus(errno, fmt::format("cannot open {}", path));
  (void)fd.Release();  // now the file's
  zip_error_t error;
  zip->error_init(&error);
  zip_source_t* source = zip->source_filep_create(file, 0, -1, &error);
  if (source == nullptr) std::fclose(file);
  return Impl::OpenSource(zip, source, &error, path, static_cast<std::uint64_t>(info.st_size));
}

Result<ZipArchive> ZipArchive::OpenBytes(std::span<const std::byte> bytes, std::string name) {
  PASSEL_ASSIGN_OR_RETURN(const LibZip* const zip, LoadZip());
  zip_error_t error;
  zip->error_init(&error);
  zip_source_t* source = zip->source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  return Impl::OpenSource(zip, source, &error, std::move(name), bytes.size());
}

Result<std::unique_ptr<ByteSource>> ZipArchive::OpenMember(std::size_t index) {
  const ZipEntry& entry = impl_->entries_.at(index);
  const LibZip& zip = *impl_->zip_;
  const std::string name = fmt::format("{} in {}", entry.name, impl_->name_);
  zip_stat_t info;
  if (zip.stat_index(impl_->archive_, index, 0, &info) != 0) {
    return ZipStatus(zip, zip.get_error(impl_->archive_), name);
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
  zip_file_t* file = zip.fopen_index(impl_->archive_, index, 0);
  if (file == nullptr) return ZipStatus(zip, zip.get_error(impl_->archive_), name);
  return std::unique_ptr<ByteSource>(std::make_unique<ZipMember>(&zip, file, entry.size, name));
}

}  // namespace passel
