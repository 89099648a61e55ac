#include "comm/reducer/absent_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace ddp::detail {
namespace {

// As an embedding's, whose rows are the indices.
at::Tensor without_rows(const at::Tensor& parameter) {
  std::vector<int64_t> shape = parameter.sizes().vec();
  shape.front() = 0;
  return at::sparse_coo_tensor(at::zeros({1, 0}, parameter.options().dtype(at::kLong).requires_grad(false)),
                               at::zeros(shape, parameter.options().requires_grad(false)), parameter.sizes());
}

at::Tensor negative_zeros(const at::Tensor& parameter) {
  at::Tensor zeros = at::empty_like(parameter);
  (zeros.is_complex() ? at::view_as_real(zeros) : zeros).fill_(-0.0);
  return zeros;
}

bool is_zero(const at::Tensor& gradient, bool of_any_sign) {
  if (gradient.is_sparse()) return gradient._nnz() == 0;
  const at::Tensor numbers = gradient.is_complex() ? at::view_as_real(gradient) : gradient;
  const at::Tensor zeros = numbers.eq(0);
  return (of_any_sign ? zeros : zeros.logical_and(at::signbit(numbers))).all().item<bool>();
}

}  // namespace

void AbsentGradients::fill(size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = model_.parameters[parameter].mutable_grad();
  if (gradient.defined()) return;
  const at::Tensor values = model_.parameters[parameter].detach();
  const bool is_sparse = !model_.sparse_gradients.empty() && model_.sparse_gradients[parameter];
  gradient = is_sparse ? without_rows(values) : negative_zeros(values);
  filled_.push_back(parameter);
}

void AbsentGradients::take_back() {
  const at::NoGradGuard no_grad;
  for (const size_t parameter : std::exchange(filled_, {})) {
    at::Tensor& gradient = model_.parameters[parameter].mutable_grad();
    // Ranks that have joined reduce +0.
    const bool is_frozen = !model_.parameters[parameter].requires_grad();
    if (gradient.defined() && is_zero(gradient, /*of_any_sign=*/is_frozen)) gradient = at::Tensor();
  }
}

}  // namespace ddp::detail
