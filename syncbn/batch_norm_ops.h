// Internal: the computations of one rank in synchronised batch normalisation (Ioffe and Szegedy, "Batch Normalization",
// 2015), for one kind of device. Ranks exchange flat tensors; only the implementation knows their format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace ddp::detail {

/// A rank sends this number of values per channel if it has refused its input.
constexpr double kRefused = -1;

/// The information that a rank sends about its part in one forward.
struct Share {
  int64_t channels = 0;
  bool records_gradient = false;  ///< its backward will call all-reduce
  bool refused = false;           ///< its input does not fit, and its row contains nothing else
  bool joined = false;            ///< it has run out of data and only takes part in the collectives
};

/// The statistics of the whole batch, of shape (C) and in the accumulation type, and the number of values per channel,
/// of shape (1).
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor invstd;
  at::Tensor count;
};

/// Running statistics to update. The tensors are undefined if the module tracks none.
struct RunningStatistics {
  at::Tensor mean{};
  at::Tensor var{};
  double momentum = 0;
};

/// `sums`: a rank's part of the gradient sums, of shape (2, C), to be summed over the ranks. `weight` and `bias`: their
/// gradients, of shape (C), which are not summed over the ranks and do not share memory with `sums`. `weight` may be
/// undefined.
struct LocalGradients {
  at::Tensor sums;
  at::Tensor weight;
  at::Tensor bias;
};

/// The contents of a row, if the host can read them without waiting for a device; otherwise `known` is false.
struct RowSummary {
  bool known = false;
  double count = 0;
  bool records_gradient = false;
  bool joined = false;
};

class BatchNormOps {
 public:
  virtual ~BatchNormOps() = default;

  /// Returns this rank's statistics as a flat row for the all-gather. `x` is contiguous in its suggested memory format.
  virtual at::Tensor local_row(const at::Tensor& x, const Share& share) const = 0;
  /// Returns the summary of row `rank` of the gathered rows.
  virtual RowSummary summary(const at::Tensor& rows, int64_t rank) const = 0;
  /// Whether all ranks have joined. Waits for the device.
  virtual bool all_joined(const at::Tensor& rows) const = 0;
  /// Merges the rows of all ranks, and updates the running statistics (with the unbiased variance).
  virtual BatchStatistics merge(const at::Tensor& rows, int64_t channels, double eps,
                                const RunningStatistics& running) const = 0;
  /// (x - mean) * invstd * weight + bias, in the type and memory format of `x`; weight and bias may be undefined.
  virtual at::Tensor normalize(const at::Tensor& x, const BatchStatistics& statistics, const at::Tensor& weight,
                               const at::Tensor& bias) const = 0;
  /// `dy` is the gradient of the result of normalize(), with the strides of `x`.
  virtual LocalGradients local_gradients(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                         const at::Tensor& weight) const = 0;
  /// Returns the gradient of `x`, computed with the sums over all ranks.
  virtual at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                    const at::Tensor& weight, const at::Tensor& sums) const = 0;
};

/// Returns the implementation for tensors on `device`.
std::unique_ptr<BatchNormOps> batch_norm_ops_for(c10::Device device);

}  // namespace ddp::detail
