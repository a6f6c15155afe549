#include "train/evaluation.h"

namespace passel {

Result<TestResult> EvaluateImages(Model& model, const ImageSet& images, ParameterParts parts) {
  const Examples examples{images.images.data(), images.labels.data(), images.size()};
  TestResult result;
  if (images.size() == 0) return result;
  PASSEL_ASSIGN_OR_RETURN(const Evaluation evaluation,
                          model.Evaluate(examples, 0, images.size(), parts));
  const auto count = static_cast<double>(images.size());
  result.accuracy = static_cast<double>(evaluation.correct) / count;
  result.loss_sum = evaluation.loss_sum;
  result.loss = evaluation.loss_sum / count;
  return result;
}

Result<TestResult> EvaluateTest(Model& model, const Dataset& data, ParameterParts parts) {
  return EvaluateImages(model, data.test(), parts);
}

const ImageSet& ImagesOf(const DataSplit& split, EvaluationSet set) {
  return set == EvaluationSet::kTest ? split.test : split.validation;
}

}  // namespace passel
