// The arithmetic in which optimizers are written: operators on whole tensors, as torch.optim's loop form has them.
#pragma once

#include <cstddef>

#include "optim/elementwise/number.h"

namespace ddp::optim {

/// One of the tensors of an update: the parameter, its gradient, a tensor of its state, or a temporary one.
enum class Operand : size_t {};
inline constexpr Operand kParameter{0};
inline constexpr Operand kGradient{1};

/// The tensor of the state's field number `field`.
constexpr Operand state_operand(size_t field) {
  return Operand{2 + field};
}

/// Operators on operands of one shape. Each rounds as ATen's operator of the same name does on the operands' dtype.
/// `to` may be one of the other operands. An update runs once for each piece of the tensors, so it must not depend on
/// the values.
class Elementwise {
 public:
  virtual ~Elementwise() = default;

  /// An operand of this update without values.
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
  virtual void add(Operand to, Operand a, const Number& number) = 0;
  virtual void mul(Operand to, Operand a, const Number& number) = 0;
  virtual void div(Operand to, Operand a, const Number& number) = 0;
  /// The same as mul(to, a, numbers), but that numbers which are a list are rounded to the operand's dtype first.
  virtual void mul(Operand to, const Number& numbers, Operand a) = 0;
  /// a + alpha * b
  virtual void add(Operand to, Operand a, Operand b, const Number& alpha) = 0;
  /// a + value * b * c
  virtual void addcmul(Operand to, Operand a, Operand b, Operand c, double value) = 0;
  /// a + value * b / c; where `value` is a tensor, a + b / (c / value).
  virtual void addcdiv(Operand to, Operand a, Operand b, Operand c, const Number& value) = 0;
  virtual void lerp(Operand to, Operand a, Operand end, const Number& weight) = 0;
  virtual void clamp(Operand to, Operand a, double lowest, double highest) = 0;
  /// `above` where a is positive, `below` where it is negative, else 1.
  virtual void choose_by_sign(Operand to, Operand a, double above, double below) = 0;
  /// 0 where `key` is `number`, else a.
  virtual void zero_where(Operand to, Operand a, Operand key, double number) = 0;
};

}  // namespace ddp::optim
