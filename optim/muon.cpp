#include <ATen/ops/lerp.h>

#include <sstream>
#include <stdexcept>

#include <ddprun/detail/comm/shard_group.h>

#include "base/rank_prefix.h"
#include "optim/newton_schulz.h"
#include "optim/own_optimizer.h"
#include "optim/stacks.h"

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

  static double adjustment(const MuonOptions& options, const at::Tensor& parameter) {
    const auto rows = static_cast<double>(parameter.size(0));
    const auto columns = static_cast<double>(parameter.size(1));
    const std::string adjustment = options.adjust_lr_fn().value_or("original");
    if (adjustment == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, columns));
    return std::sqrt(adjustment == "original" ? std::max(1.0, rows / columns) : rows / columns);
  }

  static void run(const MuonOptions& options, FusedBatch& batch, const UpdateScalar& rate) {
    const auto [a, b, c] = options.ns_coefficients();
    NewtonSchulz orthogonalize({a, b, c}, options.ns_steps(), options.eps());
    for_each_stack(batch, std::nullopt, [&](const Stack& stack) {
      std::vector<at::Tensor> updates;
      for (const size_t i : stack.members) {
        const at::Tensor& gradient = batch.gradients[i];
        const at::Tensor& buffer = batch.state[0][i].lerp_(gradient, 1 - options.momentum());
        updates.push_back(options.nesterov() ? at::lerp(gradient, buffer, options.momentum()) : buffer);
      }
      orthogonalize.for_each(updates, [&](size_t member, const at::Tensor& change) {
        const at::Tensor& parameter = batch.parameters[stack.members[member]];
        multiply(parameter, 1 - rate * options.weight_decay());
        subtract_scaled(parameter, change, rate * adjustment(options, parameter));
      });
    });
  }
};

template class OwnOptimizer<MuonOptions>;

}  // namespace ddp::optim
