// `passel data`: gets the training data, or draws some.

#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>

#include "base/log.h"
#include "data/digits.h"
#include "data/locate.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"

namespace passel {
namespace {

struct DataFlags {
  std::string directory;
  std::uint32_t train = 60'000;
  std::uint32_t test = 10'000;
  std::uint64_t seed = 1;
};

Status Generate(const DataFlags& flags) {
  if (::mkdir(flags.directory.c_str(), 0777) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, fmt::format("cannot create {}", flags.directory));
  }
  PASSEL_RETURN_IF_ERROR(
      WriteGeneratedDigits(flags.directory, flags.train, flags.test, flags.seed));
  fmt::print("{}\n", flags.directory);
  return {};
}

Status Locate(const DataFlags& flags) {
  LocateOptions where;
  where.data_dir = flags.directory;
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, LocateData(where));
  LogInfo("{}", location.why);
  fmt::print("{}\n", location.dir);
  return {};
}

int Finish(const Status& status) {
  if (!status.ok()) LogError("{}", status.message());
  std::fflush(stdout);
  return ExitCodeFor(status);
}

}  // namespace

void AddDataCommand(CLI::App& app, Run* run) {
  auto flags = std::make_shared<DataFlags>();
  CLI::App* data = app.add_subcommand("data", "Find, download or generate training data");
  data->require_subcommand(1);
  CLI::App* locate =
      data->add_subcommand("locate", "Print the directory that passel train would use, and why");
  locate->add_option("--data_dir", flags->directory, "As for passel train");
  locate->callback([flags, run] { *run = [flags] { return Finish(Locate(*flags)); }; });
  CLI::App* generate = data->add_subcommand("generate", "Draw digits as four IDX files");
  generate->add_option("directory", flags->directory, "Made if it is not there")->required();
  generate->add_option("--train", flags->train, "Training images")->capture_default_str();
  generate->add_option("--test", flags->test, "Test images")->capture_default_str();
  generate->add_option("--seed", flags->seed, "The same seed, the same images")
      ->capture_default_str();
  generate->callback([flags, run] { *run = [flags] { return Finish(Generate(*flags)); }; });
}

}  // namespace passel
