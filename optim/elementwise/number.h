// The scalars of an update and their arithmetic, as Python computes it with numbers and with tensors of one element.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <utility>
#include <vector>

namespace ddp::optim {

/// A scalar of an update: a number, one tensor of one element for all parameters, or such a tensor for each parameter.
/// Tensors stay on their device. What follows from a tensor is a tensor of the same dtype; bits are those of Python's
/// operators on 0-d tensors, and of torch._foreach_… where there is one tensor for each parameter.
struct Number {
  Number(double number) : value(number) {}
  explicit Number(at::Tensor tensor) : shared(std::move(tensor)) {}
  explicit Number(std::vector<at::Tensor> tensors) : each(std::move(tensors)) {}

  double value = 0;                ///< without tensors
  at::Tensor shared{};             ///< for all parameters
  std::vector<at::Tensor> each{};  ///< for each one

  bool is_list() const { return !each.empty(); }
  bool is_tensor() const { return shared.defined() || is_list(); }
  /// Whether it is a number on the host and equal to `number`.
  bool is(double number) const { return !is_tensor() && value == number; }
  /// The value on the host, which waits for a tensor's device.
  double on_host() const;
};

Number operator-(const Number& a);
Number operator+(const Number& a, double b);
Number operator-(const Number& a, double b);
/// -(b - a): the same bits as a - b.
Number operator-(double a, const Number& b);
Number operator*(const Number& a, const Number& b);
/// Of a number and a tensor: reciprocal, then product, as Python divides. Of anything and a list: the same.
Number operator/(const Number& a, const Number& b);
Number pow(double base, const Number& exponent);
Number pow(const Number& base, double exponent);
/// Python's a ** 0.5.
Number root(const Number& a);
/// The larger one; for NaN `lowest`, as Python's max(lowest, a) has it. Of a list: NaN.
Number at_least(const Number& a, double lowest);
/// The smaller one. `a` or `b`, of which none is a list.
Number at_most(const Number& a, const Number& b);

inline Number operator+(double a, const Number& b) {
  return b + a;
}

/// `a` where `value` is above `limit`, else `b`.
Number where_above(const Number& value, double limit, const Number& a, double b);

// The same for numbers on the host alone.
inline double at_least(double value, double lowest) {
  return value > lowest ? value : lowest;
}
inline double where_above(double value, double limit, double a, double b) {
  return value > limit ? a : b;
}
inline double root(double a) {
  return std::pow(a, 0.5);  // not always the correctly rounded root
}

}  // namespace ddp::optim
