#include "train/gradient_sum.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace passel {
namespace {

std::size_t Padded(std::size_t elements) {
  return (elements + kVariableAlignment - 1) / kVariableAlignment * kVariableAlignment;
}

}  // namespace

GradientSum::GradientSum(const VariableTable& table) : table_(table) {
  std::size_t floats = kVariableAlignment;
  for (const VariableInfo& v : table.all()) floats += Padded(v.elements);
  memory_.resize(floats);
  const std::size_t offset =
      reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(float) % kVariableAlignment;
  float* next = memory_.data() + (kVariableAlignment - offset) % kVariableAlignment;
  for (const VariableInfo& v : table.all()) {
    values_.push_back(next);
    next += Padded(v.elements);
  }
  addend_ = GradientBuffer(values_.data(), &table_, -1);
}

void GradientSum::AddTo(const GradientBuffer& sum, float divisor) const {
  for (VarId id = 0; id < table_.size(); ++id) {
    const std::span<float> to = sum.values(id);
    const float* const from = values_[id];
    if (divisor == 1.F) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    } else {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = (to[i] + from[i]) / divisor;
    }
  }
}

}  // namespace passel
