#include "optim/elementwise/update_scalar.h"

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

double UpdateScalar::on_host() const {
  return shared.defined() ? shared.item<double>() : value;
}

UpdateScalar operator-(const UpdateScalar& a) {
  if (a.is_list()) return UpdateScalar(at::_foreach_neg(a.each));
  if (a.shared.defined()) return UpdateScalar(a.shared.neg());
  return -a.value;
}

UpdateScalar operator+(const UpdateScalar& a, double b) {
  if (a.is_list()) return UpdateScalar(at::_foreach_add(a.each, b));
  if (a.shared.defined()) return UpdateScalar(a.shared.add(b));
  return a.value + b;
}

UpdateScalar operator-(const UpdateScalar& a, double b) {
  if (a.is_list()) return UpdateScalar(at::_foreach_sub(a.each, b));
  if (a.shared.defined()) return UpdateScalar(a.shared.sub(b));
  return a.value - b;
}

UpdateScalar operator-(double a, const UpdateScalar& b) {
  if (b.is_list()) return -(b - a);
  if (b.shared.defined()) return UpdateScalar(at::rsub(b.shared, a));
  return a - b.value;
}

UpdateScalar operator*(const UpdateScalar& a, const UpdateScalar& b) {
  if (!a.is_tensor() && !b.is_tensor()) return a.value * b.value;
  if (!a.is_list() && (b.is_list() || !a.is_tensor())) return b * a;
  if (a.is_list()) {
    if (b.is_list()) return UpdateScalar(at::_foreach_mul(a.each, b.each));
    return UpdateScalar(b.is_tensor() ? at::_foreach_mul(a.each, b.shared) : at::_foreach_mul(a.each, b.value));
  }
  return UpdateScalar(b.is_tensor() ? a.shared.mul(b.shared) : a.shared.mul(b.value));
}

UpdateScalar operator/(const UpdateScalar& a, const UpdateScalar& b) {
  if (b.is_list() && !a.is_list()) return UpdateScalar(at::_foreach_reciprocal(b.each)) * a;
  if (a.is_list()) {
    if (b.is_list()) return UpdateScalar(at::_foreach_div(a.each, b.each));
    return UpdateScalar(b.is_tensor() ? at::_foreach_div(a.each, b.shared) : at::_foreach_div(a.each, b.value));
  }
  if (a.is_tensor()) return UpdateScalar(b.is_tensor() ? a.shared.div(b.shared) : a.shared.div(b.value));
  if (b.is_tensor()) return UpdateScalar(b.shared.reciprocal().mul(a.value));
  return a.value / b.value;
}

UpdateScalar pow(double base, const UpdateScalar& exponent) {
  if (exponent.is_list()) return UpdateScalar(at::_foreach_pow(base, exponent.each));
  if (exponent.is_tensor()) return UpdateScalar(at::pow(base, exponent.shared));
  return std::pow(base, exponent.value);
}

UpdateScalar pow(const UpdateScalar& base, double exponent) {
  if (base.is_list()) return UpdateScalar(at::_foreach_pow(base.each, exponent));
  if (base.is_tensor()) return UpdateScalar(at::pow(base.shared, exponent));
  return std::pow(base.value, exponent);
}

UpdateScalar root(const UpdateScalar& a) {
  if (a.is_list()) return UpdateScalar(at::_foreach_sqrt(a.each));
  return pow(a, 0.5);
}

UpdateScalar at_least(const UpdateScalar& a, double lowest) {
  if (a.is_list()) return UpdateScalar(at::_foreach_clamp_min(a.each, lowest));
  if (a.is_tensor()) return UpdateScalar(at::fmax(a.shared, at::native::wrapped_scalar_tensor(lowest)));
  return at_least(a.value, lowest);
}

UpdateScalar at_most(const UpdateScalar& a, const UpdateScalar& b) {
  if (!a.is_tensor() && !b.is_tensor()) return b.value < a.value ? b : a;
  if (!a.is_tensor()) return at_most(b, a);
  // As Python's min(), which returns one of the two.
  if (!b.is_tensor() && a.shared.is_cpu()) return a.on_host() > b.value ? b : a;
  if (!b.is_tensor()) return UpdateScalar(a.shared.clamp_max(b.value));
  return UpdateScalar(at::minimum(a.shared, b.shared));
}

UpdateScalar where_above(const UpdateScalar& value, double limit, const UpdateScalar& a, double b) {
  if (!value.is_list()) return value.value > limit ? a : UpdateScalar(b);
  std::vector<at::Tensor> chosen;
  for (size_t i = 0; i < value.each.size(); ++i) {
    const at::Tensor is_above = value.each[i].gt(limit);
    chosen.push_back(a.is_list() ? at::where(is_above, a.each[i], b) : at::where(is_above, a.value, b));
  }
  return UpdateScalar(std::move(chosen));
}

}  // namespace ddp::optim
