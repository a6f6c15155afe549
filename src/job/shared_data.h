// shared_data.h - the data set in one read-only memory file that all tasks of the host map.

#pragma once

#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "data/data_source.h"
#include "data/dataset.h"
#include "job/job_config.h"
#include "job/job_data.h"
#include "job/job_settings.h"

namespace passel::job {

class SharedData {
 public:
  /// Reads the data at `dir` (data/data_source.h) into a sealed memory file.
  static Result<SharedData> Load(const std::string& dir, const DataOptions& options);
  /// Maps the memory file of another task. Errors: those of Dataset::View(); kFailedPrecondition
  /// when it is not sealed.
  static Result<SharedData> Map(FileDescriptor fd);

  SharedData(SharedData&& other) noexcept;
  SharedData& operator=(SharedData&&) = delete;
  ~SharedData();

  const Dataset& data() const { return *data_; }
  int fd() const { return fd_.get(); }

 private:
  SharedData(FileDescriptor fd, const void* base, std::size_t bytes)
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}
  FileDescriptor fd_;
  const void* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<Dataset> data_;
};

/// Data that was chosen: where it is, how it is read, and its key.
struct ChosenData {
  std::string dir;
  DataOptions options;
  std::string key;
};
/// What --data_dir and the other flags choose; a log line says why. Errors: those of LocateData(),
/// MakeDataOptions() and DataKey().
Result<ChosenData> ChooseData(const JobSettings& flags);

/// MakeDataOptions() of a job. Where its lines are those of a reference program, so are the lines
/// about the files that are read.
Result<DataOptions> JobDataOptions(const JobSettings& flags);

/// Names what Load() makes of `dir`: paths, sizes and times of its files, and the limits of
/// `options`. Errors: kNotFound.
Result<std::string> DataKey(const std::string& dir, const DataOptions& options);

/// What a job of this `config` trains on: `data`, when it was `chosen`.
JobData DescribeData(const ChosenData& chosen, const Dataset& data, const JobConfig& config);

}  // namespace passel::job
