// Computes batch norm's running statistics for weights that no training step has used, such as an average of models.
// Reference: torch.optim.swa_utils.update_bn.
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

/// During its lifetime, the model is in training mode, and this thread records no gradients. Its batch norms begin with
/// new running statistics, and compute the mean over batches instead of a moving average. The destructor restores modes
/// and momenta.
class FreshStatistics {
 public:
  explicit FreshStatistics(AnyModuleRef model);
  ~FreshStatistics();
  FreshStatistics(const FreshStatistics&) = delete;
  FreshStatistics& operator=(const FreshStatistics&) = delete;

  /// Whether the model has a batch norm with running statistics.
  bool is_needed() const { return !layers_.empty(); }
  /// Combines the statistics over the batches of all ranks.
  void combine(const GroupHandle& group);

 private:
  struct Layer {
    at::Tensor running_mean{}, running_var{}, num_batches_tracked{};
    std::function<void()> restore{};  ///< restores the layer's momentum
  };

  at::NoGradGuard no_grad_{};
  std::vector<Layer> layers_{};
  std::vector<std::function<void()>> modes_{};  ///< restore the mode of each module; outer modules come first
};

// Returns the samples in an element of a loader: `batch.data` of a batch or of LibTorch's examples, or the element
// itself.
template <typename Batch>
const at::Tensor& samples_of(const Batch& batch) {
  if constexpr (requires { batch.data; }) {
    return batch.data;
  } else {
    return batch;
  }
}

}  // namespace detail

/// Computes new running statistics for every BatchNorm and SyncBatchNorm in `model`, as the plain mean over the batches
/// of `loader`. It runs the forward in training mode. `model` is a holder of a module (a TORCH_MODULE, a shared_ptr, an
/// optim::AveragedModel), not its DistributedDataParallel. A batch is a ddp::Batch, a torch::data::Example<> or a
/// tensor, and is moved to the group's device.
///
///     ddp::update_bn(loader, ema, group);
///
/// Every rank must call it, with its own share of the data. The result is the same on all ranks, and equals that of one
/// process with all ranks' batches. Without SyncBatchNorm, ranks may have different numbers of batches. When it returns
/// or throws, modes and momenta are restored. Does nothing if the model has no running statistics.
template <typename Loader, typename Holder>
void update_bn(Loader&& loader, Holder& model, const GroupHandle& group) {
  detail::FreshStatistics statistics(*model);
  if (!statistics.is_needed()) return;
  for (const auto& batch : loader) model->forward(detail::samples_of(batch).to(group.device()));
  statistics.combine(group);
}

}  // namespace ddp
