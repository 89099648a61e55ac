// Turns the batch norms of a model into synchronised ones, without touching the model's code. Reference:
// torch.nn.SyncBatchNorm.convert_sync_batchnorm, which replaces children instead; C++ models hold theirs in typed
// members.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>
#include <utility>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Makes every torch::nn::BatchNorm1d, 2d and 3d of `model`, however deep, normalise over the batches of all ranks of
/// `group` in training, as ddp::SyncBatchNorm does. Returns how many there are. The modules stay what they are:
/// members, parameters, buffers, names, training flags and devices are untouched, and other models behave and cost as
/// before.
///
///     Net net;
///     net->to(group.device());
///     ddp::convert_sync_batchnorm(net, group);
///     ddp::DistributedDataParallel<Net> model(net, group);
///
/// Every rank must call it, with the same model, before DistributedDataParallel wraps it; it communicates nothing
/// itself. It ends with the model. A clone of a converted model, or one that was loaded into a new object, is not
/// converted: convert it too. Converting again replaces the group. All forwards in training are collective from then
/// on; under c10::InferenceMode they are not synchronised.
///
/// A layer without running statistics and without weights leaves nothing to recognise it by; as a direct child of a
/// torch::nn::Sequential it is replaced by a ddp::SyncBatchNorm, elsewhere it is refused. A converted layer still
/// refuses one value per channel on a rank, as LibTorch checks that before; ddp::SyncBatchNorm takes it.
///
/// Throws std::invalid_argument naming the layer, and converts nothing, when a layer cannot be converted, and
/// std::logic_error when the model is wrapped in DistributedDataParallel already.
size_t convert_sync_batchnorm(torch::nn::Module& model, const GroupHandle& group);

/// Makes `model`'s batch norms plain ones again. Returns how many were converted. Not a collective.
size_t revert_sync_batchnorm(torch::nn::Module& model);

/// The same for a module in a holder.
template <typename Contained>
size_t convert_sync_batchnorm(const torch::nn::ModuleHolder<Contained>& model, const GroupHandle& group) {
  return convert_sync_batchnorm(*model.ptr(), group);
}
/// The same for a shared module.
template <typename Contained>
size_t convert_sync_batchnorm(const std::shared_ptr<Contained>& model, const GroupHandle& group) {
  return convert_sync_batchnorm(*model, group);
}
/// The same for a module in a holder.
template <typename Contained>
size_t revert_sync_batchnorm(const torch::nn::ModuleHolder<Contained>& model) {
  return revert_sync_batchnorm(*model.ptr());
}
/// The same for a shared module.
template <typename Contained>
size_t revert_sync_batchnorm(const std::shared_ptr<Contained>& model) {
  return revert_sync_batchnorm(*model);
}

/// apex's name for convert_sync_batchnorm().
template <typename Model>
size_t convert_syncbn_model(Model&& model, const GroupHandle& group) {
  return convert_sync_batchnorm(std::forward<Model>(model), group);
}

}  // namespace ddp
