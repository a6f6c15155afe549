// arrays.h - NumPy arrays over memory that they keep.

#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/lent_memory.h"

namespace passel::python {

struct Variable {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t elements = 1;
  int group = 0;
};

enum class Access { kRead, kWrite };

/// An array of the variable's shape. Null memory is an exception.
nanobind::object MakeArray(const std::shared_ptr<LentMemory>& memory, const Variable& variable,
                           Access access);

}  // namespace passel::python
