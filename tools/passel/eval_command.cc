// `passel eval`: accuracy and loss of saved variables on the test images.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "compute/cpu_backend.h"
#include "data/locate.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/output_path.h"
#include "tools/passel/shared_data.h"
#include "train/saved_model.h"
#include "train/worker_loop.h"

namespace passel {
namespace {

struct EvalFlags {
  std::string model;
  std::string data_dir;
  std::string report;
};

Status Evaluate(const EvalFlags& flags) {
  if (!flags.report.empty()) PASSEL_RETURN_IF_ERROR(CheckOutputPath("--report", flags.report));
  PASSEL_ASSIGN_OR_RETURN(const SavedModel saved, LoadModel(flags.model));
  if (saved.has_non_finite) {
    LogWarning("{} holds values that are not finite (NaN or infinity)", flags.model);
  }
  LocateOptions where;
  where.data_dir = flags.data_dir;
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, LocateData(where));
  LogInfo("{}", location.why);
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(location.dir));
  const std::size_t pixels = data->test().pixels;
  if (pixels != saved.config.inputs) {
    return InvalidArgument(
        fmt::format("{} was trained on images of {} pixels, those in {} have {}: use its own data",
                    flags.model, saved.config.inputs, location.dir, pixels));
  }
  if (data->num_classes() > saved.config.classes) {
    return InvalidArgument(
        fmt::format("{} knows {} classes, the data in {} has {}: use its own data", flags.model,
                    saved.config.classes, location.dir, data->num_classes()));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend());
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(saved.config, *backend, 500));
  const std::vector<std::vector<RowPart>> parts = saved.Parts();
  PASSEL_ASSIGN_OR_RETURN(const TestResult test, EvaluateTest(*model, *data, parts));
  fmt::print("test accuracy {:.4f}, test loss {:.4f}, {} images\n", test.accuracy, test.loss,
             data->test().size());
  std::fflush(stdout);
  if (flags.report.empty()) return {};
  nlohmann::ordered_json json;
  json["test_accuracy"] = test.accuracy;
  json["test_loss"] = test.loss;
  json["test_images"] = data->test().size();
  json["data"] = location.dir;
  json["metadata"] = saved.metadata;
  const std::string text = json.dump(2) + "\n";
  const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
  return WriteFileAtomically(flags.report, {&piece, 1});
}

}  // namespace

void AddEvalCommand(CLI::App& app, Run* run) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Accuracy and loss of saved variables on the test images");
  command->add_option("--model", flags->model, "A .safetensors file of passel train --save")
      ->required();
  command->add_option("--data_dir", flags->data_dir, "As for passel train");
  command->add_option("--report", flags->report, "Write the results as JSON to this file");
  command->callback([flags, run] {
    *run = [flags] {
      const Status status = Evaluate(*flags);
      if (!status.ok()) LogError("{}", status.message());
      return ExitCodeFor(status);
    };
  });
}

}  // namespace passel
