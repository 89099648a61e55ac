#include "optim/elementwise/tensor_elementwise.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/ones_like.h>

#include <utility>

namespace ddp::optim {

Operand TensorElementwise::temporary() {
  operands_.emplace_back();
  return Operand{operands_.size() - 1};
}

// A temporary operand is replaced by the new tensors; tensors that the optimizer owns are overwritten in place.
void TensorElementwise::store(Operand to, std::vector<at::Tensor> results) {
  if (static_cast<size_t>(to) < given_) {
    at::_foreach_copy_(list(to), results);
  } else {
    list(to) = std::move(results);
  }
}

// Uses the in-place operator if `to` is the first operand, which avoids the allocation of a tensor.
#define DDP_OPERATOR(name, to, a, ...)                       \
  if ((to) == (a)) {                                         \
    at::name##_(list(a) __VA_OPT__(, ) __VA_ARGS__);         \
  } else {                                                   \
    store(to, at::name(list(a) __VA_OPT__(, ) __VA_ARGS__)); \
  }

void TensorElementwise::copy(Operand to, Operand a) {
  std::vector<at::Tensor> copies;
  if (static_cast<size_t>(to) < given_) {
    copies = list(a);
  } else {
    for (const at::Tensor& tensor : list(a)) copies.push_back(tensor.clone(at::MemoryFormat::Preserve));
  }
  store(to, std::move(copies));
}
void TensorElementwise::neg(Operand to, Operand a) {
  DDP_OPERATOR(_foreach_neg, to, a)
}
void TensorElementwise::abs(Operand to, Operand a) {
  DDP_OPERATOR(_foreach_abs, to, a)
}
void TensorElementwise::sign(Operand to, Operand a) {
  DDP_OPERATOR(_foreach_sign, to, a)
}
void TensorElementwise::sqrt(Operand to, Operand a) {
  DDP_OPERATOR(_foreach_sqrt, to, a)
}
void TensorElementwise::rsqrt(Operand to, Operand a) {
  std::vector<at::Tensor> roots;
  for (const at::Tensor& tensor : list(a)) roots.push_back(tensor.rsqrt());
  store(to, std::move(roots));
}
void TensorElementwise::reciprocal(Operand to, Operand a) {
  DDP_OPERATOR(_foreach_reciprocal, to, a)
}
void TensorElementwise::mul(Operand to, Operand a, Operand b) {
  DDP_OPERATOR(_foreach_mul, to, a, list(b))
}
void TensorElementwise::div(Operand to, Operand a, Operand b) {
  DDP_OPERATOR(_foreach_div, to, a, list(b))
}
void TensorElementwise::maximum(Operand to, Operand a, Operand b) {
  DDP_OPERATOR(_foreach_maximum, to, a, list(b))
}
void TensorElementwise::add(Operand to, Operand a, const UpdateScalar& number) {
  if (number.is_list()) {
    DDP_OPERATOR(_foreach_add, to, a, number.each, 1)
  } else {
    DDP_OPERATOR(_foreach_add, to, a, number.value)
  }
}
void TensorElementwise::mul(Operand to, Operand a, const UpdateScalar& number) {
  if (number.is_list()) {
    DDP_OPERATOR(_foreach_mul, to, a, number.each)
  } else if (number.is_tensor()) {
    DDP_OPERATOR(_foreach_mul, to, a, number.shared)
  } else if (to == a) {
    // _foreach_mul_ would round the number to the tensors' dtype on the CPU.
    if (list(a).front().is_cpu()) {
      for (const at::Tensor& tensor : list(a)) tensor.mul_(at::native::wrapped_scalar_tensor(number.value));
    } else {
      at::_foreach_mul_(list(a), number.value);
    }
  } else {
    store(to, at::_foreach_mul(list(a), number.value));
  }
}
void TensorElementwise::mul(Operand to, const UpdateScalar& numbers, Operand a) {
  if (!numbers.is_list()) return mul(to, a, numbers);
  store(to, at::_foreach_mul(numbers.each, list(a)));
}
void TensorElementwise::div(Operand to, Operand a, const UpdateScalar& number) {
  if (number.is_list()) {
    DDP_OPERATOR(_foreach_div, to, a, number.each)
  } else if (number.is_tensor()) {
    DDP_OPERATOR(_foreach_div, to, a, number.shared)
  } else {
    DDP_OPERATOR(_foreach_div, to, a, number.value)
  }
}

void TensorElementwise::add(Operand to, Operand a, Operand b, const UpdateScalar& alpha) {
  if (alpha.is_list()) {
    DDP_OPERATOR(_foreach_addcmul, to, a, alpha.each, list(b))
  } else if (alpha.is_tensor()) {
    const Operand term = temporary();
    mul(term, b, alpha);
    DDP_OPERATOR(_foreach_add, to, a, list(term))
  } else {
    DDP_OPERATOR(_foreach_add, to, a, list(b), alpha.value)
  }
}
void TensorElementwise::addcmul(Operand to, Operand a, Operand b, Operand c, double value) {
  DDP_OPERATOR(_foreach_addcmul, to, a, list(b), list(c), value)
}
void TensorElementwise::addcdiv(Operand to, Operand a, Operand b, Operand c, const UpdateScalar& value) {
  if (value.is_tensor()) {
    const Operand divisor = temporary();
    div(divisor, c, value);
    DDP_OPERATOR(_foreach_addcdiv, to, a, list(b), list(divisor))
  } else {
    DDP_OPERATOR(_foreach_addcdiv, to, a, list(b), list(c), value.value)
  }
}
void TensorElementwise::lerp(Operand to, Operand a, Operand end, const UpdateScalar& weight) {
  if (!weight.is_tensor()) {
    DDP_OPERATOR(_foreach_lerp, to, a, list(end), weight.value)
    return;
  }
  std::vector<at::Tensor> means;
  for (size_t i = 0; i < list(a).size(); ++i) means.push_back(list(a)[i].lerp(list(end)[i], weight.shared));
  store(to, std::move(means));
}
void TensorElementwise::clamp(Operand to, Operand a, double lowest, double highest) {
  DDP_OPERATOR(_foreach_clamp_min, to, a, lowest)
  at::_foreach_clamp_max_(list(to), highest);
}

void TensorElementwise::choose_by_sign(Operand to, Operand a, double above, double below) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : list(a)) {
    results.push_back(at::ones_like(tensor).masked_fill_(tensor.gt(0), above).masked_fill_(tensor.lt(0), below));
  }
  store(to, std::move(results));
}

void TensorElementwise::zero_where(Operand to, Operand a, Operand key, double number) {
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < list(a).size(); ++i) {
    results.push_back(list(a)[i].masked_fill(list(key)[i].eq(number), 0));
  }
  store(to, std::move(results));
}

#undef DDP_OPERATOR

}  // namespace ddp::optim
