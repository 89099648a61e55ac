#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <sstream>
#include <stdexcept>

#include <ddprun/detail/comm/shard_group.h>

#include "base/rank_prefix.h"
#include "optim/own_optimizer.h"

namespace ddp::optim {

void MuonOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Learning rate should be >= 0 but is", lr_);
  require_value(momentum_ >= 0, "momentum should be >= 0 but is", momentum_);
  require_value(weight_decay_ >= 0, "weight decay should be >= 0 but is", weight_decay_);
  require_value(true, "eps should be finite but is", eps_);
  for (const double each :
       {std::get<0>(ns_coefficients_), std::get<1>(ns_coefficients_), std::get<2>(ns_coefficients_)}) {
    require_value(true, "ns_coefficients should be finite but has", each);
  }
  require_value(ns_steps_ >= 0 && ns_steps_ < 100, "ns_steps should be from 0 to 99 but is",
                static_cast<double>(ns_steps_));
  const std::string adjustment = adjust_lr_fn_.value_or("original");
  if (adjustment != "original" && adjustment != "match_rms_adamw" && adjustment != "spectral_unclamped") {
    throw std::invalid_argument(rank_prefix() + "Adjust learning rate function " + adjustment +
                                " is not supported: expected original, match_rms_adamw or spectral_unclamped");
  }
}

template <>
struct Rule<MuonOptions> : ElementwiseRule<MuonOptions> {
  static constexpr bool kIsElementwise = false;

  static std::vector<StateField> fields() { return {{.name = "momentum_buffer"}}; }

  // The state has the gradient's memory layout, as in Python, because the bits of matrix products depend on it.
  static at::Tensor first_value(const MuonOptions&, const at::Tensor& parameter, size_t) {
    return at::zeros_like(parameter.grad());
  }

  static void check_parameter(const at::Tensor& parameter) {
    refuse_shards({parameter}, "Muon", "Use an optimizer that works element by element, such as AdamW.");
    if (parameter.dim() == 2) return;
    std::ostringstream text;
    text << rank_prefix()
         << "Muon only supports 2D parameters whereas we found a parameter with size: " << parameter.sizes()
         << "; give vectors, convolutions and embeddings to another optimizer, such as AdamW";
    throw std::invalid_argument(text.str());
  }

  // Buffers for matrices of one shape. The iterations for all parameters of that shape use them, one after another.
  struct Workspace {
    at::Tensor gram{}, polynomial{};
    std::array<at::Tensor, 2> results{};

    void allocate_for(const at::Tensor& matrix) {
      if (results[0].defined() && results[0].sizes() == matrix.sizes()) return;
      const auto options = matrix.options().dtype(at::kBFloat16);
      for (auto* each : {&gram, &polynomial}) *each = at::empty({matrix.size(0), matrix.size(0)}, options);
      for (auto& each : results) each = at::empty(matrix.sizes(), options);
    }
  };

  // Approximates the nearest matrix that has all singular values near 1, by Newton–Schulz iterations in bfloat16.
  static at::Tensor orthogonalized(const at::Tensor& matrix, const MuonOptions& options, Workspace& space) {
    const auto [a, b, c] = options.ns_coefficients();
    const bool is_tall = matrix.size(0) > matrix.size(1);
    at::Tensor result = matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
    if (is_tall) result = result.t();
    result.div_(at::linalg_vector_norm(result, 2).clamp_min(options.eps()));
    space.allocate_for(result);
    for (int64_t i = 0; i < options.ns_steps(); ++i) {
      at::mm_out(space.gram, result, result.t());
      at::addmm_out(space.polynomial, space.gram, space.gram, space.gram, b, c);
      at::Tensor& next = space.results[static_cast<size_t>(i % 2)];
      result = at::addmm_out(next, result, space.polynomial, result, a);
    }
    return is_tall ? result.t() : result;
  }

  static double adjustment(const MuonOptions& options, const at::Tensor& parameter) {
    const auto rows = static_cast<double>(parameter.size(0));
    const auto columns = static_cast<double>(parameter.size(1));
    const std::string adjustment = options.adjust_lr_fn().value_or("original");
    if (adjustment == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, columns));
    return std::sqrt(adjustment == "original" ? std::max(1.0, rows / columns) : rows / columns);
  }

  static void run(const MuonOptions& options, FusedBatch& batch, const UpdateScalar& rate) {
    Workspace space;
    for (size_t i = 0; i < batch.parameters.size(); ++i) {
      const at::Tensor& parameter = batch.parameters[i];
      const at::Tensor& gradient = batch.gradients[i];
      if (parameter.numel() == 0) continue;
      const at::Tensor& buffer = batch.state[0][i].lerp_(gradient, 1 - options.momentum());
      const at::Tensor update = options.nesterov() ? at::lerp(gradient, buffer, options.momentum()) : buffer;
      const at::Tensor change = orthogonalized(update, options, space);
      multiply(parameter, 1 - rate * options.weight_decay());
      subtract_scaled(parameter, change, rate * adjustment(options, parameter));
    }
  }
};

template class OwnOptimizer<MuonOptions>;

}  // namespace ddp::optim
