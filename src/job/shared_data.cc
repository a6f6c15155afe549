#include "job/shared_data.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/hash.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "data/data_source.h"
#include "data/formats.h"
#include "data/locate.h"
#include "job/data_settings.h"
#include "train/log_lines.h"

namespace passel::job {

SharedData::SharedData(SharedData&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_),
      data_(other.data_) {}

SharedData::~SharedData() {
  if (base_ != nullptr) ::munmap(const_cast<void*>(base_), bytes_);
}

Result<SharedData> SharedData::Load(const std::string& dir, const DataOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(DataSource source, OpenData(dir, options));
  const std::size_t bytes = source.bytes();
  const nvtx::Range range(nvtx::Event::kLoadData, static_cast<std::int64_t>(bytes));
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  PASSEL_ASSIGN_OR_RETURN(MemoryFile file, CreateMemoryFile("passel.data", bytes, HugePages::kOff,
                                                            budget, MemoryFileUse::kOneWriter));
  void* base = ::mmap(nullptr, file.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map memory for the data set");
  const Status loaded = source.LoadInto({static_cast<std::byte*>(base), bytes});
  ::munmap(base, file.bytes);
  PASSEL_RETURN_IF_ERROR(loaded);
  PASSEL_RETURN_IF_ERROR(SealAgainstWriting(file.fd.get()));
  return Map(std::move(file.fd));
}

Result<SharedData> SharedData::Map(FileDescriptor fd) {
  std::size_t bytes = 0;
  PASSEL_RETURN_IF_ERROR(CheckSeals(fd.get(), &bytes));
  const nvtx::Range range(nvtx::Event::kMapData, static_cast<std::int64_t>(bytes));
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map the data set");
  SharedData shared(std::move(fd), base, bytes);
  PASSEL_ASSIGN_OR_RETURN(shared.data_,
                          Dataset::View({static_cast<const std::byte*>(base), bytes}));
  return shared;
}

Result<ChosenData> ChooseData(const JobSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, Locate(flags.source));
  LogInfo("{}", location.why);
  ChosenData chosen;
  chosen.dir = location.dir;
  PASSEL_ASSIGN_OR_RETURN(chosen.options, JobDataOptions(flags));
  PASSEL_ASSIGN_OR_RETURN(chosen.key, DataKey(chosen.dir, chosen.options));
  return chosen;
}

Result<DataOptions> JobDataOptions(const JobSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(DataOptions options, MakeDataOptions(flags.source, flags.csv_train_limit,
                                                               flags.csv_test_limit));
  const Result<LogStyle> style = ParseLogStyle(flags.log_lines);
  if (style.ok() && ImitatesProgram(*style)) {
    options.on_line = [](const std::string& line) {
      Write(Stream::kOut, fmt::format("{}\n", line));
    };
  }
  return options;
}

Result<std::string> DataKey(const std::string& dir, const DataOptions& options) {
  if (options.fake) return std::string("fake");
  PASSEL_ASSIGN_OR_RETURN(const DataFiles found, FindData(dir));
  Fnv1a hash;
  hash.AddNumber(options.csv_train_limit);
  hash.AddNumber(options.csv_test_limit);
  for (const std::string& file : found.paths) {
    char* real = ::realpath(file.c_str(), nullptr);
    struct stat info;
    if (real == nullptr || ::stat(real, &info) != 0) {
      std::free(real);
      return ErrnoStatus(errno, fmt::format("cannot stat {}", file));
    }
    hash.AddText(real);
    hash.AddNumber(static_cast<std::uint64_t>(info.st_size));
    hash.AddNumber(static_cast<std::uint64_t>(info.st_mtim.tv_sec));
    hash.AddNumber(static_cast<std::uint64_t>(info.st_mtim.tv_nsec));
    std::free(real);
  }
  return fmt::format("{}-{:016x}", found.format->name, hash.value());
}

JobData DescribeData(const ChosenData& chosen, const Dataset& data, const JobConfig& config) {
  JobData about;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(chosen.dir, error);
  const bool as_it_is = chosen.options.fake || error;
  about.directory = as_it_is ? chosen.dir : absolute.lexically_normal().string();
  about.key = chosen.key;
  about.fake = chosen.options.fake;
  about.csv_train_limit = chosen.options.csv_train_limit;
  about.csv_test_limit = chosen.options.csv_test_limit;
  about.split = {config.validation_size, config.train_examples};
  about.crc32 = fmt::format("{:08x}", Checksum(data.train()));
  return about;
}

}  // namespace passel::job
