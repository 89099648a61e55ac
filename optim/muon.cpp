#include <ATen/ops/addmm.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <sstream>
#include <stdexcept>

#include "base/rank_prefix.h"
#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> MuonOptions::list() {
  return {{"lr", &lr_},
          {"weight_decay", &weight_decay_},
          {"momentum", &momentum_},
          {"nesterov", &nesterov_},
          {"ns_coefficients", &ns_coefficients_},
          {"eps", &eps_},
          {"ns_steps", &ns_steps_},
          {"adjust_lr_fn", &adjust_lr_fn_}};
}

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

  static void check_parameter(const at::Tensor& parameter) {
    if (parameter.dim() == 2) return;
    std::ostringstream text;
    text << rank_prefix()
         << "Muon only supports 2D parameters whereas we found a parameter with size: " << parameter.sizes()
         << "; give vectors, convolutions and embeddings to another optimizer, such as AdamW";
    throw std::invalid_argument(text.str());
  }

  // The nearest matrix whose singular values are all about 1, by Newton–Schulz iterations in bfloat16.
  static at::Tensor orthogonalized(const at::Tensor& matrix, const MuonOptions& options) {
    const auto [a, b, c] = options.ns_coefficients();
    const bool is_tall = matrix.size(0) > matrix.size(1);
    at::Tensor result = matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
    if (is_tall) result = result.t();
    result.div_(at::linalg_vector_norm(result, 2).clamp_min(options.eps()));
    for (int64_t i = 0; i < options.ns_steps(); ++i) {
      const at::Tensor gram = at::mm(result, result.t());
      const at::Tensor polynomial = at::addmm(gram, gram, gram, b, c);
      result = at::addmm(result, polynomial, result, a);
    }
    return is_tall ? result.t() : result;
  }

  static double adjusted_rate(const MuonOptions& options, const at::Tensor& parameter) {
    const auto rows = static_cast<double>(parameter.size(0));
    const auto columns = static_cast<double>(parameter.size(1));
    const std::string adjustment = options.adjust_lr_fn().value_or("original");
    if (adjustment == "match_rms_adamw") return options.lr() * (0.2 * std::sqrt(std::max(rows, columns)));
    if (adjustment == "spectral_unclamped") return options.lr() * std::sqrt(rows / columns);
    return options.lr() * std::sqrt(std::max(1.0, rows / columns));
  }

  static void run(const MuonOptions& options, FusedBatch& batch) {
    for (size_t i = 0; i < batch.parameters.size(); ++i) {
      const at::Tensor& parameter = batch.parameters[i];
      const at::Tensor& gradient = batch.gradients[i];
      if (parameter.numel() == 0) continue;
      const at::Tensor& buffer = batch.state[0][i].lerp_(gradient, 1 - options.momentum());
      const at::Tensor update = options.nesterov() ? at::lerp(gradient, buffer, options.momentum()) : buffer;
      const at::Tensor change = orthogonalized(update, options);
      multiply(parameter, 1 - options.lr() * options.weight_decay());
      parameter.add_(change, -adjusted_rate(options, parameter));
    }
  }
};

template class OwnOptimizer<MuonOptions>;

}  // namespace ddp::optim
