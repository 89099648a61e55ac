#include "ddprun/syncbn/update_bn.h"

#include <ATen/TensorOperators.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <optional>

#include <ddprun/comm/collectives.h>
#include <ddprun/syncbn/sync_batch_norm.h>

namespace ddp::detail {

FreshStatistics::FreshStatistics(AnyModuleRef model) {
  const auto add_as = [this]<typename Impl>(torch::nn::Module& module, Impl* /*type*/) {
    auto* norm = module.as<Impl>();
    if (norm == nullptr || !norm->running_mean.defined()) return;
    norm->reset_running_stats();
    const std::optional<double> momentum = norm->options.momentum();
    layers_.push_back({.running_mean = norm->running_mean,
                       .running_var = norm->running_var,
                       .num_batches_tracked = norm->num_batches_tracked,
                       .restore = [norm, momentum] { norm->options.momentum(momentum); }});
    norm->options.momentum(std::nullopt);
  };
  model.get().apply([&](torch::nn::Module& module) {
    add_as(module, static_cast<torch::nn::BatchNorm1dImpl*>(nullptr));
    add_as(module, static_cast<torch::nn::BatchNorm2dImpl*>(nullptr));
    add_as(module, static_cast<torch::nn::BatchNorm3dImpl*>(nullptr));
    add_as(module, static_cast<SyncBatchNormImpl*>(nullptr));
    modes_.push_back([&module, was_training = module.is_training()] { module.train(was_training); });
  });
  if (is_needed()) model.get().train();
}

FreshStatistics::~FreshStatistics() {
  // The order is reversed because the model may contain a layer twice; its first record has the original momentum.
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) layer->restore();
  // train() also changes the mode of submodules. Each submodule's own mode is restored later in the loop.
  for (const auto& restore : modes_) restore();
}

void FreshStatistics::combine(const GroupHandle& group) {
  if (group.size() == 1) return;
  // A rank's mean is weighted by its number of batches. The sums are float64, so that they stay precise over many
  // batches.
  std::vector<at::Tensor> sums;
  for (const auto& layer : layers_) {
    const auto count = layer.num_batches_tracked.to(at::kDouble).reshape({1});
    sums.push_back(count);
    sums.push_back(layer.running_mean.to(at::kDouble) * count);
    sums.push_back(layer.running_var.to(at::kDouble) * count);
  }
  all_reduce_coalesced(sums, group);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& count = sums[3 * i];
    layers_[i].num_batches_tracked.copy_(count[0]);
    if (count.item<double>() == 0) continue;  // no rank had a batch: the statistics stay reset
    layers_[i].running_mean.copy_(sums[3 * i + 1] / count);
    layers_[i].running_var.copy_(sums[3 * i + 2] / count);
  }
}

}  // namespace ddp::detail
