// A training step in each of the ways in which several devices are used, side by side.
#pragma once

#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>

#include <ddprun/ddp.h>

#include "examples/models/image_classifier.h"

struct ParallelStep {
  std::function<torch::Tensor(const torch::Tensor& images)> forward;
  std::function<void(const torch::Tensor& loss)> update;  ///< backward, all ranks' gradients, the optimizer's step
};

/// `parallel` is none, dp, ddp, horovod or apex. `net`, `optimizer` and `group` must outlive the step; `amp` is
/// amp::initialize()'s for them, and `replicas` says how dp makes its copies, on the CPU how many.
inline ParallelStep make_parallel_step(const std::string& parallel, const std::shared_ptr<models::ImageClassifier>& net,
                                       torch::optim::SGD& optimizer, const ddp::amp::Amp& amp,
                                       const ddp::GroupHandle& group, ddp::DataParallelOptions replicas) {
  const auto update = [amp, &optimizer](const torch::Tensor& loss) {
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
  };
  auto mixed = amp.model(net);
  const auto forward = [mixed](const torch::Tensor& images) mutable { return mixed(images); };
  if (parallel == "none") return {forward, update};

  if (parallel == "dp") {  // one process: a copy of the net on each device
    if (!group.device().is_cpu()) replicas.replicas = 0;
    ddp::DataParallel model(net, replicas);
    const auto forward_on_all = [model, amp](const torch::Tensor& images) mutable {
      const auto autocast = amp.autocast();
      return model(images);
    };
    return {forward_on_all, update};
  }

  if (parallel == "horovod") {  // the optimizer reduces the gradients
    ddp::horovod::broadcast_parameters(*net, 0, group);
    ddp::horovod::broadcast_optimizer_state(optimizer, 0, group);
    const ddp::horovod::DistributedOptimizerOptions options{.named_parameters = net->named_parameters().pairs()};
    const auto reducing = std::make_shared<ddp::horovod::DistributedOptimizer>(optimizer, group, options);
    const auto update_all = [amp, reducing, &optimizer](const torch::Tensor& loss) {
      {
        const auto scaled = amp.scale_loss(loss, optimizer);
        scaled.backward();
        reducing->synchronize();  // before this scope divides the gradients by the loss scale
      }
      amp.step(optimizer);
    };
    return {forward, update_all};
  }

  // The model reduces them; apex's defaults are buckets of 10 million elements.
  const auto options = parallel == "apex" ? ddp::apex_options({}, group) : ddp::DdpOptions();
  ddp::DistributedDataParallel model(mixed, group, options);
  return {[model](const torch::Tensor& images) mutable { return model(images); }, update};
}
