#include "python/arrays.h"

#include <nanobind/ndarray.h>

#include "python/errors.h"

namespace passel::python {

namespace nb = nanobind;

nb::object MakeArray(const std::shared_ptr<LentMemory>& memory, const Variable& variable,
                     Access access) {
  if (memory == nullptr) {
    Raise(PASSEL_RESOURCE_EXHAUSTED,
          "there is no memory for an array of variable \"" + variable.name + "\": free some");
  }
  const std::vector<std::size_t> shape(variable.shape.begin(), variable.shape.end());
  const nb::capsule owner(new std::shared_ptr<LentMemory>(memory), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<LentMemory>*>(held);
  });
  float* const floats = memory->floats();
  if (access == Access::kRead) {
    return nb::ndarray<nb::numpy, const float>(floats, shape.size(), shape.data(), owner)
        .cast(nb::rv_policy::reference);
  }
  return nb::ndarray<nb::numpy, float>(floats, shape.size(), shape.data(), owner)
      .cast(nb::rv_policy::reference);
}

}  // namespace passel::python
