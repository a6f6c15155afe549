#include "train/confusion_matrix.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "train/evaluation.h"

namespace passel {
namespace {

std::string Share(const std::optional<double>& share) {
  return share ? fmt::format("{:.4f}", *share) : "-";
}

std::optional<double> Divide(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void ConfusionMatrix::Add(std::size_t label, std::uint16_t predicted) {
  const std::size_t column = predicted == kNoClass ? classes_ : predicted;
  PASSEL_CHECK(label < classes_ && column <= classes_, "classes that the matrix has");
  ++counts_[label * (classes_ + 1) + column];
}

std::uint64_t ConfusionMatrix::undecided() const {
  std::uint64_t sum = 0;
  for (std::size_t label = 0; label < classes_; ++label) sum += undecided(label);
  return sum;
}

std::uint64_t ConfusionMatrix::labelled(std::size_t label) const {
  std::uint64_t sum = 0;
  for (std::size_t column = 0; column <= classes_; ++column) sum += count(label, column);
  return sum;
}

std::uint64_t ConfusionMatrix::predicted(std::size_t predicted) const {
  std::uint64_t sum = 0;
  for (std::size_t label = 0; label < classes_; ++label) sum += count(label, predicted);
  return sum;
}

std::uint64_t ConfusionMatrix::total() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts_) sum += count;
  return sum;
}

std::uint64_t ConfusionMatrix::correct() const {
  std::uint64_t sum = 0;
  for (std::size_t c = 0; c < classes_; ++c) sum += count(c, c);
  return sum;
}

std::optional<double> ConfusionMatrix::Recall(std::size_t label) const {
  return Divide(count(label, label), labelled(label));
}

std::optional<double> ConfusionMatrix::Precision(std::size_t predicted_class) const {
  return Divide(count(predicted_class, predicted_class), predicted(predicted_class));
}

std::string FormatTable(const ConfusionMatrix& m) {
  const std::size_t classes = m.classes();
  const std::size_t width = std::max<std::size_t>(7, 1 + fmt::format("{}", m.total()).size());
  const bool undecided = m.undecided() > 0;
  std::string text = fmt::format("{:>9} {:>{}}\n", "", "predicted", width + 3);
  text += fmt::format("{:>9} ", "label");
  for (std::size_t c = 0; c < classes; ++c) text += fmt::format("{:>{}}", c, width);
  if (undecided) text += fmt::format("{:>{}}", "none", width);
  text += fmt::format("{:>{}}{:>8}\n", "total", width + 1, "recall");
  for (std::size_t label = 0; label < classes; ++label) {
    text += fmt::format("{:>9} ", label);
    for (std::size_t c = 0; c < classes + (undecided ? 1 : 0); ++c) {
      text += fmt::format("{:>{}}", m.count(label, c), width);
    }
    text += fmt::format("{:>{}}{:>8}\n", m.labelled(label), width + 1, Share(m.Recall(label)));
  }
  text += fmt::format("{:>9} ", "total");
  for (std::size_t c = 0; c < classes; ++c) text += fmt::format("{:>{}}", m.predicted(c), width);
  if (undecided) text += fmt::format("{:>{}}", m.undecided(), width);
  text += fmt::format("{:>{}}\n", m.total(), width + 1);
  text += fmt::format("{:>9} ", "precision");
  for (std::size_t c = 0; c < classes; ++c) {
    text += fmt::format("{:>{}}", Share(m.Precision(c)), width);
  }
  return text + "\n";
}

Result<LabelledEvaluation> EvaluateSet(Model& model, const ImageSet& set, ParameterParts parts) {
  if (set.size() == 0) return InvalidArgument("there are no images to evaluate on: use others");
  const std::size_t classes = model.config().classes;
  for (const std::uint8_t label : set.labels) {
    if (label < classes) continue;
    return InvalidArgument(
        fmt::format("an image has the label {}, but the model knows {} classes: use its own data",
                    label, classes));
  }
  const Examples examples{set.images.data(), set.labels.data(), set.size()};
  std::vector<std::uint16_t> predicted(set.size());
  PASSEL_ASSIGN_OR_RETURN(const Evaluation evaluation,
                          model.Evaluate(examples, 0, set.size(), parts, predicted));
  LabelledEvaluation result{0, 0, ConfusionMatrix(classes)};
  for (std::size_t i = 0; i < set.size(); ++i) result.matrix.Add(set.labels[i], predicted[i]);
  const auto count = static_cast<double>(set.size());
  result.loss = PlainNan(evaluation.loss_sum / count);
  result.accuracy = static_cast<double>(result.matrix.correct()) / count;
  return result;
}

}  // namespace passel
