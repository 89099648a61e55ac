// Operators that LibTorch has for GPUs alone, made of others: synchronised batch norm's parts, the fused dropout,
// softmax of halves; and a fused kernel that is wrong on the CPU.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <vector>

#include "tests/support/device/operators.h"

namespace ddp::test::device {
namespace {

using Optional = std::optional<at::Tensor>;

bool has(const Optional& tensor) {
  return tensor && tensor->defined();
}

// All dimensions but the channels'.
std::vector<int64_t> others(const at::Tensor& x) {
  std::vector<int64_t> dimensions{0};
  for (int64_t i = 2; i < x.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  return values.view(shape);
}

at::Tensor wide(const at::Tensor& x) {
  return x.to(at::toOpMathType(x.scalar_type()));
}

std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& x, double eps) {
  const auto [variance, mean] = at::var_mean(wide(x), others(x), /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_update_stats(const at::Tensor& x, const Optional& running_mean,
                                                           const Optional& running_var, double momentum) {
  const auto [variance, mean] = at::var_mean(wide(x), others(x), /*unbiased=*/false);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  if (has(running_mean)) running_mean->lerp_(mean.to(running_mean->scalar_type()), momentum);
  if (has(running_var)) running_var->lerp_((variance * (count / (count - 1))).to(running_var->scalar_type()), momentum);
  return {mean, variance};
}

at::Tensor batch_norm_elemt(const at::Tensor& x, const Optional& weight, const Optional& bias, const at::Tensor& mean,
                            const at::Tensor& invstd, double /*eps*/) {
  at::Tensor y = (wide(x) - per_channel(mean, x)) * per_channel(invstd, x);
  if (has(weight)) y = y * per_channel(wide(*weight), x);
  if (has(bias)) y = y + per_channel(wide(*bias), x);
  return y.to(x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& invstd, const Optional& weight,
    bool input_g, bool weight_g, bool bias_g) {
  const at::Tensor sum_dy = wide(dy).sum(others(x));
  const at::Tensor sum_dy_xmu = (wide(dy) * (wide(x) - per_channel(mean, x))).sum(others(x));
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  if (weight_g && has(weight)) weight_gradient = (sum_dy_xmu * invstd).to(weight->scalar_type());
  if (bias_g) bias_gradient = has(weight) ? sum_dy.to(weight->scalar_type()) : sum_dy;
  return {input_g ? sum_dy : at::Tensor(), input_g ? sum_dy_xmu : at::Tensor(), weight_gradient, bias_gradient};
}

at::Tensor batch_norm_backward_elemt(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                     const at::Tensor& invstd, const Optional& weight, const at::Tensor& sum_dy,
                                     const at::Tensor& sum_dy_xmu, const at::Tensor& counts) {
  const at::Tensor count = counts.sum().to(mean.scalar_type());
  const at::Tensor mean_dy = per_channel(sum_dy / count, x);
  const at::Tensor slope = per_channel(invstd * invstd * (sum_dy_xmu / count), x);
  at::Tensor factor = per_channel(invstd, x);
  if (has(weight)) factor = factor * per_channel(wide(*weight), x);
  return ((wide(dy) - mean_dy - (wide(x) - per_channel(mean, x)) * slope) * factor).to(x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {x.clone(), at::ones_like(x, at::kBool)};
  const at::Tensor mask = at::empty_like(x, at::kBool).bernoulli_(1 - p);
  return {x * mask * (p < 1 ? 1 / (1 - p) : 0.0), mask};
}

at::Tensor native_dropout_backward(const at::Tensor& dy, const at::Tensor& mask, double scale) {
  return dy * mask * scale;
}

// GPUs turn halves into floats on the way; the CPU's kernels do not.
using Softmax = at::Tensor& (*)(at::Tensor& out, const at::Tensor& x, int64_t dim, bool half_to_float);
template <Softmax kSoftmax>
at::Tensor softmax(const at::Tensor& x, int64_t dim, bool half_to_float) {
  const at::Tensor from = half_to_float ? x.to(at::kFloat) : x;
  at::Tensor result = at::empty_like(from, at::MemoryFormat::Contiguous);
  return kSoftmax(result, from, dim, /*half_to_float=*/false);
}

using SoftmaxBackward = at::Tensor& (*)(at::Tensor& out, const at::Tensor& dy, const at::Tensor& y, int64_t dim,
                                        at::ScalarType dtype);
template <SoftmaxBackward kBackward>
at::Tensor softmax_backward(const at::Tensor& dy, const at::Tensor& y, int64_t dim, at::ScalarType dtype) {
  at::Tensor result = at::empty_like(dy, at::MemoryFormat::Contiguous);
  return kBackward(result, dy, y, dim, dy.scalar_type()).to(dtype);
}

// In floats, as GPUs do: LibTorch 2.11's kernel for the CPU computes halves from values that it never set.
void fused_sgd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::array<std::vector<at::Tensor>, 3> originals;  // parameters, gradients, momenta
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  for (size_t i = 0; i < originals.size(); ++i) originals[i] = first[static_cast<std::ptrdiff_t>(i)].toTensorVector();
  if (originals[0].empty() || !c10::isReducedFloatingType(originals[0][0].scalar_type())) {
    run_cpu_kernel(op, stack);
    return;
  }
  auto floats = originals;
  for (size_t i = 0; i < floats.size(); ++i) {
    for (at::Tensor& tensor : floats[i]) tensor = wide(tensor);
    first[static_cast<std::ptrdiff_t>(i)] = floats[i];
  }
  run_cpu_kernel(op, stack);
  for (size_t i = 0; i < floats.size(); ++i) {
    for (size_t j = 0; j < floats[i].size(); ++j) originals[i][j].copy_(floats[i][j]);
  }
}

}  // namespace

void register_composed(torch::Library& aten) {
  aten.impl("batch_norm_stats", TORCH_FN(batch_norm_stats));
  aten.impl("batch_norm_update_stats", TORCH_FN(batch_norm_update_stats));
  aten.impl("batch_norm_elemt", TORCH_FN(batch_norm_elemt));
  aten.impl("batch_norm_backward_reduce", TORCH_FN(batch_norm_backward_reduce));
  aten.impl("batch_norm_backward_elemt", TORCH_FN(batch_norm_backward_elemt));
  aten.impl("native_dropout", TORCH_FN(native_dropout));
  aten.impl("_softmax", TORCH_FN((softmax<at::_softmax_out>)));
  aten.impl("_log_softmax", TORCH_FN((softmax<at::_log_softmax_out>)));
  aten.impl("_softmax_backward_data", TORCH_FN((softmax_backward<at::_softmax_backward_data_out>)));
  aten.impl("_log_softmax_backward_data", TORCH_FN((softmax_backward<at::_log_softmax_backward_data_out>)));
  aten.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
  aten.impl("_fused_sgd_", torch::CppFunction::makeFromBoxedFunction<&fused_sgd>());
}

}  // namespace ddp::test::device
