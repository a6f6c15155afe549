#include "tools/passel/data_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/log.h"

namespace passel {

namespace {

constexpr const char* kTrainLimit = "--csv_train_limit";
constexpr const char* kTrainLimitHelp =
    "Read only the first so many examples of mnist_train.csv; 0: all";
constexpr const char* kTestLimit = "--csv_test_limit";
constexpr const char* kTestLimitHelp =
    "Read only the first so many examples of mnist_test.csv; 0: all";

}  // namespace

void AddCsvLimitFlags(CLI::App& app, std::int64_t* train, std::int64_t* test) {
  app.add_option(kTrainLimit, *train, kTrainLimitHelp)->group("Data")->capture_default_str();
  app.add_option(kTestLimit, *test, kTestLimitHelp)->group("Data")->capture_default_str();
}

void AddCsvLimitFlags(CLI::App& app, std::optional<std::int64_t>* train,
                      std::optional<std::int64_t>* test) {
  app.add_option(kTrainLimit, *train, kTrainLimitHelp)->group("Data");
  app.add_option(kTestLimit, *test, kTestLimitHelp)->group("Data");
}

void AddLocationFlags(CLI::App& app, SourceFlags* flags, const std::string& help) {
  app.add_option("--data_dir", flags->data_dir, help)->group("Data");
  app.add_option("--download_url", flags->download_url,
                 "URL,... Base URLs (http or https) from which MNIST's four files are downloaded "
                 "where no data is found; each file from the first that has it")
      ->group("Data")
      ->delimiter(',')
      ->default_str(kMnistUrl);
}

void AddSourceFlags(CLI::App& app, SourceFlags* flags) {
  AddLocationFlags(app, flags,
                   "Directory or file: four IDX files, plain or gzip, mnist.npz, or "
                   "mnist_train.csv and mnist_test.csv. Else $PASSEL_DATA_DIR, else where the "
                   "preset has it, else ../shared/data/mnist, else a download, else generated "
                   "digits");
  app.add_flag("--fake_data", flags->fake_data,
               "No data at all: 10000 images of 28 x 28 pixels, all white, of class 0, for each "
               "set, to try a job out")
      ->group("Data");
}

Result<LocateOptions> MakeLocateOptions(const SourceFlags& flags) {
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
    return InvalidArgument(
        fmt::format("--fake_data needs no data, and --data_dir names {}: leave one of them away",
                    flags.data_dir));
  }
  return where;
}

Result<DataLocation> Locate(const SourceFlags& flags) {
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

void AddDataFlags(CLI::App& app, DataFlags* flags) {
  AddSourceFlags(app, &flags->source);
  AddCsvLimitFlags(app, &flags->csv_train_limit, &flags->csv_test_limit);
}

Result<DataOptions> MakeDataOptions(const SourceFlags& source, std::int64_t csv_train_limit,
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

Result<LocatedData> LoadLocatedData(const DataFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(
      const DataOptions options,
      MakeDataOptions(flags.source, flags.csv_train_limit, flags.csv_test_limit));
  PASSEL_ASSIGN_OR_RETURN(DataLocation location, Locate(flags.source));
  LogInfo("{}", location.why);
  PASSEL_ASSIGN_OR_RETURN(OwnedDataset data, OwnedDataset::Load(location.dir, options));
  return LocatedData{std::move(location), std::move(data)};
}

}  // namespace passel
