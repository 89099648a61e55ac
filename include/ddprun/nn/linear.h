// A torch::nn::Linear whose results have the same bits as Python's. LibTorch's class multiplies by a transposed weight
// and adds the bias afterwards, which rounds differently for inputs that are not matrices, and under autocast.
// Reference: torch.nn.Linear.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/options/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <ostream>

namespace ddp::nn {

using torch::nn::LinearOptions;

/// The module that a Linear holder points to.
class LinearImpl : public torch::nn::Cloneable<LinearImpl> {
 public:
  /// A layer from `in_features` to `out_features` numbers, with a bias.
  LinearImpl(int64_t in_features, int64_t out_features);
  /// The same with all options.
  explicit LinearImpl(const LinearOptions& options);

  /// Returns `input` times the transposed weight, plus the bias, with at::linear() as in Python. `input` is (...,
  /// in_features) and has the weight's dtype and device. The result is (..., out_features). Throws c10::Error if the
  /// shapes do not match.
  at::Tensor forward(const at::Tensor& input);

  /// Registers the parameters and draws their initial values, which are the same as in Python with the same seed.
  void reset() override;
  /// Draws new values for weight and bias.
  void reset_parameters();
  /// Prints `ddp::nn::Linear(in_features=…, out_features=…, bias=…)`.
  void pretty_print(std::ostream& stream) const override;

  LinearOptions options;  ///< the options that were passed
  at::Tensor weight;      ///< (out_features, in_features)
  at::Tensor bias;        ///< (out_features), or undefined
};

/// A linear layer, used as torch::nn::Linear, with the same parameter names and initial values.
TORCH_MODULE(Linear);

}  // namespace ddp::nn
