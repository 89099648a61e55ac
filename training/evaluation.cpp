#include "ddprun/training/evaluation.h"

#include <torch/nn/module.h>

#include <ddprun/comm/collectives.h>

#include "comm/group/argument_checks.h"

namespace ddp::detail {

EvaluationMode::EvaluationMode(AnyModuleRef model, const GroupHandle& group) {
  std::vector<at::Tensor> buffers;
  for (const auto& item : model.get().named_buffers()) {
    const at::Tensor& buffer = item.value();
    if (!buffer.defined()) continue;
    if (group.size() > 1) check_unpackable(buffer, group, ("evaluation: buffer '" + item.key() + "'").c_str());
    // The alias has its own version counter, so that writing to a buffer does not invalidate an earlier forward that
    // saved it for its backward.
    buffers.push_back(buffer.variable_data());
  }
  if (group.size() > 1 && !buffers.empty()) {
    if (group.rank() != 0) {
      for (const auto& buffer : buffers) buffers_of_this_rank_.emplace_back(buffer, buffer.clone());
    }
    broadcast_coalesced(buffers, 0, group);
  }
  model.get().apply([this](torch::nn::Module& module) { training_.emplace_back(&module, module.is_training()); });
  model.get().eval();
}

EvaluationMode::~EvaluationMode() {
  // train() also changes the mode of submodules. Each submodule's own mode is restored later in the loop.
  for (const auto& [module, was_training] : training_) module->train(was_training);
  for (auto& [buffer, content] : buffers_of_this_rank_) {
    try {
      buffer.copy_(content);
    } catch (...) {
      // A destructor must not throw. If the device has failed, its next operation reports the error.
    }
  }
}

}  // namespace ddp::detail
