// Casts a model to a 16-bit dtype in place, as apex.fp16_utils.convert_network does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

namespace ddp::amp::detail {

/// Whether the module is a torch::nn::BatchNorm1d, 2d or 3d, a ddp::SyncBatchNorm, or another module that has running
/// statistics itself. Instance norms are excluded.
bool is_batch_norm(const torch::nn::Module& module);

/// Throws std::runtime_error, with `rank` followed by apex's text, unless all floating-point parameters and buffers of
/// `model` are float32.
void require_float(const torch::nn::Module& model, const std::string& rank);

/// Casts the floating-point parameters, gradients and buffers of `model` to `dtype` in place. The tensor objects stay
/// the same, because optimizers and converted batch norms refer to them. With `keep_batch_norm`, batch norms are not
/// changed.
void cast_model(torch::nn::Module& model, c10::ScalarType dtype, bool keep_batch_norm);

}  // namespace ddp::amp::detail
