#include "amp/model_cast.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <functional>
#include <stdexcept>

#include <ddprun/syncbn/sync_batch_norm.h>

namespace ddp::amp::detail {
namespace {

namespace nn = torch::nn;

void cast(at::Tensor tensor, c10::ScalarType dtype) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == dtype) return;
  at::Tensor gradient = tensor.grad();
  if (gradient.defined()) tensor.mutable_grad().reset();  // set_data() refuses a gradient of another dtype
  tensor.set_data(tensor.detach().to(dtype));
  if (gradient.defined()) tensor.mutable_grad() = gradient.detach().to(dtype);
}

}  // namespace

bool is_batch_norm(const nn::Module& module) {
  if (module.as<nn::BatchNorm1dImpl>() != nullptr || module.as<nn::BatchNorm2dImpl>() != nullptr ||
      module.as<nn::BatchNorm3dImpl>() != nullptr || module.as<SyncBatchNormImpl>() != nullptr) {
    return true;
  }
  if (module.as<nn::InstanceNorm1dImpl>() != nullptr || module.as<nn::InstanceNorm2dImpl>() != nullptr ||
      module.as<nn::InstanceNorm3dImpl>() != nullptr) {
    return false;
  }
  const auto buffers = module.named_buffers(/*recurse=*/false);
  return buffers.contains("running_mean") && buffers.contains("running_var");
}

void require_float(const nn::Module& model, const std::string& rank) {
  const auto check = [&](const char* kind, const auto& items) {
    for (const auto& item : items) {
      const at::Tensor& tensor = item.value();
      if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == at::kFloat) continue;
      throw std::runtime_error(rank + "Found " + kind + " " + item.key() + " with type " + tensor.toString() +
                               ", expected " + tensor.to(at::kFloat).toString() +
                               ".\nWhen using amp.initialize, you do not need to call .half() on your model\nbefore "
                               "passing it, no matter what optimization level you choose.");
    }
  };
  check("param", model.named_parameters());
  check("buffer", model.named_buffers());
}

void cast_model(nn::Module& model, c10::ScalarType dtype, bool keep_batch_norm) {
  const at::NoGradGuard no_grad;
  const auto cast_own = [&](nn::Module& module) {
    if (keep_batch_norm && is_batch_norm(module)) return;
    for (const auto& item : module.named_parameters(/*recurse=*/false)) cast(item.value(), dtype);
    for (const auto& item : module.named_buffers(/*recurse=*/false)) cast(item.value(), dtype);
  };
  cast_own(model);
  for (const auto& module : model.modules(/*include_self=*/false)) cast_own(*module);
}

}  // namespace ddp::amp::detail
