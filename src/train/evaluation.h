// evaluation.h - loss and accuracy of a model over a whole set of images.

#pragma once

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
  double loss = 0;      ///< mean cross-entropy over the images
  double loss_sum = 0;  ///< the same, summed, as the reference programs print it
};

/// Over all of `images`, at the parameters `parts`; all zero if there are none. Errors: the
/// backend's.
Result<TestResult> EvaluateImages(Model& model, const ImageSet& images, ParameterParts parts);

/// The same over the test images of `data`.
Result<TestResult> EvaluateTest(Model& model, const Dataset& data, ParameterParts parts);

/// The images of `split` that `set` names.
const ImageSet& ImagesOf(const DataSplit& split, EvaluationSet set);

}  // namespace passel
