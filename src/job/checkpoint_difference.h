// checkpoint_difference.h - in what two checkpoints, or saved models, differ, whatever parts they
// are in.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "job/stored_tensors.h"

namespace passel::job {

/// What is compared beside the values of the variables.
enum class Compare { kAll, kValuesAlone };

struct WordDifference {
  std::string name;      ///< "settings/learning_rate"
  std::string one, two;  ///< as JSON; "": it is not there
};

struct TensorDifference {
  std::string name;
  std::string shape_one, shape_two;  ///< "784x100"; "": it is not there
  std::uint64_t different = 0;       ///< values that have not the same bits
  double most = 0;                   ///< the largest absolute difference
  double relative = 0;               ///< Euclidean norm of the difference, by that of the first

  bool Same() const { return shape_one == shape_two && different == 0; }
};

struct StoredDifference {
  std::string one, two;  ///< names
  Compare compared = Compare::kAll;
  std::vector<WordDifference> words;      ///< those that differ, by name
  std::vector<TensorDifference> tensors;  ///< all

  bool Same() const;
};

/// Errors: those of reading.
Result<StoredDifference> FindDifferences(const StoredTensors& one, const StoredTensors& two,
                                         Compare what);
std::string ToText(const StoredDifference& difference);
Json ToJson(const StoredDifference& difference);

}  // namespace passel::job
