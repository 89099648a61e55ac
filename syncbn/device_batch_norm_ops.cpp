#include "syncbn/device_batch_norm_ops.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "syncbn/batch_norm_ops.h"
#include "syncbn/cpu_batch_norm_ops.h"

namespace ddp::detail {
namespace {

// A count is sent as two numbers, since float32 represents all integers only up to 2^24.
constexpr int64_t kCountBase = int64_t{1} << 24;

// The kernels combine 16-bit inputs with 32-bit statistics and parameters, so a parameter is converted if necessary.
at::Tensor parameter_for(const at::Tensor& x, const at::Tensor& parameter) {
  return parameter.defined() ? parameter.detach().to(at::toOpMathType(x.scalar_type())).contiguous() : parameter;
}

// As in LibTorch's batch norm, autograd does not see the update: the graph of an earlier forward in eval mode may hold
// the running statistics.
void blend(const at::Tensor& running, const at::Tensor& batch, const at::Tensor& momentum) {
  running.variable_data().lerp_(batch.to(running.scalar_type()), momentum.to(running.scalar_type()));
}

}  // namespace

at::Tensor device_row(const at::Tensor& mean, const at::Tensor& variance, int64_t values) {
  const auto high = at::full({1}, values / kCountBase, mean.options());
  const auto low = at::full({1}, values % kCountBase, mean.options());
  return at::cat({mean, variance, high, low});
}

at::Tensor DeviceBatchNormOps::local_row(const at::Tensor& x, const Share& share) const {
  const auto options = x.options().dtype(at::toOpMathType(x.scalar_type()));
  if (share.joined) {  // no values, and a count that no rank with values can send
    const at::Tensor none = at::zeros({2 * share.channels}, options);
    return at::cat({none, at::full({1}, -1, options), at::full({1}, kCountBase, options)});
  }
  if (share.refused || x.numel() == 0) return at::zeros({2 * share.channels + 2}, options);
  // Without running statistics to update, it returns the batch's mean and biased variance.
  const auto [mean, variance] = at::batch_norm_update_stats(x, {}, {}, 0);
  return device_row(mean, variance, x.numel() / share.channels);
}

RowSummary DeviceBatchNormOps::summary(const at::Tensor& /*rows*/, int64_t /*rank*/) const {
  return {};  // reading the row would make the host wait for the device
}

bool DeviceBatchNormOps::all_joined(const at::Tensor& rows) const {
  return rows.select(1, rows.size(1) - 2).eq(-1).all().item<bool>();
}

// Computes the same as gather_stats(), but with tensors. It uses float64, which is cheap because there are only a few
// numbers per channel.
BatchStatistics DeviceBatchNormOps::merge(const at::Tensor& rows, int64_t channels, double eps,
                                          const RunningStatistics& running) const {
  const at::Tensor all = rows.to(at::kDouble);
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor variances = all.narrow(1, channels, channels);
  const at::Tensor counts =
      all.narrow(1, 2 * channels + 1, 1).add(all.narrow(1, 2 * channels, 1), static_cast<double>(kCountBase));
  const at::Tensor count = counts.sum();
  const at::Tensor shares = counts / count.clamp_min(1);  // if all ranks are empty, this gives zeros instead of 0 / 0
  const at::Tensor mean = (shares * means).sum(0);
  const at::Tensor deviation = means - mean;
  const at::Tensor variance = (shares * variances.addcmul(deviation, deviation)).sum(0);

  if (running.mean.defined()) {
    const at::Tensor momentum = count.clamp_max(1) * running.momentum;  // an empty batch changes nothing
    const at::Tensor unbiased = variance * (count / (count - 1).clamp_min(1));
    blend(running.mean, mean, momentum);
    blend(running.var, unbiased, momentum);
  }
  return {.mean = mean.to(rows.scalar_type()),
          .invstd = (variance + eps).rsqrt().to(rows.scalar_type()),
          .count = count.to(at::kInt).view({1})};
}

at::Tensor DeviceBatchNormOps::normalize(const at::Tensor& x, const BatchStatistics& statistics,
                                         const at::Tensor& weight, const at::Tensor& bias) const {
  if (x.numel() == 0) return at::empty_like(x);
  constexpr double kUnusedEps = 0;
  return at::batch_norm_elemt(x, parameter_for(x, weight), parameter_for(x, bias), statistics.mean, statistics.invstd,
                              kUnusedEps);
}

LocalGradients DeviceBatchNormOps::local_gradients(const at::Tensor& dy, const at::Tensor& x,
                                                   const BatchStatistics& statistics, const at::Tensor& weight) const {
  const int64_t channels = x.size(1);
  if (x.numel() == 0) {
    const at::Tensor none = at::zeros({channels}, statistics.mean.options());
    return {.sums = at::zeros({2, channels}, none.options()), .weight = none, .bias = none};
  }
  const at::Tensor parameter = parameter_for(x, weight);
  auto [sum_dy, sum_dy_xmu, weight_gradient, bias_gradient] =
      at::batch_norm_backward_reduce(dy, x, statistics.mean, statistics.invstd, parameter, /*input_g=*/true,
                                     /*weight_g=*/parameter.defined(), /*bias_g=*/false);
  return {.sums = at::cat({sum_dy, sum_dy_xmu}).view({2, channels}), .weight = weight_gradient, .bias = sum_dy};
}

at::Tensor DeviceBatchNormOps::input_gradient(const at::Tensor& dy, const at::Tensor& x,
                                              const BatchStatistics& statistics, const at::Tensor& weight,
                                              const at::Tensor& sums) const {
  if (x.numel() == 0) return at::empty_like(x);
  return at::batch_norm_backward_elemt(dy, x, statistics.mean, statistics.invstd, parameter_for(x, weight),
                                       sums.select(0, 0), sums.select(0, 1), statistics.count);
}

std::unique_ptr<BatchNormOps> batch_norm_ops_for(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuBatchNormOps>();
  return std::make_unique<DeviceBatchNormOps>();
}

}  // namespace ddp::detail
