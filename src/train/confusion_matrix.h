// confusion_matrix.h - which classes a model takes for which.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset.h"
#include "nn/model.h"

namespace passel {

/// Counts of (label, predicted class). What the model could not decide (kNoClass) has a column of
/// its own, behind the classes.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(std::size_t classes)
      : classes_(classes), counts_(classes * (classes + 1)) {}

  /// REQUIRES: label < classes(); predicted < classes() or kNoClass.
  void Add(std::size_t label, std::uint16_t predicted);

  std::size_t classes() const { return classes_; }
  std::uint64_t count(std::size_t label, std::size_t predicted) const {
    return counts_[label * (classes_ + 1) + predicted];
  }
  std::uint64_t undecided(std::size_t label) const { return count(label, classes_); }
  std::uint64_t undecided() const;
  std::uint64_t labelled(std::size_t label) const;       ///< examples with this label
  std::uint64_t predicted(std::size_t predicted) const;  ///< examples taken for this class
  std::uint64_t total() const;
  std::uint64_t correct() const;

  /// The share of a class's examples that was found; nullopt if there are none.
  std::optional<double> Recall(std::size_t label) const;
  /// The share of the examples taken for a class that are of it; nullopt if there are none.
  std::optional<double> Precision(std::size_t predicted) const;

 private:
  std::size_t classes_;
  std::vector<std::uint64_t> counts_;  // (classes, classes + 1)
};

/// An aligned table: a line per label with its counts and recall, the precision below each column.
/// Shares have four decimals, or "-" where there is nothing to divide by.
std::string FormatTable(const ConfusionMatrix& matrix);

struct LabelledEvaluation {
  double loss = 0;      ///< mean cross-entropy
  double accuracy = 0;  ///< 0..1, exactly matrix.correct() / matrix.total()
  ConfusionMatrix matrix;
};

/// Evaluates all images of `set`, at the parameters `parts`. Errors: kInvalidArgument for an empty
/// set or a label that the model does not know; the backend's.
Result<LabelledEvaluation> EvaluateSet(Model& model, const ImageSet& set, ParameterParts parts);

}  // namespace passel
