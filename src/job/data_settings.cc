#include "job/data_settings.h"

#include <fmt/core.h>

#include "base/log.h"

namespace passel::job {

Result<LocateOptions> MakeLocateOptions(const SourceSettings& flags) {
  LocateOptions where;
  where.data_dir = flags.data_dir;
  where.usual_dir = flags.usual_dir;
  where.usual_for = "preset " + flags.preset;
  for (const std::string& url : flags.download_url) {
    if (const Status status = CheckDownloadUrl(url); !status.ok()) {
      return status.WithContext("--download_url");
    }
  }
  if (!flags.download_url.empty()) {
    where.download.base_url = flags.download_url.front();
    where.download.mirrors.assign(flags.download_url.begin() + 1, flags.download_url.end());
    where.always_download = true;
  }
  if (flags.fake_data && !flags.data_dir.empty()) {
    return InvalidArgument(fmt::format(
        "--fake_data needs no data, and --data_dir names {}: omit one of them", flags.data_dir));
  }
  return where;
}

Result<DataLocation> Locate(const SourceSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(const LocateOptions where, MakeLocateOptions(flags));
  if (!flags.fake_data) return LocateData(where);
  return DataLocation{"fake_data", DataOrigin::kFake,
                      "Using made-up data, as --fake_data says: all images are alike."};
}

Result<DataSplit> SplitSource(const Dataset& data, bool fake, std::int64_t validation_size,
                              std::uint64_t train_examples) {
  if (!fake) return SplitValidation(data, validation_size, train_examples);
  DataSplit split = SplitFakeData(data);
  if (train_examples > 0 && train_examples < split.train.size()) {
    split.train = split.train.Slice(0, train_examples);
  }
  return split;
}

Result<DataOptions> MakeDataOptions(const SourceSettings& source, std::int64_t csv_train_limit,
                                    std::int64_t csv_test_limit) {
  const auto check = [](const char* flag, std::int64_t value) -> Status {
    if (value >= 0) return {};
    return InvalidArgument(fmt::format(
        "{0} is a number of examples from 0 (all of them) on, not {1}: use, for example, {0}=0",
        flag, value));
  };
  PASSEL_RETURN_IF_ERROR(check("--csv_train_limit", csv_train_limit));
  PASSEL_RETURN_IF_ERROR(check("--csv_test_limit", csv_test_limit));
  DataOptions options;
  options.fake = source.fake_data;
  options.csv_train_limit = static_cast<std::uint64_t>(csv_train_limit);
  options.csv_test_limit = static_cast<std::uint64_t>(csv_test_limit);
  options.on_csv_progress = [](const std::string& path, std::uint32_t examples) {
    LogInfo("{}: {} examples read", path, examples);
  };
  return options;
}

Result<LocatedData> LoadLocatedData(const DataSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(
      const DataOptions options,
      MakeDataOptions(flags.source, flags.csv_train_limit, flags.csv_test_limit));
  PASSEL_ASSIGN_OR_RETURN(DataLocation location, Locate(flags.source));
  LogInfo("{}", location.why);
  PASSEL_ASSIGN_OR_RETURN(OwnedDataset data, OwnedDataset::Load(location.dir, options));
  return LocatedData{std::move(location), std::move(data)};
}

}  // namespace passel::job
