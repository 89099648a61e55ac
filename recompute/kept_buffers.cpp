#include "recompute/kept_buffers.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

namespace ddp::recompute {

KeptBuffers::KeptBuffers(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  const c10::AutoGradMode no_gradients(false);
  for (const auto& module : modules) {
    for (const at::Tensor& buffer : module->buffers()) buffers_.emplace_back(buffer, buffer.clone());
  }
}

KeptBuffers::~KeptBuffers() {
  const at::AutoDispatchBelowADInplaceOrView without_versions;
  for (auto& [buffer, value] : buffers_) buffer.copy_(value);
}

}  // namespace ddp::recompute
