// data_flags.h - the flags that say which data is read, and how much of it, for commands that read
// data but train nothing.

#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "data/data_source.h"
#include "data/dataset.h"
#include "data/locate.h"

namespace CLI {
class App;
}

namespace passel {

struct DataFlags {
  std::string data_dir;
  std::int64_t csv_train_limit = 0;
  std::int64_t csv_test_limit = 0;
  std::int64_t validation_size = kDefaultValidationSize;
};

/// --csv_train_limit and --csv_test_limit.
void AddCsvLimitFlags(CLI::App& app, std::int64_t* train, std::int64_t* test);
/// --data_dir, and the limits of CSV files.
void AddDataFlags(CLI::App& app, DataFlags* flags);
/// --validation_size
void AddValidationFlag(CLI::App& app, DataFlags* flags);

/// Limits of CSV files as options of OpenData(), with progress on standard error.
/// Errors: kInvalidArgument for a negative limit.
Result<DataOptions> MakeDataOptions(std::int64_t csv_train_limit, std::int64_t csv_test_limit);

/// The data that `flags` name, found as passel train finds it, and said why in the log.
struct LocatedData {
  DataLocation location;
  OwnedDataset data;
};
Result<LocatedData> LoadLocatedData(const DataFlags& flags);

}  // namespace passel
