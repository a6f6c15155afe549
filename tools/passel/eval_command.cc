// `passel eval`: loss, accuracy and confusion matrix of a model on labelled images.

#include <fmt/core.h>

#include <memory>
#include <optional>

#include "compute/cpu_backend.h"
#include "job/data_settings.h"
#include "job/evaluation_data.h"
#include "job/output_path.h"
#include "job/parameters.h"
#include "job/result_output.h"
#include "tools/passel/commands.h"
#include "tools/passel/flags.h"
#include "tools/passel/json_file.h"
#include "train/confusion_matrix.h"

namespace passel {
namespace {

struct EvalFlags {
  job::ParameterSettings parameters;
  job::NamedData data;
  std::optional<std::int64_t> validation_size;
  std::string set = "test";
  std::string json;
};

// Before anything is computed.
Status CheckFlags(const EvalFlags& flags) {
  if (flags.set != "test" && flags.set != "validation" && flags.set != "train") {
    return InvalidArgument(
        fmt::format("--set {} is not known: use one of test, validation, train", flags.set));
  }
  if (!flags.json.empty()) PASSEL_RETURN_IF_ERROR(job::PrepareResult("--json", flags.json));
  return job::CheckDifferentFiles("--json", flags.json, "--params", flags.parameters.params);
}

Status CheckFit(const job::Parameters& parameters, const Dataset& data, const std::string& dir) {
  const ModelConfig& config = parameters.config();
  if (data.test().image_pixels != config.inputs) {
    return InvalidArgument(
        fmt::format("{} was trained on images of {} pixels, those in {} have {}: use its own data",
                    parameters.name(), config.inputs, dir, data.test().image_pixels));
  }
  if (data.num_classes() > config.classes) {
    return InvalidArgument(
        fmt::format("{} knows {} classes, the data in {} has {}: use its own data",
                    parameters.name(), config.classes, dir, data.num_classes()));
  }
  return {};
}

Json ToJson(const EvalFlags& flags, const LabelledEvaluation& evaluation,
            const job::Parameters& parameters, const std::string& data_dir) {
  const ConfusionMatrix& m = evaluation.matrix;
  Json json;
  json["set"] = flags.set;
  json["images"] = m.total();
  json["accuracy"] = evaluation.accuracy;
  json["loss"] = evaluation.loss;
  json["correct"] = m.correct();
  json["undecided"] = m.undecided();
  Json classes = Json::MakeList();
  Json confusion = Json::MakeList();
  for (std::size_t c = 0; c < m.classes(); ++c) {
    classes.Add({{"class", c},
                 {"labelled", m.labelled(c)},
                 {"predicted", m.predicted(c)},
                 {"recall", m.Recall(c)},
                 {"precision", m.Precision(c)}});
    Json row = Json::MakeList();
    for (std::size_t column = 0; column < m.classes(); ++column) row.Add(m.count(c, column));
    confusion.Add(std::move(row));
  }
  json["classes"] = std::move(classes);
  json["confusion"] = std::move(confusion);  // [label][predicted]
  json["data"] = data_dir;
  json["parameters"] = parameters.About();
  return json;
}

Status Evaluate(const EvalFlags& flags) {
  PASSEL_RETURN_IF_ERROR(CheckFlags(flags));
  PASSEL_ASSIGN_OR_RETURN(const job::Parameters parameters,
                          job::Parameters::Load(flags.parameters));
  const job::TrainedOn& trained = parameters.trained_on();
  PASSEL_ASSIGN_OR_RETURN(const job::ChosenData chosen,
                          job::ChooseEvaluationData(flags.data, trained));
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(chosen.dir, chosen.options));
  PASSEL_RETURN_IF_ERROR(CheckFit(parameters, *data, chosen.dir));
  PASSEL_ASSIGN_OR_RETURN(const ImageSet set,
                          job::ChooseEvaluationSet(flags.set, *data, chosen.options.fake,
                                                   flags.validation_size, trained));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend());
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(parameters.config(), *backend, job::kEvaluationBatch));
  PASSEL_ASSIGN_OR_RETURN(const LabelledEvaluation evaluation,
                          EvaluateSet(*model, set, parameters.parts()));
  fmt::print("{}: {} accuracy {:.4f}, {} loss {:.4f}, {} images\n\n{}", parameters.name(),
             flags.set, evaluation.accuracy, flags.set, evaluation.loss, set.size(),
             FormatTable(evaluation.matrix));
  std::fflush(stdout);
  if (flags.json.empty()) return {};
  return WriteJsonFile(flags.json, ToJson(flags, evaluation, parameters, chosen.dir));
}

}  // namespace

void AddEvalCommand(Command& program) {
  auto flags = std::make_shared<EvalFlags>();
  Command command = program.AddCommand(
      "eval", "Loss, accuracy and confusion matrix of saved variables or of a running job");
  AddParameterFlags(command, &flags->parameters);
  AddSourceFlags(command, &flags->data.source);
  AddCsvLimitFlags(command, &flags->data.csv_train_limit, &flags->data.csv_test_limit);
  command.Describe("--data_dir",
                   "Directory or file as for passel train. Default: what the job trains on; with "
                   "--params as passel train finds data");
  command
      .Add("--validation_size", &flags->validation_size,
           "With --set validation or train: so many training examples were held back. "
           "Needed only where the job or the file does not say so")
      .Group("Data");
  command
      .Add("--set", &flags->set,
           "test, validation (training examples that were held back), or train (those "
           "that were trained on)")
      .Group("Data")
      .ShowDefault();
  command
      .Add("--json,--report", &flags->json,
           "Write the results as JSON to this file; -: to standard output, and everything "
           "else to standard error")
      .Group("Results");
  command.OnRun([flags] { return FinishCommand(Evaluate(*flags)); });
}

}  // namespace passel
