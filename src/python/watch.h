// watch.h - what a step looks at in every tensor of PyTorch. Nothing of PyTorch is linked: these
// are attributes of Python, read in one call for all tensors.
//
// Thread safety: with the GIL alone.

#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace passel::python {

class Watch {
 public:
  explicit Watch(const nanobind::list& parameters);

  /// From here on these are the gradients, one for each parameter, and the parameters are where
  /// their memory is now.
  void Point(const nanobind::list& gradients);
  /// The values of the parameters are what they shall be.
  void NoteValues();
  /// The gradients are 0.
  void NoteZeros();

  /// The first parameter whose memory is another one than at Point() (true), or which was written
  /// to since NoteValues() (false); none: nothing of that.
  std::optional<std::tuple<std::size_t, bool>> Changed() const;
  /// The attribute grad of each parameter is its gradient.
  bool Attached() const;
  /// PyTorch has written to none of the gradients since NoteZeros().
  bool AllZero() const;
  /// It has not written to that one.
  bool IsZero(std::size_t i) const;

 private:
  struct Tensor {
    nanobind::object parameter, gradient;
    std::int64_t place = 0;              // an address
    std::int64_t values = 0, zeros = 0;  // PyTorch's count of writes, when they were noted
  };
  std::int64_t Place(const Tensor& tensor) const;
  std::int64_t Writes(const nanobind::object& tensor) const;

  const nanobind::str data_ptr_{"data_ptr"}, version_{"_version"}, grad_{"grad"};
  std::vector<Tensor> tensors_;
};

}  // namespace passel::python
