// The scalars of an update and their arithmetic, as Python computes it with numbers and one-element tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <utility>
#include <vector>

namespace ddp::optim {

/// A scalar of an update: a number, a one-element tensor for all parameters, or a list with a one-element tensor for
/// each parameter. Tensors stay on their device. A result that is computed from a tensor is a tensor of the same dtype.
/// Results have the bits of Python's operators on 0-d tensors or, for lists, of torch._foreach_….
struct UpdateScalar {
  UpdateScalar(double number) : value(number) {}
  explicit UpdateScalar(at::Tensor tensor) : shared(std::move(tensor)) {}
  explicit UpdateScalar(std::vector<at::Tensor> tensors) : each(std::move(tensors)) {}

  double value = 0;                ///< used if there is no tensor
  at::Tensor shared{};             ///< one tensor for all parameters
  std::vector<at::Tensor> each{};  ///< one tensor for each parameter

  bool is_list() const { return !each.empty(); }
  bool is_tensor() const { return shared.defined() || is_list(); }
  /// Whether this is a number on the host that equals `number`.
  bool is(double number) const { return !is_tensor() && value == number; }
  /// Returns the value on the host; waits for the device if it is a tensor.
  double on_host() const;
};

UpdateScalar operator-(const UpdateScalar& a);
UpdateScalar operator+(const UpdateScalar& a, double b);
UpdateScalar operator-(const UpdateScalar& a, double b);
/// Computed as -(b - a), which has the same bits as a - b.
UpdateScalar operator-(double a, const UpdateScalar& b);
UpdateScalar operator*(const UpdateScalar& a, const UpdateScalar& b);
/// A number divided by a tensor is computed as a product with the reciprocal, as in Python. So is a number or a shared
/// tensor divided by a list.
UpdateScalar operator/(const UpdateScalar& a, const UpdateScalar& b);
UpdateScalar pow(double base, const UpdateScalar& exponent);
UpdateScalar pow(const UpdateScalar& base, double exponent);
/// Python's a ** 0.5.
UpdateScalar root(const UpdateScalar& a);
/// The larger one. NaN gives `lowest`, as Python's max(lowest, a) does, but stays NaN in a list.
UpdateScalar at_least(const UpdateScalar& a, double lowest);
/// The smaller one. Neither `a` nor `b` may be a list.
UpdateScalar at_most(const UpdateScalar& a, const UpdateScalar& b);

inline UpdateScalar operator+(double a, const UpdateScalar& b) {
  return b + a;
}

/// `a` if `value` is above `limit`, otherwise `b`; for lists, elementwise.
UpdateScalar where_above(const UpdateScalar& value, double limit, const UpdateScalar& a, double b);

// The same functions for plain numbers.
inline double at_least(double value, double lowest) {
  return value > lowest ? value : lowest;
}
inline double where_above(double value, double limit, double a, double b) {
  return value > limit ? a : b;
}
inline double root(double a) {
  return std::pow(a, 0.5);  // std::sqrt could round differently
}

}  // namespace ddp::optim
