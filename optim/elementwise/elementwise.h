// The arithmetic that optimizers use: operators on whole tensors, as in the loop form (foreach=False) of torch.optim.
#pragma once

#include <cstddef>

#include "optim/elementwise/update_scalar.h"

namespace ddp::optim {

/// One of the tensors of an update: the parameter, its gradient, a tensor of its state, or a temporary tensor.
enum class Operand : size_t {};
inline constexpr Operand kParameter{0};
inline constexpr Operand kGradient{1};

/// Returns the operand for field number `field` of the state.
constexpr Operand state_operand(size_t field) {
  return Operand{2 + field};
}

/// Operators on operands of the same shape. Each operator rounds as ATen's operator of the same name does for the
/// operands' dtype. The result `to` may also be an input. An update may run separately on parts of the tensors, so it
/// must not branch on their values.
class Elementwise {
 public:
  virtual ~Elementwise() = default;

  /// Returns a new operand with undefined values, for use in this update.
  virtual Operand temporary() = 0;

  virtual void copy(Operand to, Operand a) = 0;
  virtual void neg(Operand to, Operand a) = 0;
  virtual void abs(Operand to, Operand a) = 0;
  virtual void sign(Operand to, Operand a) = 0;
  virtual void sqrt(Operand to, Operand a) = 0;
  virtual void rsqrt(Operand to, Operand a) = 0;
  virtual void reciprocal(Operand to, Operand a) = 0;
  virtual void mul(Operand to, Operand a, Operand b) = 0;
  virtual void div(Operand to, Operand a, Operand b) = 0;
  virtual void maximum(Operand to, Operand a, Operand b) = 0;
  virtual void add(Operand to, Operand a, const UpdateScalar& number) = 0;
  virtual void mul(Operand to, Operand a, const UpdateScalar& number) = 0;
  virtual void div(Operand to, Operand a, const UpdateScalar& number) = 0;
  /// The same as mul(to, a, numbers), except that a list of numbers is rounded to the operand's dtype first.
  virtual void mul(Operand to, const UpdateScalar& numbers, Operand a) = 0;
  /// a + alpha * b
  virtual void add(Operand to, Operand a, Operand b, const UpdateScalar& alpha) = 0;
  /// a + value * b * c
  virtual void addcmul(Operand to, Operand a, Operand b, Operand c, double value) = 0;
  /// a + value * b / c; if `value` is a tensor, a + b / (c / value).
  virtual void addcdiv(Operand to, Operand a, Operand b, Operand c, const UpdateScalar& value) = 0;
  virtual void lerp(Operand to, Operand a, Operand end, const UpdateScalar& weight) = 0;
  virtual void clamp(Operand to, Operand a, double lowest, double highest) = 0;
  /// `above` where a is positive, `below` where it is negative, 1 elsewhere.
  virtual void choose_by_sign(Operand to, Operand a, double above, double below) = 0;
  /// 0 where `key` equals `number`, a elsewhere.
  virtual void zero_where(Operand to, Operand a, Operand key, double number) = 0;
};

}  // namespace ddp::optim
