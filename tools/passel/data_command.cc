// `passel data`: finds, downloads, checks or draws training data.

#include <fmt/core.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "data/digits.h"
#include "data/locate.h"
#include "job/data_settings.h"
#include "job/flag_checks.h"
#include "tools/passel/commands.h"
#include "tools/passel/download_only.h"
#include "tools/passel/flags.h"

namespace passel {
namespace {

struct DataCheckFlags {
  job::DataSettings data;
  std::int64_t validation_size = 0;
};

struct GenerateFlags {
  std::string directory;
  std::uint32_t train = 60'000;
  std::uint32_t test = 10'000;
  std::uint64_t seed = 1;
};

Status Generate(const GenerateFlags& flags) {
  // Before anything is made.
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--train", flags.train, 1, kMaxGeneratedDigits));
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--test", flags.test, 1, kMaxGeneratedDigits));
  if (::mkdir(flags.directory.c_str(), 0777) != 0 &&
      (errno != EEXIST || !std::filesystem::is_directory(flags.directory))) {
    return ErrnoStatus(errno, fmt::format("cannot create {}", flags.directory));
  }
  PASSEL_RETURN_IF_ERROR(
      WriteGeneratedDigits(flags.directory, flags.train, flags.test, flags.seed));
  fmt::print("{}\n", flags.directory);
  return {};
}

Status PrintLocation(const job::DataSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, job::Locate(flags.source));
  LogInfo("{}", location.why);
  fmt::print("{}\n", location.dir);
  return {};
}

// "980 1135 ...", one count per class.
std::string CountLabels(const ImageSet& set, std::size_t classes) {
  std::array<std::size_t, 256> counts{};
  for (const std::uint8_t label : set.labels) ++counts[label];
  std::string text;
  for (std::size_t c = 0; c < classes; ++c) {
    text += fmt::format("{}{}", c == 0 ? "" : " ", counts[c]);
  }
  return text;
}

// Reads everything through, as training would, and says what is there.
Status Check(const DataCheckFlags& flags) {
  const std::int64_t begin = MonotonicNs();
  PASSEL_ASSIGN_OR_RETURN(const job::LocatedData located, job::LoadLocatedData(flags.data));
  const double seconds = 1e-9 * static_cast<double>(MonotonicNs() - begin);
  const Dataset& data = *located.data;
  PASSEL_ASSIGN_OR_RETURN(const DataSplit split, job::SplitSource(data, flags.data.source.fake_data,
                                                                  flags.validation_size));
  fmt::print("{}: {} x {} pixels, {} classes, read in {:.2f} s\n", located.location.dir,
             data.rows(), data.cols(), data.num_classes(), seconds);
  const auto print = [&](const char* name, const ImageSet& set) {
    fmt::print("{:<10} {:>8} images, by class: {}\n", name, set.size(),
               CountLabels(set, data.num_classes()));
  };
  print("train", split.train);
  print("validation", split.validation);
  print("test", split.test);
  return {};
}

}  // namespace

void AddDataCommand(Command& program) {
  Command data = program.AddCommand("data", "Find, download, check or generate training data");
  data.NeedsCommand();

  auto flags = std::make_shared<job::DataSettings>();
  Command locate =
      data.AddCommand("locate", "Print the directory that passel train would use, and why");
  AddLocationFlags(locate, &flags->source, "As for passel train");
  locate.OnRun([flags] { return FinishCommand(PrintLocation(*flags)); });

  Command download = data.AddCommand(
      "download", "Make sure that real data is there: MNIST is downloaded where there is none");
  AddLocationFlags(download, &flags->source,
                   "Directory for the four IDX files, made if need be; default: as passel train "
                   "finds data, else the cache");
  download.OnRun([flags] { return DownloadOnlyCommand(flags->source); });

  auto check_flags = std::make_shared<DataCheckFlags>();
  Command check =
      data.AddCommand("check", "Read the data through, as training would, and print what is in it");
  AddSourceFlags(check, &check_flags->data.source);
  AddCsvLimitFlags(check, &check_flags->data.csv_train_limit, &check_flags->data.csv_test_limit);
  check
      .Add("--validation_size", &check_flags->validation_size,
           "The first so many training examples are the validation set")
      .Group("Data")
      .ShowDefault();
  check.OnRun([check_flags] { return FinishCommand(Check(*check_flags)); });

  auto generate_flags = std::make_shared<GenerateFlags>();
  Command generate = data.AddCommand("generate", "Draw digits as four IDX files");
  generate.Add("directory", &generate_flags->directory, "Made if it is not there").Required();
  generate.Add("--train", &generate_flags->train, "Training images").ShowDefault();
  generate.Add("--test", &generate_flags->test, "Test images").ShowDefault();
  generate.Add("--seed", &generate_flags->seed, "The same seed, the same images").ShowDefault();
  generate.OnRun([generate_flags] { return FinishCommand(Generate(*generate_flags)); });
}

}  // namespace passel
