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
  std::string name{};                           ///< its path, empty for the model itself
  std::shared_ptr<torch::nn::Module> module{};  ///< null when it is not held by a shared_ptr
  const torch::nn::BatchNormOptions* options = nullptr;
  const at::Tensor* running_mean = nullptr;
  const at::Tensor* weight = nullptr;

  /// The tensor that identifies it; nullptr when it has none.
  const at::Tensor* key() const;
};

/// All of `model`, itself included, each once.
std::vector<BatchNormMember> batch_norms_of(torch::nn::Module& model);

/// How a Sequential calls `module`, a BatchNorm1d, 2d or 3d.
torch::nn::AnyModule as_any_module(const std::shared_ptr<torch::nn::Module>& module);

}  // namespace ddp::detail
