// Batch normalisation over the batches of all ranks, as a module. Reference: torch.nn.SyncBatchNorm, which runs on GPUs
// only; Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include <torch/arg.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <ddprun/comm/process_group.h>

namespace ddp {

namespace detail {
class SyncLayer;
}

/// Options of SyncBatchNorm: those of torch::nn::BatchNorm2d, and the group whose ranks share statistics.
///
///     ddp::SyncBatchNorm norm(ddp::SyncBatchNormOptions(64, group).momentum(0.01));
struct SyncBatchNormOptions {
  /// LibTorch's defaults, for `num_features` channels.
  SyncBatchNormOptions(int64_t num_features, GroupHandle process_group);
  /// Everything as in `options`, with `process_group`.
  SyncBatchNormOptions(const torch::nn::BatchNormOptions& options, GroupHandle process_group);

  /// Number of channels C. Changing it after construction has no effect.
  TORCH_ARG(int64_t, num_features);
  /// The ranks whose batches are normalised together. Changing it after construction has no effect.
  TORCH_ARG(GroupHandle, process_group);
  /// Added to the variance for numerical stability. A change after construction takes effect.
  TORCH_ARG(double, eps) = 1e-5;
  /// The weight of the new batch in the running statistics; std::nullopt for a cumulative average. A change after
  /// construction takes effect.
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  /// Whether to learn a scale and a bias per channel. Changing it after construction has no effect.
  TORCH_ARG(bool, affine) = true;
  /// Whether to keep running statistics for evaluation. Changing it after construction has no effect.
  TORCH_ARG(bool, track_running_stats) = true;
};

/// The module that a SyncBatchNorm holder points to.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, SyncBatchNormOptions> {
 public:
  /// Makes the layer, with weight 1 and bias 0.
  explicit SyncBatchNormImpl(const SyncBatchNormOptions& options);
  /// The same with the defaults.
  SyncBatchNormImpl(int64_t num_features, const GroupHandle& process_group);

  /// Normalises `input` of shape (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), and returns a tensor of the same
  /// shape, dtype and memory format. In training, the statistics are those of all ranks' inputs together, weighted by
  /// their sizes. Outputs, gradients and running statistics therefore equal those of torch::nn::BatchNorm on the
  /// concatenated batch. The gradients of weight and bias are not reduced; DistributedDataParallel averages them.
  /// Inputs may be float, double, bfloat16 or half, on the CPU or on CUDA. Statistics have at least 32 bits.
  ///
  /// In training, every rank of the group must call it, with the same number of channels and in the same grad mode. N,
  /// L, D, H, W may differ, or be 0. It also communicates under no_sync(). In eval mode, or in a group of one rank, it
  /// behaves like torch::nn::BatchNorm and does not communicate.
  ///
  /// Throws std::invalid_argument if the input does not fit or there is only one value per channel over all ranks.
  /// Throws std::runtime_error if ranks disagree or a peer fails. Differentiating its gradients again throws.
  torch::Tensor forward(const torch::Tensor& input);

  /// Returns the batch norm that convert_sync_batchnorm() replaced by this one, or null if this module replaced none.
  const std::shared_ptr<torch::nn::Module>& replaced_module() const { return replaced_; }
  /// For the library: sets replaced_module().
  void set_replaced_module(std::shared_ptr<torch::nn::Module> replaced) { replaced_ = std::move(replaced); }

  /// For this library only: the layer's group and state.
  const std::shared_ptr<detail::SyncLayer>& layer() const { return layer_; }

  /// Prints `ddp::SyncBatchNorm(64, eps=…)`.
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  double average_factor();

  std::shared_ptr<detail::SyncLayer> layer_;
  std::shared_ptr<torch::nn::Module> replaced_;
};

/// Batch normalisation over all ranks, as a module holder like torch::nn::BatchNorm2d. Parameter and buffer names are
/// the same. See SyncBatchNormImpl::forward().
TORCH_MODULE(SyncBatchNorm);

}  // namespace ddp
