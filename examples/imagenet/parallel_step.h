// A training step in each of the ways in which several devices are used, side by side.
#pragma once

#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <ddprun/ddp.h>

#include "examples/models/image_classifier.h"

struct ParallelStep {
  std::function<torch::Tensor(const torch::Tensor& images)> forward;
  std::function<void(const torch::Tensor& loss)> update;  ///< backward, all ranks' gradients, the optimizer's step
  std::map<std::string, ddp::Stateful> shared = {};       ///< for checkpoints; as long as the step lives
};

using HorovodOptimizer = std::shared_ptr<ddp::horovod::DistributedOptimizer>;

/// What reduces the gradients with horovod, null otherwise. Made before amp::initialize(), as Horovod's users do:
/// after that an optimizer of level O2 has float masters, and the gradients to reduce are those of the net's
/// parameters.
inline HorovodOptimizer make_horovod_optimizer(const std::string& parallel, models::ImageClassifier& net,
                                               torch::optim::SGD& optimizer, const ddp::GroupHandle& group) {
  if (parallel != "horovod") return nullptr;
  ddp::horovod::broadcast_parameters(net, 0, group);
  ddp::horovod::broadcast_optimizer_state(optimizer, 0, group);
  return std::make_shared<ddp::horovod::DistributedOptimizer>(
      optimizer, group, ddp::horovod::DistributedOptimizerOptions{.named_parameters = net.named_parameters().pairs()});
}

/// `parallel` is none, dp, ddp, horovod or apex. `net`, `optimizer` and `group` must outlive the step; `amp` is
/// amp::initialize()'s for them, `horovod` make_horovod_optimizer()'s, and `replicas` says how dp makes its copies, on
/// the CPU how many.
inline ParallelStep make_parallel_step(const std::string& parallel, const std::shared_ptr<models::ImageClassifier>& net,
                                       torch::optim::SGD& optimizer, const ddp::amp::Amp& amp,
                                       const HorovodOptimizer& horovod, const ddp::GroupHandle& group,
                                       ddp::DataParallelOptions replicas) {
  const auto update = [amp, &optimizer](const torch::Tensor& loss) {
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
  };
  auto mixed = amp.model(net);
  const auto forward = [mixed](const torch::Tensor& images) mutable { return mixed(images); };
  if (parallel == "none") return {forward, update};

  if (parallel == "dp") {  // one process: a copy of the net on each device
    if (amp.properties().cast_model_type) {
      throw std::invalid_argument("--parallel dp supports --opt-level O1 only, as apex's DataParallel does");
    }
    if (!group.device().is_cpu()) replicas.replicas = 0;
    ddp::DataParallel model(net, replicas);
    const auto forward_on_all = [model, amp](const torch::Tensor& images) mutable {
      const auto autocast = amp.autocast();
      return model(images);
    };
    return {forward_on_all, update};
  }

  if (parallel == "horovod") {  // the optimizer reduces the gradients
    const auto update_all = [amp, horovod, &optimizer](const torch::Tensor& loss) {
      {
        const auto scaled = amp.scale_loss(loss, optimizer);
        scaled.backward();
        horovod->synchronize();  // before this scope divides the gradients by the loss scale
      }
      amp.step(optimizer);
    };
    return {forward, update_all};
  }

  // The model reduces them; apex's defaults are buckets of 10 million elements.
  const auto options = parallel == "apex" ? ddp::apex_options({}, group) : ddp::DdpOptions();
  ddp::DistributedDataParallel model(mixed, group, options);
  return {[model](const torch::Tensor& images) mutable { return model(images); },
          update,
          {{"buckets", model->bucket_layout()}}};
}
