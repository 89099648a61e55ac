// Casting a model to 16 bits in place, as apex.fp16_utils.convert_network does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

namespace ddp::amp::detail {

/// torch::nn::BatchNorm1d, 2d and 3d, ddp::SyncBatchNorm, and other modules with running statistics of their own except
/// instance norms.
bool is_batch_norm(const torch::nn::Module& module);

/// Throws std::runtime_error, with apex's text after `rank`, unless all floating-point parameters and buffers of
/// `model` are float32.
void require_float(const torch::nn::Module& model, const std::string& rank);

/// Casts the floating-point parameters, gradients and buffers of `model` to `dtype`, in place: the tensors stay who
/// they are, for optimizers and for converted batch norms. `keep_batch_norm` leaves those of batch norms alone.
void cast_model(torch::nn::Module& model, c10::ScalarType dtype, bool keep_batch_norm);

}  // namespace ddp::amp::detail
