#include "ddprun/nn/weights.h"

#include <ATen/ops/_weight_norm.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/norm_except_dim.h>
#include <ATen/ops/vdot.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/conv.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/rank_prefix.h"

namespace ddp::nn {
namespace {

using detail::WeightParametrization;

// Returns a copy of `tensor` on the device of `like`.
at::Tensor copied(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.detach().to(like.device(), tensor.scalar_type(), false, /*copy=*/true);
}

class WeightNorm : public WeightParametrization {
 public:
  WeightNorm(const at::Tensor& magnitude, const at::Tensor& direction, int64_t dim)
      : WeightParametrization("ddp::nn::WeightNorm"),
        magnitude_(register_parameter("original0", magnitude, direction.requires_grad())),
        direction_(register_parameter("original1", direction, direction.requires_grad())),
        dim_(dim) {}

  at::Tensor compute() override { return at::_weight_norm(direction_, magnitude_, dim_); }

  std::shared_ptr<WeightParametrization> copy_for(const at::Tensor& weight) const override {
    return std::make_shared<WeightNorm>(copied(magnitude_, weight), weight, dim_);
  }

 private:
  at::Tensor magnitude_, direction_;
  int64_t dim_;
};

// Python's F.normalize() over dimension 0. The result is written into `out` if it is defined.
at::Tensor normalized(const at::Tensor& vector, double eps, at::Tensor out = {}) {
  const auto norm = at::linalg_vector_norm(vector, 2, at::IntArrayRef{0}, /*keepdim=*/true).clamp_min(eps);
  const auto divisor = norm.expand_as(vector);
  return out.defined() ? at::div_out(out, vector, divisor) : vector / divisor;
}

struct PowerMethod {
  int64_t iterations;
  double eps;
  int64_t dim;
};

// The approximate singular vectors. The module is registered under the name `0`, as in Python.
class SingularVectors : public torch::nn::Module {
 public:
  SingularVectors(const at::Tensor& left, const at::Tensor& right)
      : Module("ddp::nn::SingularVectors"), left_(register_buffer("_u", left)), right_(register_buffer("_v", right)) {}

  // Changes the vectors in place, so that models that share the buffers also get the new values.
  void improve(const at::Tensor& matrix, int64_t iterations, double eps) {
    const at::NoGradGuard no_grad;
    for (int64_t i = 0; i < iterations; ++i) {
      normalized(at::mv(matrix, right_), eps, left_);
      normalized(at::mv(matrix.adjoint(), left_), eps, right_);
    }
  }

  // The vectors are copied, because the backward needs the vectors of this forward even if another forward runs before
  // it.
  at::Tensor singular_value(const at::Tensor& matrix) const {
    const auto left = left_.clone(at::MemoryFormat::Contiguous), right = right_.clone(at::MemoryFormat::Contiguous);
    return at::vdot(left, at::mv(matrix, right));
  }

  std::shared_ptr<SingularVectors> copy_for(const at::Tensor& weight) const {
    return std::make_shared<SingularVectors>(copied(left_, weight), copied(right_, weight));
  }

 private:
  at::Tensor left_, right_;
};

// Returns the weight as a matrix with one row per output; the other dimensions are flattened.
at::Tensor as_matrix(const at::Tensor& weight, int64_t dim) {
  if (dim == 0) return weight.flatten(1);
  std::vector<int64_t> order = {dim};
  for (int64_t each = 0; each < weight.dim(); ++each) {
    if (each != dim) order.push_back(each);
  }
  return weight.permute(order).flatten(1);
}

class SpectralNorm : public WeightParametrization {
 public:
  // `vectors` is null for a weight of one dimension.
  SpectralNorm(const at::Tensor& weight, std::shared_ptr<SingularVectors> vectors, const PowerMethod& method)
      : WeightParametrization("ddp::nn::SpectralNorm"),
        original_(register_parameter("original", weight, weight.requires_grad())),
        vectors_(std::move(vectors)),
        method_(method) {
    if (vectors_) register_module("0", vectors_);
  }

  at::Tensor compute() override {
    if (!vectors_) return normalized(original_, method_.eps);
    const auto matrix = as_matrix(original_, method_.dim);
    if (is_training()) vectors_->improve(matrix, method_.iterations, method_.eps);
    return original_ / vectors_->singular_value(matrix);
  }

  std::shared_ptr<WeightParametrization> copy_for(const at::Tensor& weight) const override {
    return std::make_shared<SpectralNorm>(weight, vectors_ ? vectors_->copy_for(weight) : nullptr, method_);
  }

 private:
  at::Tensor original_;
  std::shared_ptr<SingularVectors> vectors_;
  PowerMethod method_;
};

std::shared_ptr<SingularVectors> drawn_vectors(const at::Tensor& weight, const PowerMethod& method) {
  const at::NoGradGuard no_grad;
  const auto matrix = as_matrix(weight.detach(), method.dim);
  const auto left = at::empty({matrix.size(0)}, matrix.options()).normal_(0, 1);
  const auto right = at::empty({matrix.size(1)}, matrix.options()).normal_(0, 1);
  auto vectors = std::make_shared<SingularVectors>(normalized(left, method.eps), normalized(right, method.eps));
  vectors->improve(matrix, 15, method.eps);  // as many iterations as in Python, for equal bits
  return vectors;
}

bool is_transposed_convolution(const torch::nn::Module& layer) {
  return layer.as<torch::nn::ConvTranspose1dImpl>() != nullptr ||
         layer.as<torch::nn::ConvTranspose2dImpl>() != nullptr || layer.as<torch::nn::ConvTranspose3dImpl>() != nullptr;
}

}  // namespace

std::shared_ptr<WeightParametrization> detail::make_weight_norm(const at::Tensor& weight,
                                                                const WeightNormOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t dim = options.dim.value_or(-1);
  return std::make_shared<WeightNorm>(at::norm_except_dim(weight.detach(), 2, dim), weight, dim);
}

std::shared_ptr<WeightParametrization> detail::make_spectral_norm(const torch::nn::Module& layer,
                                                                  const at::Tensor& weight,
                                                                  const SpectralNormOptions& options) {
  const int64_t dims = weight.dim();
  const int64_t dim = options.dim.value_or(is_transposed_convolution(layer) ? 1 : 0);
  if (dim >= dims || dim < -dims) {
    throw std::invalid_argument(rank_prefix() + "spectral_norm: Dimension out of range (expected to be in range of [" +
                                std::to_string(-dims) + ", " + std::to_string(dims - 1) + "] but got " +
                                std::to_string(dim) + ")");
  }
  if (options.n_power_iterations <= 0) {
    throw std::invalid_argument(rank_prefix() +
                                "spectral_norm: Expected n_power_iterations to be positive, but got "
                                "n_power_iterations=" +
                                std::to_string(options.n_power_iterations));
  }
  const PowerMethod method{options.n_power_iterations, options.eps, dim < 0 ? dim + dims : dim};
  auto made = std::make_shared<SpectralNorm>(weight, dims > 1 ? drawn_vectors(weight, method) : nullptr, method);
  made->train(layer.is_training());
  const at::NoGradGuard no_grad;
  // Python also computes the weight once here, to check the parametrization's result. In training mode, this is one
  // more iteration.
  made->compute();
  return made;
}

ParametrizedBase::ParametrizedBase(std::shared_ptr<torch::nn::Module> layer,
                                   std::shared_ptr<WeightParametrization> parametrization)
    : Module("ddp::nn::Parametrized"), layer_(std::move(layer)), parametrization_(std::move(parametrization)) {
  for (const auto& each : layer_->named_parameters(/*recurse=*/false)) {
    if (each.key() != "weight") register_parameter(each.key(), each.value(), each.value().requires_grad());
  }
  for (const auto& each : layer_->named_buffers(/*recurse=*/false)) register_buffer(each.key(), each.value());
  for (const auto& each : layer_->named_children()) register_module(each.key(), each.value());
  const auto list = register_module("parametrizations", std::make_shared<torch::nn::Module>("ModuleDict"));
  list->register_module("weight", parametrization_);
  ParametrizedBase::train(layer_->is_training());
}

void ParametrizedBase::train(bool on) {
  Module::train(on);
  layer_->train(on);
}

void ParametrizedBase::pretty_print(std::ostream& stream) const {
  stream << "ddp::nn::Parametrized(";
  layer_->pretty_print(stream);
  stream << ")";
}

}  // namespace ddp::nn
