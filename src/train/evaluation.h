// evaluation.h - loss and accuracy of a model over a whole set of images.

#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"
#include "data/dataset.h"
#include "nn/model.h"

namespace passel {

/// Which images say how good the variables are.
enum class EvaluationSet {
  kTest,
  kValidation,  ///< taken from the front of the training set, never trained on
};

struct TestResult {
  double accuracy = 0;  ///< 0..1
  double loss = 0;      ///< mean cross-entropy over the images; of values that diverged NaN
  double loss_sum = 0;  ///< the same, summed, as the reference programs print it
};

/// Called with the number of images that are done, often enough to be asked to leave: a large model
/// takes them in small batches, of about a tenth of a second on one core. An error ends the
/// evaluation with it.
using EvaluationCheck = std::function<Status(std::size_t done)>;

/// Over all of `images`, at the parameters `parts`; all zero if there are none. `check` may be
/// empty. Errors: the backend's; those of `check`.
Result<TestResult> EvaluateImages(Model& model, const ImageSet& images, ParameterParts parts,
                                  const EvaluationCheck& check = {});

/// The same over the test images of `data`.
Result<TestResult> EvaluateTest(Model& model, const Dataset& data, ParameterParts parts,
                                const EvaluationCheck& check = {});

/// The first of the variables that holds an infinity or a NaN; null if all values are finite.
const VariableSpec* FindNonFinite(std::span<const VariableSpec> variables, ParameterParts parts);

/// The images of `split` that `set` names.
const ImageSet& ImagesOf(const DataSplit& split, EvaluationSet set);

/// `value`; of a NaN the one that is printed as "nan": its sign means nothing.
double PlainNan(double value);

}  // namespace passel
