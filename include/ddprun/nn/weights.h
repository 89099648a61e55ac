// Changes a module's weights: converts them to another dtype, or computes them before each forward from the trained
// parameters (weight and spectral normalization). Reference: torch.nn.Module.to, torch.nn.utils.parametrizations.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <type_traits>
#include <utility>

namespace ddp::nn {

/// Converts the floating-point parameters, gradients and buffers of `module` to `dtype`, and does not change other
/// tensors, as Python's module.to(dtype). LibTorch's to() also converts integers, so that the counters of batch norms
/// would have 16 bits. The tensor objects stay the same, so optimizers still refer to them. Throws
/// std::invalid_argument if `dtype` is not a floating-point type.
void to_dtype(torch::nn::Module& module, c10::ScalarType dtype);

/// The same for a module in a holder.
template <typename Contained>
void to_dtype(const torch::nn::ModuleHolder<Contained>& module, c10::ScalarType dtype) {
  to_dtype(*module.ptr(), dtype);
}

/// Settings of weight_norm().
struct WeightNormOptions {
  /// Each slice along this dimension has its own norm; empty: one norm for the whole weight.
  std::optional<int64_t> dim = 0;
};

/// Settings of spectral_norm(), all optional.
struct SpectralNormOptions {
  int64_t n_power_iterations = 1;  ///< iterations of the power method in each forward in training
  double eps = 1e-12;              ///< the smallest norm that is used as a divisor
  std::optional<int64_t> dim{};    ///< the dimension of the outputs; default: 1 for ConvTranspose1d to 3d, otherwise 0
};

namespace detail {

/// A module that computes a weight. Its name, `parametrizations.weight`, is the same as in Python.
class WeightParametrization : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor compute() = 0;
  /// Returns the same parametrization for a copy of the layer, which has the weight `weight`.
  virtual std::shared_ptr<WeightParametrization> copy_for(const at::Tensor& weight) const = 0;
};

std::shared_ptr<WeightParametrization> make_weight_norm(const at::Tensor& weight, const WeightNormOptions& options);
std::shared_ptr<WeightParametrization> make_spectral_norm(const torch::nn::Module& layer, const at::Tensor& weight,
                                                          const SpectralNormOptions& options);

// Restores a layer's own weight.
struct WeightScope {
  at::Tensor& place;
  at::Tensor own;
  ~WeightScope() { place = own; }
};

/// A layer that computes a tensor from a tensor and has a member `weight`.
template <typename Holder>
concept LayerWithWeight = requires(Holder& layer, const at::Tensor& input) {
  { layer->weight } -> std::same_as<at::Tensor&>;
  { layer->forward(input) } -> std::same_as<at::Tensor>;
};

}  // namespace detail

/// The part of Parametrized that does not depend on the layer's class: names and training mode.
class ParametrizedBase : public torch::nn::Module {
 public:
  /// Returns the weight that a forward would use now. In training mode, with spectral_norm(), this also runs the power
  /// iterations.
  at::Tensor weight() { return parametrization_->compute(); }

  /// Sets training or eval mode, also for the layer.
  void train(bool on = true) override;
  /// Prints `ddp::nn::Parametrized(…)` around the layer.
  void pretty_print(std::ostream& stream) const override;

 protected:
  ParametrizedBase(std::shared_ptr<torch::nn::Module> layer,
                   std::shared_ptr<detail::WeightParametrization> parametrization);

  std::shared_ptr<detail::WeightParametrization> copy_parametrization(const at::Tensor& weight) const {
    return parametrization_->copy_for(weight);
  }

 private:
  std::shared_ptr<torch::nn::Module> layer_;
  std::shared_ptr<detail::WeightParametrization> parametrization_;
};

/// The module that a Parametrized holder points to.
template <detail::LayerWithWeight Holder>
class ParametrizedImpl : public ParametrizedBase {
 public:
  /// Called by weight_norm() and spectral_norm().
  ParametrizedImpl(Holder layer, std::shared_ptr<detail::WeightParametrization> parametrization)
      : ParametrizedBase(module_of(layer), std::move(parametrization)), layer_(std::move(layer)) {}

  /// Computes the weight and calls the layer's forward with it.
  at::Tensor forward(const at::Tensor& input) {
    const detail::WeightScope scope{layer_->weight, std::exchange(layer_->weight, weight())};
    return layer_->forward(input);
  }

  /// Returns a copy that shares no memory.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& device = std::nullopt) const override {
    Holder layer(std::dynamic_pointer_cast<Layer>(module_of(layer_)->clone(device)));
    auto parametrization = copy_parametrization(layer->weight);
    auto copy = std::make_shared<ParametrizedImpl>(std::move(layer), std::move(parametrization));
    copy->train(is_training());
    return copy;
  }

 private:
  using Layer = std::remove_cvref_t<decltype(*std::declval<Holder&>())>;

  static std::shared_ptr<torch::nn::Module> module_of(const Holder& layer) {
    if constexpr (requires { layer.ptr(); }) {
      return layer.ptr();
    } else {
      return layer;
    }
  }

  Holder layer_;
};

/// The result of weight_norm() or spectral_norm(). It is used like the layer: with `forward(input)`, in a
/// torch::nn::Sequential, or as a member of a model. The names of parameters and buffers are the same as in Python:
/// those of the layer except `weight`, and `parametrizations.weight.…`.
template <detail::LayerWithWeight Holder>
class Parametrized : public torch::nn::ModuleHolder<ParametrizedImpl<Holder>> {
 public:
  using torch::nn::ModuleHolder<ParametrizedImpl<Holder>>::ModuleHolder;
};

/// Returns `layer` with the weight `g · v / |v|`. `parametrizations.weight.original0` is g, and `original1` is v, which
/// is initially the layer's weight. `layer` is a module holder, or a std::shared_ptr of a module with a member `weight`
/// (Linear, Conv1d to 3d, ConvTranspose1d to 3d, Embedding, or your own). Afterwards, use only the result. Throws
/// c10::Error if the weight has no dimension `dim`. Reference: torch.nn.utils.parametrizations.weight_norm.
template <detail::LayerWithWeight Holder>
Parametrized<Holder> weight_norm(Holder layer, const WeightNormOptions& options = {}) {
  auto parametrization = detail::make_weight_norm(layer->weight, options);
  return Parametrized<Holder>(std::make_shared<ParametrizedImpl<Holder>>(std::move(layer), std::move(parametrization)));
}

/// Returns `layer` (see weight_norm()) with its weight divided by the largest singular value, which the power method
/// approximates. `parametrizations.weight.original` is the layer's weight. The buffers `parametrizations.weight.0._u`
/// and `_v` are the singular vectors, which this function initialises with random values. A one-dimensional weight is
/// divided by its norm. Throws std::invalid_argument for a dimension that the weight does not have and for less than
/// one iteration. Reference: torch.nn.utils.parametrizations.spectral_norm.
template <detail::LayerWithWeight Holder>
Parametrized<Holder> spectral_norm(Holder layer, const SpectralNormOptions& options = {}) {
  auto parametrization = detail::make_spectral_norm(*layer, layer->weight, options);
  return Parametrized<Holder>(std::make_shared<ParametrizedImpl<Holder>>(std::move(layer), std::move(parametrization)));
}

}  // namespace ddp::nn
