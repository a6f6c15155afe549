#include "python/watch.h"

#include <utility>

namespace passel::python {

namespace nb = nanobind;

Watch::Watch(const nb::list& parameters, const std::vector<bool>& plain, nb::object float32)
    : float32_(std::move(float32)), tensors_(parameters.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].parameter = parameters[i];
    tensors_[i].shape = nb::getattr(parameters[i], shape_);
    tensors_[i].plain = plain.at(i);
  }
}

void Watch::Point() {
  for (Tensor& tensor : tensors_) tensor.place = Place(tensor.parameter);
}

void Watch::NoteValues() {
  for (Tensor& tensor : tensors_) tensor.values = Writes(tensor.parameter);
}

void Watch::DropGradients() const {
  for (const Tensor& tensor : tensors_) {
    if (nb::getattr(tensor.parameter, grad_).is_none()) continue;
    nb::setattr(tensor.parameter, grad_, nb::none());
  }
}

std::optional<std::tuple<std::size_t, bool>> Watch::Changed() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (Place(tensor.parameter) != tensor.place || !HasShape(tensor.parameter, tensor) ||
        (tensor.plain && !IsContiguous(tensor.parameter))) {
      return {{i, true}};
    }
    if (Writes(tensor.parameter) != tensor.values) return {{i, false}};
  }
  return std::nullopt;
}

Watch::Gradient Watch::GradientOf(std::size_t i) const {
  using enum Gradient::Kind;
  const Tensor& tensor = tensors_.at(i);
  const nb::object gradient = nb::getattr(tensor.parameter, grad_);
  if (gradient.is_none()) return {};
  // PyTorch sees to it where the attribute is set, but a gradient can be changed later.
  if (!HasShape(gradient, tensor)) return {kMisshapen, nullptr, {}};
  // A negated view has the floats of what it negates, and a tensor of zeros may have none.
  const bool floats = tensor.plain && nb::getattr(gradient, dtype_).is(float32_) &&
                      IsContiguous(gradient) && !nb::cast<bool>(gradient.attr(is_neg_)());
  const auto* const place = reinterpret_cast<const float*>(floats ? Place(gradient) : 0);
  if (place == nullptr) return {kOther, nullptr, {}};
  return {kFloats, place, gradient};
}

bool Watch::HasShape(const nb::object& tensor, const Tensor& of) const {
  return nb::getattr(tensor, shape_).equal(of.shape);
}

bool Watch::IsContiguous(const nb::object& tensor) const {
  return nb::cast<bool>(tensor.attr(is_contiguous_)());
}

std::int64_t Watch::Place(const nb::object& tensor) const {
  return nb::cast<std::int64_t>(tensor.attr(data_ptr_)());
}

std::int64_t Watch::Writes(const nb::object& tensor) const {
  return nb::cast<std::int64_t>(nb::getattr(tensor, version_));
}

}  // namespace passel::python
