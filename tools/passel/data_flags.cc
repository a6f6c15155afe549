#include "tools/passel/data_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/log.h"

namespace passel {

void AddCsvLimitFlags(CLI::App& app, std::int64_t* train, std::int64_t* test) {
  app.add_option("--csv_train_limit", *train,
                 "Read only the first so many examples of mnist_train.csv; 0: all")
      ->group("Data")
      ->capture_default_str();
  app.add_option("--csv_test_limit", *test,
                 "Read only the first so many examples of mnist_test.csv; 0: all")
      ->group("Data")
      ->capture_default_str();
}

void AddDataFlags(CLI::App& app, DataFlags* flags) {
  app.add_option("--data_dir", flags->data_dir,
                 "Directory or file: IDX files, mnist.npz or CSV files; as for passel train")
      ->group("Data");
  AddCsvLimitFlags(app, &flags->csv_train_limit, &flags->csv_test_limit);
}

void AddValidationFlag(CLI::App& app, DataFlags* flags) {
  app.add_option("--validation_size", flags->validation_size,
                 "The first so many training examples are the validation set")
      ->group("Data")
      ->capture_default_str();
}

Result<DataOptions> MakeDataOptions(std::int64_t csv_train_limit, std::int64_t csv_test_limit) {
  const auto check = [](const char* flag, std::int64_t value) -> Status {
    if (value >= 0) return {};
    return InvalidArgument(fmt::format(
        "{0} is a number of examples from 0 (all of them) on, not {1}: use, for example, {0}=0",
        flag, value));
  };
  PASSEL_RETURN_IF_ERROR(check("--csv_train_limit", csv_train_limit));
  PASSEL_RETURN_IF_ERROR(check("--csv_test_limit", csv_test_limit));
  DataOptions options;
  options.csv_train_limit = static_cast<std::uint64_t>(csv_train_limit);
  options.csv_test_limit = static_cast<std::uint64_t>(csv_test_limit);
  options.on_csv_progress = [](const std::string& path, std::uint32_t examples) {
    LogInfo("{}: {} examples read", path, examples);
  };
  return options;
}

Result<LocatedData> LoadLocatedData(const DataFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(const DataOptions options,
                          MakeDataOptions(flags.csv_train_limit, flags.csv_test_limit));
  LocateOptions where;
  where.data_dir = flags.data_dir;
  PASSEL_ASSIGN_OR_RETURN(DataLocation location, LocateData(where));
  LogInfo("{}", location.why);
  PASSEL_ASSIGN_OR_RETURN(OwnedDataset data, OwnedDataset::Load(location.dir, options));
  return LocatedData{std::move(location), std::move(data)};
}

}  // namespace passel
