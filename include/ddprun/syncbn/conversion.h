// Converts the batch norms of a model to synchronised ones, without a change of the model's code. Reference:
// torch.nn.SyncBatchNorm.convert_sync_batchnorm. That function replaces the child modules, which is not possible in
// C++, where models hold them in typed members.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>
#include <utility>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Makes every torch::nn::BatchNorm1d, 2d and 3d of `model`, at any depth, normalise over the batches of all ranks of
/// `group` in training, as ddp::SyncBatchNorm does. Returns the number of these layers. The modules are not replaced:
/// members, parameters, buffers, names, training flags and devices are unchanged. The behaviour and cost of other
/// models do not change.
///
///     Net net;
///     net->to(group.device());
///     ddp::convert_sync_batchnorm(net, group);
///     ddp::DistributedDataParallel<Net> model(net, group);
///
/// Every rank must call it, with the same model, before DistributedDataParallel wraps it; it does not communicate
/// itself. The conversion lasts as long as the model exists. A clone of a converted model, or one that was loaded into
/// a new object, is not converted: convert it too. Converting again replaces the group. All forwards in training are
/// collective from then on; under c10::InferenceMode they are not synchronised.
///
/// A layer without running statistics and without weights has no tensor that identifies it. If it is a direct child of
/// a torch::nn::Sequential, it is replaced by a ddp::SyncBatchNorm; otherwise it cannot be converted. A converted layer
/// still throws for an input with one value per channel on a rank, because LibTorch checks that first;
/// ddp::SyncBatchNorm accepts it.
///
/// Throws std::invalid_argument, naming the layer, and converts nothing, if a layer cannot be converted. Throws
/// std::logic_error if the model is already wrapped in DistributedDataParallel.
size_t convert_sync_batchnorm(torch::nn::Module& model, const GroupHandle& group);

/// Turns the converted batch norms of `model` back into ordinary ones, and returns their number. Not a collective.
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
