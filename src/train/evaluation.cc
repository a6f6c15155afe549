#include "train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/failpoint.h"

namespace passel {
namespace {

// Multiplications between two looks at the check. A core makes some ten billion a second.
constexpr std::size_t kWork = std::size_t{1} << 31;
// Below that the weights are read more often than they are used.
constexpr std::size_t kLeastBatch = 16;

std::size_t BatchBetweenChecks(const Model& model) {
  std::size_t parameters = 1;
  for (const VariableSpec& variable : model.variables()) parameters += variable.elements();
  return std::min(model.max_batch(), std::max(kLeastBatch, kWork / parameters));
}

bool AllFinite(const float* values, std::size_t n) {
  bool finite = true;
  // Not isfinite(): this compares, so that the compiler takes many at once.
  for (std::size_t i = 0; i < n; ++i) {
    finite &= std::fabs(values[i]) <= std::numeric_limits<float>::max();
  }
  return finite;
}

}  // namespace

Result<TestResult> EvaluateImages(Model& model, const ImageSet& images, ParameterParts parts,
                                  const EvaluationCheck& check) {
  const Examples examples{images.images.data(), images.labels.data(), images.size()};
  TestResult result;
  if (images.size() == 0) return result;
  const std::size_t batch = BatchBetweenChecks(model);
  Evaluation total;
  for (std::size_t done = 0; done < images.size();) {
    Failpoint("train.evaluating");
    if (check) PASSEL_RETURN_IF_ERROR(check(done));
    const std::size_t size = std::min(batch, images.size() - done);
    PASSEL_ASSIGN_OR_RETURN(const Evaluation part, model.Evaluate(examples, done, size, parts));
    total.loss_sum += part.loss_sum;
    total.correct += part.correct;
    done += size;
  }
  const auto count = static_cast<double>(images.size());
  result.accuracy = static_cast<double>(total.correct) / count;
  result.loss_sum = PlainNan(total.loss_sum);
  result.loss = PlainNan(total.loss_sum / count);
  return result;
}

Result<TestResult> EvaluateTest(Model& model, const Dataset& data, ParameterParts parts,
                                const EvaluationCheck& check) {
  return EvaluateImages(model, data.test(), parts, check);
}

const VariableSpec* FindNonFinite(std::span<const VariableSpec> variables, ParameterParts parts) {
  for (std::size_t v = 0; v < variables.size(); ++v) {
    for (const RowPart& part : parts[v]) {
      if (!AllFinite(part.data, part.rows * variables[v].cols())) return &variables[v];
    }
  }
  return nullptr;
}

const ImageSet& ImagesOf(const DataSplit& split, EvaluationSet set) {
  return set == EvaluationSet::kTest ? split.test : split.validation;
}

double PlainNan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace passel
