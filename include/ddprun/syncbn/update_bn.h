// Batch norm's running statistics for weights that no training step has seen: an average of models, weights that were
// changed by hand. Reference: torch.optim.swa_utils.update_bn.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <utility>
#include <vector>

#include <ddprun/comm/any_module_ref.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

namespace detail {

/// While it lives: the model is in training mode, its batch norms have fresh running statistics and take the mean over
/// batches instead of a moving one, and no gradients are recorded by this thread. After that modes and momenta are as
/// before.
class FreshStatistics {
 public:
  explicit FreshStatistics(AnyModuleRef model);
  ~FreshStatistics();
  FreshStatistics(const FreshStatistics&) = delete;
  FreshStatistics& operator=(const FreshStatistics&) = delete;

  /// Whether the model has a batch norm with running statistics.
  bool is_needed() const { return !layers_.empty(); }
  /// Makes the statistics those over the batches of all ranks.
  void combine(const GroupHandle& group);

 private:
  struct Layer {
    at::Tensor running_mean{}, running_var{}, num_batches_tracked{};
    std::function<void()> restore{};  ///< its momentum
  };

  at::NoGradGuard no_grad_{};
  std::vector<Layer> layers_{};
  std::vector<std::function<void()>> modes_{};  ///< every module's, outer ones first
};

// What a loader gives: a batch with the samples in it, LibTorch's examples as well, or the samples themselves.
template <typename Batch>
const at::Tensor& samples_of(const Batch& batch) {
  if constexpr (requires { batch.data; }) {
    return batch.data;
  } else {
    return batch;
  }
}

}  // namespace detail

/// Computes new running statistics for every BatchNorm and SyncBatchNorm in `model`, as the plain mean over the
/// batches of `loader`, by forwards in training mode. `model` is a holder of a module (a TORCH_MODULE, a shared_ptr, an
/// optim::AveragedModel), not its DistributedDataParallel. A batch is a ddp::Batch, a torch::data::Example<> or a
/// tensor, and is moved to the group's device.
///
///     ddp::update_bn(loader, ema, group);
///
/// Every rank must call it, with its own share of the data: the result is the same on all ranks, and that of one
/// process that has gone over all the ranks' batches. Without SyncBatchNorm ranks may have different numbers of
/// batches. Modes and momenta are as before when it returns, also by an exception. Does nothing where there are no
/// running statistics.
template <typename Loader, typename Holder>
void update_bn(Loader&& loader, Holder& model, const GroupHandle& group) {
  detail::FreshStatistics statistics(*model);
  if (!statistics.is_needed()) return;
  for (const auto& batch : loader) model->forward(detail::samples_of(batch).to(group.device()));
  statistics.combine(group);
}

}  // namespace ddp
