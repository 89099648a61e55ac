// Internal: the computations of batch norm on the CPU. LibTorch has such operators for GPUs only. Statistics and sums
// are computed in double, so that large means with tiny variances lose no precision. Results have the type of the
// input.
#pragma once

#include "syncbn/batch_norm_ops.h"
#include "syncbn/simd_kernels.h"

namespace ddp::detail {

class CpuBatchNormOps final : public BatchNormOps {
 public:
  explicit CpuBatchNormOps(const SimdLevel& level = simd_level()) : level_(level) {}

  at::Tensor local_row(const at::Tensor& x, const Share& share) const override;
  RowSummary summary(const at::Tensor& rows, int64_t rank) const override;
  bool all_joined(const at::Tensor& rows) const override;
  BatchStatistics merge(const at::Tensor& rows, int64_t channels, double eps,
                        const RunningStatistics& running) const override;
  at::Tensor normalize(const at::Tensor& x, const BatchStatistics& statistics, const at::Tensor& weight,
                       const at::Tensor& bias) const override;
  LocalGradients local_gradients(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                 const at::Tensor& weight) const override;
  at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                            const at::Tensor& weight, const at::Tensor& sums) const override;

 private:
  const SimdLevel& level_;
};

}  // namespace ddp::detail
