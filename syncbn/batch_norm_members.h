// Internal: finds the batch norms of a model.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>

#include <memory>
#include <string>
#include <vector>

namespace ddp::detail {

/// A torch::nn::BatchNorm1d, 2d or 3d inside a model.
struct BatchNormMember {
  std::string name{};                           ///< the module's path; empty for the model itself
  std::shared_ptr<torch::nn::Module> module{};  ///< null if no shared_ptr holds it
  const torch::nn::BatchNormOptions* options = nullptr;
  const at::Tensor* running_mean = nullptr;
  const at::Tensor* weight = nullptr;

  /// Returns the tensor that identifies the module in ConversionRegistry, or nullptr if it has none.
  const at::Tensor* key() const;
};

/// Returns all batch norms in `model`, which may be one itself, each once.
std::vector<BatchNormMember> batch_norms_of(torch::nn::Module& model);

/// Returns the AnyModule with which a Sequential calls `module`, a BatchNorm1d, 2d or 3d.
torch::nn::AnyModule as_any_module(const std::shared_ptr<torch::nn::Module>& module);

}  // namespace ddp::detail
