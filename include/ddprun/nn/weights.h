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

/// Converts the floating-point parameters, gradients and buffers of `module` to `dtype`, and does not change others:
/// Python's module.to(dtype). LibTorch's to() also converts integers, so the counters of batch norms would have 16
/// bits. Tensors stay the same objects, so optimizers keep them. Throws std::invalid_argument when `dtype` is not a
/// floating-point type.
void to_dtype(torch::nn::Module& module, c10::ScalarType dtype);

/// The same for a module in a holder.
template <typename Contained>
void to_dtype(const torch::nn::ModuleHolder<Contained>& module, c10::ScalarType dtype) {
  to_dtype(*module.ptr(), dtype);
}

/// Settings of weight_norm().
struct WeightNormOptions {
  std::optional<int64_t> dim = 0;  ///< the dimension whose slices have norms of their own; empty: one norm for all
};

/// Settings of spectral_norm(), all optional.
struct SpectralNormOptions {
  int64_t n_power_iterations = 1;  ///< of the power method, in each forward of training
  double eps = 1e-12;              ///< the least norm to divide by
  std::optional<int64_t> dim{};    ///< the dimension of outputs; default: 0, and 1 for ConvTranspose1d to 3d
};

namespace detail {

/// A module that computes a weight; its name is Python's, `parametrizations.weight`.
class WeightParametrization : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor compute() = 0;
  /// The same for a copy of the layer whose weight is `weight`.
  virtual std::shared_ptr<WeightParametrization> copy_for(const at::Tensor& weight) const = 0;
};

std::shared_ptr<WeightParametrization> make_weight_norm(const at::Tensor& weight, const WeightNormOptions& options);
std::shared_ptr<WeightParametrization> make_spectral_norm(const torch::nn::Module& layer, const at::Tensor& weight,
                                                          const SpectralNormOptions& options);

// Puts a layer's own weight back.
struct WeightScope {
  at::Tensor& place;
  at::Tensor own;
  ~WeightScope() { place = own; }
};

/// A layer that computes one tensor from another, and has a member `weight`.
template <typename Holder>
concept LayerWithWeight = requires(Holder& layer, const at::Tensor& input) {
  { layer->weight } -> std::same_as<at::Tensor&>;
  { layer->forward(input) } -> std::same_as<at::Tensor>;
};

}  // namespace detail

/// The common part of all layers: names and training mode.
class ParametrizedBase : public torch::nn::Module {
 public:
  /// The weight that a forward would use now. In training mode that of spectral_norm() performs its power iterations.
  at::Tensor weight() { return parametrization_->compute(); }

  /// Training or eval mode, of the layer too.
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
  /// As weight_norm() and spectral_norm() call it.
  ParametrizedImpl(Holder layer, std::shared_ptr<detail::WeightParametrization> parametrization)
      : ParametrizedBase(module_of(layer), std::move(parametrization)), layer_(std::move(layer)) {}

  /// Computes the weight and calls the layer's forward with it.
  at::Tensor forward(const at::Tensor& input) {
    const detail::WeightScope scope{layer_->weight, std::exchange(layer_->weight, weight())};
    return layer_->forward(input);
  }

  /// A copy with memory of its own.
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

/// A layer that weight_norm() or spectral_norm() made, used as the layer: `forward(input)`, in torch::nn::Sequential,
/// in a model's members. Names of parameters and buffers are Python's: the layer's own but for `weight`, and
/// `parametrizations.weight.…`.
template <detail::LayerWithWeight Holder>
class Parametrized : public torch::nn::ModuleHolder<ParametrizedImpl<Holder>> {
 public:
  using torch::nn::ModuleHolder<ParametrizedImpl<Holder>>::ModuleHolder;
};

/// `layer` with the weight `g · v / |v|`: `parametrizations.weight.original0` is g and `original1` v, which is the
/// layer's weight as it was. `layer` is a module holder or a std::shared_ptr of a module with a member `weight`
/// (Linear, Conv1d to 3d, ConvTranspose1d to 3d, Embedding, your own); afterwards only the result may use it. Throws
/// c10::Error where the weight has no dimension `dim`. Reference: torch.nn.utils.parametrizations.weight_norm.
template <detail::LayerWithWeight Holder>
Parametrized<Holder> weight_norm(Holder layer, const WeightNormOptions& options = {}) {
  auto parametrization = detail::make_weight_norm(layer->weight, options);
  return Parametrized<Holder>(std::make_shared<ParametrizedImpl<Holder>>(std::move(layer), std::move(parametrization)));
}

/// `layer` (as of weight_norm()) with its weight divided by the largest singular value, which the power method
/// approximates: `parametrizations.weight.original` is the layer's weight, the buffers `parametrizations.weight.0._u`
/// and
/// `_v` are the vectors, drawn here. A weight of one dimension is divided by its norm. Throws std::invalid_argument for
/// a dimension that the weight does not have and for less than one iteration. Reference:
/// torch.nn.utils.parametrizations.spectral_norm.
template <detail::LayerWithWeight Holder>
Parametrized<Holder> spectral_norm(Holder layer, const SpectralNormOptions& options = {}) {
  auto parametrization = detail::make_spectral_norm(*layer, layer->weight, options);
  return Parametrized<Holder>(std::make_shared<ParametrizedImpl<Holder>>(std::move(layer), std::move(parametrization)));
}

}  // namespace ddp::nn
