// data_settings.h - the settings that say which data is read, and how much of it, for commands that
// read data but train nothing.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/data_source.h"
#include "data/dataset.h"
#include "data/locate.h"

namespace passel::job {

/// Where data comes from.
struct SourceSettings {
  std::string data_dir;
  /// data_dir of a preset: looked at, but need not be there. "" without a preset that has one.
  std::string usual_dir;
  std::string preset;
  std::vector<std::string> download_url;  ///< empty: where MNIST's authors have it
  bool fake_data = false;
};

/// Errors: kInvalidArgument for a URL that is none, and for flags that contradict one another.
Result<LocateOptions> MakeLocateOptions(const SourceSettings& flags);

/// LocateData(), or the made-up data that was asked for.
Result<DataLocation> Locate(const SourceSettings& flags);

struct DataSettings {
  SourceSettings source;
  std::int64_t csv_train_limit = 0;
  std::int64_t csv_test_limit = 0;
};

/// As options of OpenData(), with progress on standard error.
/// Errors: kInvalidArgument for a negative limit.
Result<DataOptions> MakeDataOptions(const SourceSettings& source, std::int64_t csv_train_limit,
                                    std::int64_t csv_test_limit);

/// SplitValidation(), or the split that goes with made-up data, which `fake` tells of.
Result<DataSplit> SplitSource(const Dataset& data, bool fake, std::int64_t validation_size,
                              std::uint64_t train_examples = 0);

/// The data that `flags` name, found as passel train finds it, and said why in the log.
struct LocatedData {
  DataLocation location;
  OwnedDataset data;
};
Result<LocatedData> LoadLocatedData(const DataSettings& flags);

}  // namespace passel::job
