// Internal: the computations of batch norm on GPUs, with the operators that LibTorch's synchronised batch norm consists
// of. The host never waits for the device.
#pragma once

#include "syncbn/batch_norm_ops.h"

namespace ddp::detail {

class DeviceBatchNormOps final : public BatchNormOps {
 public:
  at::Tensor local_row(const at::Tensor& x, const Share& share) const override;
  RowSummary summary(const at::Tensor& rows, int64_t rank) const override;
  bool all_joined(const at::Tensor& rows) const override;
  /// Supports tensors on any device.
  BatchStatistics merge(const at::Tensor& rows, int64_t channels, double eps,
                        const RunningStatistics& running) const override;
  at::Tensor normalize(const at::Tensor& x, const BatchStatistics& statistics, const at::Tensor& weight,
                       const at::Tensor& bias) const override;
  LocalGradients local_gradients(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                 const at::Tensor& weight) const override;
  at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                            const at::Tensor& weight, const at::Tensor& sums) const override;
};

/// Returns a row in the format that DeviceBatchNormOps gathers, from a rank's means, biased variances and number of
/// values per channel.
at::Tensor device_row(const at::Tensor& mean, const at::Tensor& variance, int64_t values);

}  // namespace ddp::detail
