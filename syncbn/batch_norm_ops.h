// Internal: what one rank computes in synchronised batch normalisation (Ioffe and Szegedy, "Batch Normalization",
// 2015), for one kind of device. What goes over the wire is a flat tensor whose meaning only the implementation knows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace ddp::detail {

/// A rank's number of values per channel that says: my input was refused.
constexpr double kRefused = -1;

/// What a rank says about its part in one forward.
struct Share {
  int64_t channels = 0;
  bool records_gradient = false;  ///< its backward will all-reduce
  bool refused = false;           ///< its input does not fit; the row only says so
  bool joined = false;            ///< it has run out of data and only keeps the others company
};

/// Statistics of the whole batch, of shape (C) and in the accumulation type, and its number of values per channel, of
/// shape (1).
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor invstd;
  at::Tensor count;
};

/// Running statistics to update; undefined tensors when the module tracks none.
struct RunningStatistics {
  at::Tensor mean{};
  at::Tensor var{};
  double momentum = 0;
};

/// A rank's part of the gradient sums, of shape (2, C), ready to be summed over the ranks; and the gradients of weight
/// and bias, of shape (C) and in memory of their own, which stay local. `weight` may be undefined.
struct LocalGradients {
  at::Tensor sums;
  at::Tensor weight;
  at::Tensor bias;
};

/// What a row says to the host, where it can be read without waiting for a device; otherwise `known` is false.
struct RowSummary {
  bool known = false;
  double count = 0;
  bool records_gradient = false;
  bool joined = false;
};

class BatchNormOps {
 public:
  virtual ~BatchNormOps() = default;

  /// This rank's statistics as a flat row, to be gathered. `x` is contiguous in its suggested memory format.
  virtual at::Tensor local_row(const at::Tensor& x, const Share& share) const = 0;
  /// What row `rank` of the gathered ones says.
  virtual RowSummary summary(const at::Tensor& rows, int64_t rank) const = 0;
  /// Whether all ranks have joined. Waits for the device.
  virtual bool all_joined(const at::Tensor& rows) const = 0;
  /// Merges all ranks' rows, and updates the running statistics (with the unbiased variance).
  virtual BatchStatistics merge(const at::Tensor& rows, int64_t channels, double eps,
                                const RunningStatistics& running) const = 0;
  /// (x - mean) * invstd * weight + bias, in the type and memory format of `x`; weight and bias may be undefined.
  virtual at::Tensor normalize(const at::Tensor& x, const BatchStatistics& statistics, const at::Tensor& weight,
                               const at::Tensor& bias) const = 0;
  /// `dy` is the gradient of what normalize() returned, with the strides of `x`.
  virtual LocalGradients local_gradients(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                         const at::Tensor& weight) const = 0;
  /// The gradient of `x`, with the sums over all ranks.
  virtual at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& x, const BatchStatistics& statistics,
                                    const at::Tensor& weight, const at::Tensor& sums) const = 0;
};

/// The one for tensors on `device`.
std::unique_ptr<BatchNormOps> batch_norm_ops_for(c10::Device device);

}  // namespace ddp::detail
