#include "optim/elementwise/number.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_pow.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>

namespace ddp::optim {

double Number::on_host() const {
  return shared.defined() ? shared.item<double>() : value;
}

Number operator-(const Number& a) {
  if (a.is_list()) return Number(at::_foreach_neg(a.each));
  if (a.shared.defined()) return Number(a.shared.neg());
  return -a.value;
}

Number operator+(const Number& a, double b) {
  if (a.is_list()) return Number(at::_foreach_add(a.each, b));
  if (a.shared.defined()) return Number(a.shared.add(b));
  return a.value + b;
}

Number operator-(const Number& a, double b) {
  if (a.is_list()) return Number(at::_foreach_sub(a.each, b));
  if (a.shared.defined()) return Number(a.shared.sub(b));
  return a.value - b;
}

Number operator-(double a, const Number& b) {
  if (b.is_list()) return -(b - a);
  if (b.shared.defined()) return Number(at::rsub(b.shared, a));
  return a - b.value;
}

Number operator*(const Number& a, const Number& b) {
  if (!a.is_tensor() && !b.is_tensor()) return a.value * b.value;
  if (!a.is_list() && (b.is_list() || !a.is_tensor())) return b * a;
  if (a.is_list()) {
    if (b.is_list()) return Number(at::_foreach_mul(a.each, b.each));
    return Number(b.is_tensor() ? at::_foreach_mul(a.each, b.shared) : at::_foreach_mul(a.each, b.value));
  }
  return Number(b.is_tensor() ? a.shared.mul(b.shared) : a.shared.mul(b.value));
}

Number operator/(const Number& a, const Number& b) {
  if (b.is_list() && !a.is_list()) return Number(at::_foreach_reciprocal(b.each)) * a;
  if (a.is_list()) {
    if (b.is_list()) return Number(at::_foreach_div(a.each, b.each));
    return Number(b.is_tensor() ? at::_foreach_div(a.each, b.shared) : at::_foreach_div(a.each, b.value));
  }
  if (a.is_tensor()) return Number(b.is_tensor() ? a.shared.div(b.shared) : a.shared.div(b.value));
  if (b.is_tensor()) return Number(b.shared.reciprocal().mul(a.value));
  return a.value / b.value;
}

Number pow(double base, const Number& exponent) {
  if (exponent.is_list()) return Number(at::_foreach_pow(base, exponent.each));
  if (exponent.is_tensor()) return Number(at::pow(base, exponent.shared));
  return std::pow(base, exponent.value);
}

Number pow(const Number& base, double exponent) {
  if (base.is_list()) return Number(at::_foreach_pow(base.each, exponent));
  if (base.is_tensor()) return Number(at::pow(base.shared, exponent));
  return std::pow(base.value, exponent);
}

Number root(const Number& a) {
  if (a.is_list()) return Number(at::_foreach_sqrt(a.each));
  return pow(a, 0.5);
}

Number at_least(const Number& a, double lowest) {
  if (a.is_list()) return Number(at::_foreach_clamp_min(a.each, lowest));
  if (a.is_tensor()) return Number(at::fmax(a.shared, at::native::wrapped_scalar_tensor(lowest)));
  return at_least(a.value, lowest);
}

Number at_most(const Number& a, const Number& b) {
  if (!a.is_tensor() && !b.is_tensor()) return b.value < a.value ? b : a;
  if (!a.is_tensor()) return at_most(b, a);
  // As Python's min(), which returns one of the two.
  if (!b.is_tensor() && a.shared.is_cpu()) return a.on_host() > b.value ? b : a;
  if (!b.is_tensor()) return Number(a.shared.clamp_max(b.value));
  return Number(at::minimum(a.shared, b.shared));
}

Number where_above(const Number& value, double limit, const Number& a, double b) {
  if (!value.is_list()) return value.value > limit ? a : Number(b);
  std::vector<at::Tensor> chosen;
  for (size_t i = 0; i < value.each.size(); ++i) {
    const at::Tensor is_above = value.each[i].gt(limit);
    chosen.push_back(a.is_list() ? at::where(is_above, a.each[i], b) : at::where(is_above, a.value, b));
  }
  return Number(std::move(chosen));
}

}  // namespace ddp::optim
