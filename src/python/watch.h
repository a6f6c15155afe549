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
  /// `plain`: of each, whether it is of float32 and on the CPU. `float32`: PyTorch's type.
  Watch(const nanobind::list& parameters, const std::vector<bool>& plain, nanobind::object float32);

  /// The parameters are where their memory is now.
  void Point();
  /// The values of the parameters are what they shall be.
  void NoteValues();
  /// Sets the attribute grad of each parameter to None.
  void DropGradients() const;

  /// The first parameter whose memory or shape is another one than at Point() (true), or which was
  /// written to since NoteValues() (false); none: nothing of that.
  std::optional<std::tuple<std::size_t, bool>> Changed() const;

  /// What the attribute grad of a parameter is.
  struct Gradient {
    enum class Kind : std::uint8_t { kNone, kFloats, kOther, kMisshapen };
    Kind kind = Kind::kNone;
    const float* floats = nullptr;  ///< with kFloats: as many as the parameter has, in its order
    nanobind::object owner;         ///< of `floats`
  };
  Gradient GradientOf(std::size_t i) const;

 private:
  struct Tensor {
    nanobind::object parameter, shape;
    bool plain = false;
    std::int64_t place = 0;   // an address
    std::int64_t values = 0;  // PyTorch's count of writes, when they were noted
  };
  bool HasShape(const nanobind::object& tensor, const Tensor& of) const;
  bool IsContiguous(const nanobind::object& tensor) const;
  std::int64_t Place(const nanobind::object& tensor) const;
  std::int64_t Writes(const nanobind::object& tensor) const;

  const nanobind::str data_ptr_{"data_ptr"}, version_{"_version"}, grad_{"grad"}, dtype_{"dtype"},
      shape_{"shape"}, is_contiguous_{"is_contiguous"}, is_neg_{"is_neg"};
  const nanobind::object float32_;
  std::vector<Tensor> tensors_;
};

}  // namespace passel::python
