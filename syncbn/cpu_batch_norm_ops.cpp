#include "syncbn/cpu_batch_norm_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "syncbn/cpu_kernels.h"
#include "syncbn/element_types.h"
#include "syncbn/gather_stats.h"

namespace ddp::detail {
namespace {

// A row is [count, means…, sums of squared deviations…, state].
constexpr int64_t kCount = 0;
constexpr int64_t kMeans = 1;
constexpr double kRecordsGradient = 1;
constexpr double kJoined = 2;

// Returns one number per channel; all are `missing` if the tensor is undefined.
std::vector<double> numbers(const at::Tensor& tensor, int64_t channels, double missing) {
  if (!tensor.defined()) return std::vector<double>(static_cast<size_t>(channels), missing);
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {read<double>(doubles), read<double>(doubles) + channels};
}

// As in LibTorch's batch norm, autograd does not see the update: the graph of an earlier forward in eval mode may hold
// the running statistics.
void update(const at::Tensor& running, const double* batch, int64_t channels, double momentum) {
  std::vector<double> values = numbers(running, channels, 0);
  update_running(values.data(), batch, channels, momentum);
  running.variable_data().copy_(at::from_blob(values.data(), {channels}, at::kDouble));
}

}  // namespace

at::Tensor CpuBatchNormOps::local_row(const at::Tensor& x, const Share& share) const {
  at::Tensor row = at::zeros({2 + 2 * share.channels}, at::kDouble);
  auto* values = write<double>(row);
  values[1 + 2 * share.channels] = share.joined ? kJoined : share.records_gradient ? kRecordsGradient : 0;
  if (share.refused) {
    values[kCount] = kRefused;
  } else if (!share.joined && x.numel() > 0) {
    values[kCount] = static_cast<double>(x.numel() / share.channels);
    channel_moments(level_, x, values + kMeans, values + kMeans + share.channels);
  }
  return row;
}

RowSummary CpuBatchNormOps::summary(const at::Tensor& rows, int64_t rank) const {
  const double* row = read<double>(rows) + rank * rows.size(1);
  const double state = row[rows.size(1) - 1];
  return {
      .known = true, .count = row[kCount], .records_gradient = state == kRecordsGradient, .joined = state == kJoined};
}

bool CpuBatchNormOps::all_joined(const at::Tensor& rows) const {
  for (int64_t rank = 0; rank < rows.size(0); ++rank) {
    if (!summary(rows, rank).joined) return false;
  }
  return true;
}

BatchStatistics CpuBatchNormOps::merge(const at::Tensor& rows, int64_t channels, double eps,
                                       const RunningStatistics& running) const {
  BatchStatistics result{.mean = at::empty({channels}, at::kDouble),
                         .invstd = at::empty({channels}, at::kDouble),
                         .count = at::empty({1}, at::kDouble)};
  auto* mean = write<double>(result.mean);
  std::vector<double> variance(static_cast<size_t>(channels));
  const double count = gather_stats(read<double>(rows), rows.size(0), rows.size(1), channels, mean, variance.data());
  *write<double>(result.count) = count;
  auto* invstd = write<double>(result.invstd);
  for (size_t c = 0; c < variance.size(); ++c) invstd[c] = 1 / std::sqrt(variance[c] + eps);

  if (running.mean.defined() && count > 0) {
    for (double& value : variance) value *= count / (count - 1);
    update(running.mean, mean, channels, running.momentum);
    update(running.var, variance.data(), channels, running.momentum);
  }
  return result;
}

at::Tensor CpuBatchNormOps::normalize(const at::Tensor& x, const BatchStatistics& statistics, const at::Tensor& weight,
                                      const at::Tensor& bias) const {
  if (x.numel() == 0) return at::empty_like(x);
  const int64_t channels = x.size(1);
  std::vector<double> scale = numbers(weight, channels, 1);
  const auto* invstd = read<double>(statistics.invstd);
  for (size_t c = 0; c < scale.size(); ++c) scale[c] *= invstd[c];
  return apply_affine(level_, x, read<double>(statistics.mean), scale, numbers(bias, channels, 0));
}

LocalGradients CpuBatchNormOps::local_gradients(const at::Tensor& dy, const at::Tensor& x,
                                                const BatchStatistics& statistics, const at::Tensor& /*weight*/) const {
  const int64_t channels = x.size(1);
  const at::Tensor sums = at::zeros({2, channels}, at::kDouble);
  auto* values = write<double>(sums);
  if (x.numel() > 0) {
    channel_gradient_sums(level_, dy, x, read<double>(statistics.mean), values, values + channels);
  }
  return {.sums = sums, .weight = sums[1] * statistics.invstd, .bias = sums[0].clone()};
}

at::Tensor CpuBatchNormOps::input_gradient(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                           const at::Tensor& weight, const at::Tensor& sums) const {
  if (x.numel() == 0) return at::empty_like(x);
  const int64_t channels = x.size(1);
  const auto* invstd = read<double>(statistics.invstd);
  const double* sum_dy = read<double>(sums);
  const double* sum_dy_xmu = sum_dy + channels;
  const double share = 1 / *read<double>(statistics.count);
  // dx = scale * (dy - mean(dy) - (x - mean) * invstd² * mean(dy * (x - mean)))
  std::vector<double> scale = numbers(weight, channels, 1);
  std::vector<double> slope(scale.size());
  std::vector<double> shift(scale.size());
  for (size_t c = 0; c < scale.size(); ++c) {
    scale[c] *= invstd[c];
    slope[c] = -scale[c] * invstd[c] * invstd[c] * sum_dy_xmu[c] * share;
    shift[c] = -scale[c] * sum_dy[c] * share;
  }
  return apply_gradient_affine(level_, dy, x, read<double>(statistics.mean), scale, slope, shift);
}

}  // namespace ddp::detail
