// `passel predict`: the classes of single pictures, and how sure the model is.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/log.h"
#include "compute/cpu_backend.h"
#include "job/flag_checks.h"
#include "job/parameters.h"
#include "job/picture_input.h"
#include "nn/model.h"
#include "tools/passel/commands.h"
#include "tools/passel/flags.h"
#include "train/evaluation.h"

namespace passel {
namespace {

struct PredictFlags {
  job::ParameterSettings parameters;
  std::vector<std::string> files;
  bool invert = false;
  bool json = false;
  std::int64_t top = 3;
  std::int64_t limit = 0;
};

// Classes by falling probability; of equals the smaller class first. NaN comes last.
std::vector<std::size_t> Ranking(std::span<const float> probabilities) {
  std::vector<std::size_t> classes(probabilities.size());
  std::iota(classes.begin(), classes.end(), 0);
  const auto sure = [&](std::size_t c) {
    return std::isnan(probabilities[c]) ? -1.0F : probabilities[c];
  };
  std::stable_sort(classes.begin(), classes.end(),
                   [&](std::size_t a, std::size_t b) { return sure(a) > sure(b); });
  return classes;
}

class Printer {
 public:
  explicit Printer(const PredictFlags& flags) : flags_(flags) {}

  void Add(const job::PictureFile& file, std::size_t index, std::span<const float> probabilities) {
    const std::vector<std::size_t> ranking = Ranking(probabilities);
    const bool decided = std::isfinite(probabilities[ranking[0]]);
    const std::size_t top =
        std::min<std::size_t>(static_cast<std::size_t>(flags_.top), ranking.size());
    if (flags_.json) {
      Json image;
      image["file"] = file.path;
      if (file.many) image["index"] = index;
      image["class"] = decided ? Json(ranking[0]) : Json();
      image["probabilities"] = probabilities;  // NaN is written as null
      Json best = Json::MakeList();
      for (std::size_t i = 0; i < top; ++i) {
        best.Add({{"class", ranking[i]}, {"probability", probabilities[ranking[i]]}});
      }
      image["top"] = std::move(best);
      images_.Add(std::move(image));
      return;
    }
    std::string line = file.many ? fmt::format("{}[{}]", file.path, index) : file.path;
    line += decided ? fmt::format(": {}", ranking[0]) : ": none";
    for (std::size_t i = 0; i < top; ++i) {
      line += fmt::format("{}{} {:.4f}", i == 0 ? "  (" : ", ", ranking[i],
                          PlainNan(probabilities[ranking[i]]));
    }
    fmt::print("{})\n", line);
  }

  void Finish(const job::Parameters& parameters) {
    if (flags_.json) {
      Json json;
      json["parameters"] = parameters.About();
      json["images"] = std::move(images_);
      fmt::print("{}\n", json.Write(2));
    }
    std::fflush(stdout);
  }

 private:
  const PredictFlags& flags_;
  Json images_ = Json::MakeList();
};

Status PredictFile(const job::PictureFile& file, Model& model, ParameterParts parts,
                   Printer* printer) {
  const std::size_t inputs = model.config().inputs;
  const std::size_t classes = model.config().classes;
  const Examples examples{file.pixels.data(), nullptr, file.count};
  std::vector<std::uint32_t> indices(std::min(file.count, job::kEvaluationBatch));
  std::vector<float> probabilities(indices.size() * classes);
  PASSEL_CHECK(file.pixels.size() == file.count * inputs, "the images fit the model");
  for (std::size_t done = 0; done < file.count;) {
    const std::size_t size = std::min(file.count - done, job::kEvaluationBatch);
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(done));
    const std::span<float> out(probabilities.data(), size * classes);
    PASSEL_RETURN_IF_ERROR(model.Predict({examples, std::span(indices).first(size)}, parts, out));
    for (std::size_t i = 0; i < size; ++i) {
      printer->Add(file, done + i, out.subspan(i * classes, classes));
    }
    done += size;
  }
  return {};
}

Status Predict(const PredictFlags& flags) {
  PASSEL_RETURN_IF_ERROR(
      job::CheckRange("--top", flags.top, 1, static_cast<std::int64_t>(kMaxClasses)));
  if (flags.limit < 0) {
    return InvalidArgument(
        fmt::format("--limit is a number of images from 0 (all of them) on, not {}: use, for "
                    "example, --limit=100",
                    flags.limit));
  }
  PASSEL_ASSIGN_OR_RETURN(const job::Parameters parameters,
                          job::Parameters::Load(flags.parameters));
  job::PictureOptions options;
  if (static_cast<std::size_t>(flags.top) > parameters.config().classes) {
    return InvalidArgument(
        fmt::format("--top is at most the {} classes of the model, not {}: lower it",
                    parameters.config().classes, flags.top));
  }
  options.inputs = parameters.config().inputs;
  options.invert = flags.invert;
  options.limit = static_cast<std::uint64_t>(flags.limit);
  // All of them first: either all are answered, or none.
  std::vector<job::PictureFile> files;
  for (const std::string& path : flags.files) {
    PASSEL_ASSIGN_OR_RETURN(job::PictureFile file, job::ReadPictures(path, options));
    if (!file.note.empty()) LogInfo("{}", file.note);
    files.push_back(std::move(file));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend());
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(parameters.config(), *backend, job::kEvaluationBatch));
  LogInfo("predicting with {}", parameters.name());
  Printer printer(flags);
  for (const job::PictureFile& file : files) {
    PASSEL_RETURN_IF_ERROR(PredictFile(file, *model, parameters.parts(), &printer));
  }
  printer.Finish(parameters);
  return {};
}

}  // namespace

void AddPredictCommand(Command& program) {
  auto flags = std::make_shared<PredictFlags>();
  Command command =
      program.AddCommand("predict", "Classes of pictures, by saved variables or by a running job");
  command
      .Add("files", &flags->files,
           "PNG pictures (any kind; grey, and square where they must be scaled) and IDX "
           "files of images, plain or gzip")
      .Required();
  AddParameterFlags(command, &flags->parameters);
  command
      .AddSwitch("--invert", &flags->invert,
                 "The pictures are dark on light; models trained on MNIST expect light on dark")
      .Group("Pictures");
  command.Add("--limit", &flags->limit, "Only the first so many images of an IDX file; 0: all")
      .Group("Pictures")
      .ShowDefault();
  command.Add("--top", &flags->top, "Print so many classes with their probabilities")
      .Group("Results")
      .ShowDefault();
  command
      .AddSwitch("--json", &flags->json,
                 "Print JSON: the probabilities of all classes, per image in full precision")
      .Group("Results");
  command.OnRun([flags] { return FinishCommand(Predict(*flags)); });
}

}  // namespace passel
