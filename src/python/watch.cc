#include "python/watch.h"

#include <algorithm>

namespace passel::python {

namespace nb = nanobind;

Watch::Watch(const nb::list& parameters) : tensors_(parameters.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].parameter = parameters[i];
}

void Watch::Point(const nb::list& gradients) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].gradient = gradients[i];
    tensors_[i].place = Place(tensors_[i]);
  }
}

void Watch::NoteValues() {
  for (Tensor& tensor : tensors_) tensor.values = Writes(tensor.parameter);
}

void Watch::NoteZeros() {
  for (Tensor& tensor : tensors_) tensor.zeros = Writes(tensor.gradient);
}

std::optional<std::tuple<std::size_t, bool>> Watch::Changed() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (Place(tensors_[i]) != tensors_[i].place) return {{i, true}};
    if (Writes(tensors_[i].parameter) != tensors_[i].values) return {{i, false}};
  }
  return std::nullopt;
}

bool Watch::Attached() const {
  return std::ranges::all_of(tensors_, [&](const Tensor& tensor) {
    return nb::getattr(tensor.parameter, grad_).is(tensor.gradient);
  });
}

bool Watch::AllZero() const {
  return std::ranges::all_of(
      tensors_, [&](const Tensor& tensor) { return Writes(tensor.gradient) == tensor.zeros; });
}

bool Watch::IsZero(std::size_t i) const {
  return Writes(tensors_.at(i).gradient) == tensors_.at(i).zeros;
}

std::int64_t Watch::Place(const Tensor& tensor) const {
  return nb::cast<std::int64_t>(tensor.parameter.attr(data_ptr_)());
}

std::int64_t Watch::Writes(const nb::object& tensor) const {
  return nb::cast<std::int64_t>(nb::getattr(tensor, version_));
}

}  // namespace passel::python
