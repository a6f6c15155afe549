#include "job/evaluation_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/log.h"

namespace passel::job {
namespace {

constexpr const char* kValidationSize = "validation_size";
constexpr const char* kTrainExamples = "train_examples";

template <typename T>
std::optional<T> NumberOf(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  T value = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto [stop, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

// How data differs that is not, byte for byte, what the job read.
std::string Difference(const ChosenData& chosen, const TrainedOn& trained) {
  const JobData& own = trained.told[0];
  if (chosen.dir != own.directory) {
    return fmt::format("{} trains on other data than that in {}, on that in {}", trained.name,
                       chosen.dir, own.directory);
  }
  if (chosen.options.csv_train_limit != own.csv_train_limit ||
      chosen.options.csv_test_limit != own.csv_test_limit) {
    return fmt::format("{} reads the CSV files in {} with other limits, {} and {}", trained.name,
                       own.directory, own.csv_train_limit, own.csv_test_limit);
  }
  return fmt::format("the files in {} have changed since {} read them", own.directory,
                     trained.name);
}

// Errors: also when nothing says which data that is.
Result<ChosenData> DataOfJob(const TrainedOn& trained) {
  if (trained.told.empty()) {
    return FailedPrecondition(fmt::format(
        "{} does not say which data it trains on: name that with --data_dir", trained.name));
  }
  const JobData& own = trained.told[0];
  for (const JobData& other : trained.told) {
    if (other.key == own.key) continue;
    return FailedPrecondition(
        fmt::format("the workers of {} train on different data, in {} and in {}: name one of them "
                    "with --data_dir",
                    trained.name, own.directory, other.directory));
  }
  LogInfo("Using the data of {}, in {}.", trained.name, own.directory);
  ChosenData chosen;
  chosen.dir = own.directory;
  chosen.options.fake = own.fake;
  return chosen;
}

// What was held back from training, or taken to be.
Result<TrainedSplit> KnownSplit(const std::string& set, std::optional<std::int64_t> validation_size,
                                const TrainedOn& trained) {
  std::optional<TrainedSplit> known = trained.split;
  if (!trained.told.empty()) known = trained.told[0].split;
  for (const JobData& other : trained.told) {
    if (other.split == *known) continue;
    return InvalidArgument(
        fmt::format("the workers of {} hold back different examples, the first {} of {} and the "
                    "first {} of {} (0: all), so no set is left for --set {}: use --set test",
                    trained.name, known->validation_size, known->train_examples,
                    other.split.validation_size, other.split.train_examples, set));
  }
  if (known) {
    if (validation_size && *validation_size != known->validation_size) {
      return InvalidArgument(
          fmt::format("--validation_size {} is not that of {}, which was trained with {}: omit it",
                      *validation_size, trained.name, known->validation_size));
    }
    if (set == "validation" && known->validation_size == 0) {
      return InvalidArgument(
          fmt::format("{} was trained on all training examples (--validation_size 0), so none are "
                      "left for --set validation: use --set test",
                      trained.name));
    }
    return *known;
  }
  if (!validation_size) {
    return InvalidArgument(
        fmt::format("{} does not say how many training examples were held back, which --set {} "
                    "needs: give the --validation_size that it was trained with",
                    trained.name, set));
  }
  LogWarning("{} does not say how many training examples were held back: {} is taken on trust",
             trained.name, *validation_size);
  return TrainedSplit{*validation_size, 0};
}

}  // namespace

TrainedOn TrainedOn::OfJob(const std::string& id, const std::string& data_json) {
  TrainedOn trained;
  trained.name = "job " + id;
  trained.job = true;
  trained.told = JobDataFromJson(data_json);
  return trained;
}

void AddSplit(const TrainedSplit& split, std::map<std::string, std::string>* metadata) {
  (*metadata)[kValidationSize] = std::to_string(split.validation_size);
  (*metadata)[kTrainExamples] = std::to_string(split.train_examples);
}

std::optional<TrainedSplit> SplitOf(const std::map<std::string, std::string>& metadata) {
  const auto validation_size = NumberOf<std::int64_t>(metadata, kValidationSize);
  const auto train_examples = NumberOf<std::uint64_t>(metadata, kTrainExamples);
  if (!validation_size || !train_examples) return std::nullopt;
  return TrainedSplit{*validation_size, *train_examples};
}

Result<ChosenData> ChooseEvaluationData(const NamedData& named, const TrainedOn& trained) {
  const SourceSettings& source = named.source;
  const bool is_named =
      !source.data_dir.empty() || source.fake_data || !source.download_url.empty();
  ChosenData chosen;
  if (trained.job && !is_named) {
    PASSEL_ASSIGN_OR_RETURN(chosen, DataOfJob(trained));
  } else {
    PASSEL_ASSIGN_OR_RETURN(const DataLocation location, Locate(source));
    LogInfo("{}", location.why);
    chosen.dir = location.dir;
    chosen.options.fake = source.fake_data;
  }
  SourceSettings options = source;
  options.fake_data = chosen.options.fake;
  const auto limit = [&](const std::optional<std::int64_t>& given, std::uint64_t JobData::*of_job) {
    if (given) return *given;
    return trained.told.empty() ? 0 : static_cast<std::int64_t>(trained.told[0].*of_job);
  };
  PASSEL_ASSIGN_OR_RETURN(
      chosen.options,
      MakeDataOptions(options, limit(named.csv_train_limit, &JobData::csv_train_limit),
                      limit(named.csv_test_limit, &JobData::csv_test_limit)));
  Result<std::string> key = DataKey(chosen.dir, chosen.options);
  if (!key.ok() && trained.job && !is_named) {
    return FailedPrecondition(
        fmt::format("the data of {} cannot be read here ({}): name it with --data_dir",
                    trained.name, key.status().message()));
  }
  if (!key.ok()) return key.status();
  chosen.key = std::move(*key);
  const bool own = std::any_of(trained.told.begin(), trained.told.end(),
                               [&](const JobData& told) { return told.key == chosen.key; });
  if (!trained.job || own) return chosen;
  if (trained.told.empty()) {
    LogWarning("{} does not say which data it trains on: it may be other data than this",
               trained.name);
  } else if (is_named || named.csv_train_limit || named.csv_test_limit) {
    LogWarning("{}", Difference(chosen, trained));
  } else {
    return FailedPrecondition(fmt::format("{}: name the data to evaluate on with --data_dir",
                                          Difference(chosen, trained)));
  }
  return chosen;
}

Result<ImageSet> ChooseEvaluationSet(const std::string& set, const Dataset& data, bool fake,
                                     std::optional<std::int64_t> validation_size,
                                     const TrainedOn& trained) {
  if (set == "test") return data.test();
  if (fake && set == "validation") {
    return InvalidArgument(
        "--set validation of made-up data are the very images that are trained on: use --set test");
  }
  PASSEL_ASSIGN_OR_RETURN(const TrainedSplit known, KnownSplit(set, validation_size, trained));
  PASSEL_ASSIGN_OR_RETURN(const DataSplit split,
                          SplitSource(data, fake, known.validation_size, known.train_examples));
  const ImageSet chosen = set == "validation" ? split.validation : split.train;
  if (chosen.size() == 0) {
    return InvalidArgument(fmt::format(
        "--set {} has no images with --validation_size {} of {} training examples: use, for "
        "example, --validation_size={}",
        set, known.validation_size, data.train().size(), data.train().size() / 10));
  }
  return chosen;
}

}  // namespace passel::job
