// The optimizers of torch.optim that LibTorch does not have or does not fuse, and LAMB and Lion, with Python's options,
// defaults and state. On the CPU their steps have the bits of Python's loop form (foreach=False) in float32, float64,
// bfloat16 and float16; on CUDA those of capturable=True with foreach=True, its default there: step counters, and
// values computed from them, stay on the device.
#pragma once

#include <torch/optim/rmsprop.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/detail/optim/own_optimizer.h>

namespace ddp::optim {

// An option with getters and a setter that returns the options, so that calls can be chained. The API reference shows
// one entry for the three.
#define DDP_OPTIM_OPTION(type, name, value) \
  const type& name() const noexcept {       \
    return name##_;                         \
  }                                         \
  type& name() noexcept {                   \
    return name##_;                         \
  }                                         \
  auto& name(const type& new_value) {       \
    name##_ = new_value;                    \
    return *this;                           \
  }                                         \
                                            \
 private:                                   \
  type name##_ = value;                     \
                                            \
 public:

// The functions that each class of options implements, with the members in Python's order.
#define DDP_OPTIM_LISTED(python_name, ...)                                    \
  const char* optimizer_name() const override {                               \
    return python_name;                                                       \
  }                                                                           \
  std::vector<std::pair<const char*, OptionValue>> list() override {          \
    static const std::vector<std::string> names = option_names(#__VA_ARGS__); \
    return listed_options(names, std::tie(__VA_ARGS__));                      \
  }

/// Decay of two running means.
using Betas = std::tuple<double, double>;

/// `RMSpropOptions(1e-3).momentum(0.9)`. Defaults as in Python.
class RMSpropOptions : public OwnOptions<RMSpropOptions> {
 public:
  /// LibTorch's options, which groups may have.
  using Base = torch::optim::RMSpropOptions;
  /// Python's defaults, with this learning rate.
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  /// Everything as in `options`, with the other flags false.
  RMSpropOptions(const Base& options);
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1e-2)
  /// Decay of the mean of squared gradients.
  DDP_OPTIM_OPTION(double, alpha, 0.99)
  /// Added to the divisor, after the root.
  DDP_OPTIM_OPTION(double, eps, 1e-8)
  /// Share of a parameter that is added to its gradient.
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Factor of the previous step that is added to a step.
  DDP_OPTIM_OPTION(double, momentum, 0)
  /// Divide by an estimate of the variance instead of the mean of squares.
  DDP_OPTIM_OPTION(bool, centered, false)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("RMSprop", lr_, momentum_, alpha_, eps_, centered_, weight_decay_, maximize_, capturable_)
};

/// `AdadeltaOptions(1.0).rho(0.95)`. Defaults as in Python.
class AdadeltaOptions : public OwnOptions<AdadeltaOptions> {
 public:
  /// Python's defaults, with this learning rate.
  AdadeltaOptions(double lr = 1.0) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1.0)
  /// Decay of the means of squared gradients and of squared changes.
  DDP_OPTIM_OPTION(double, rho, 0.9)
  /// Added inside both roots.
  DDP_OPTIM_OPTION(double, eps, 1e-6)
  /// Share of a parameter that is added to its gradient.
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("Adadelta", lr_, rho_, eps_, weight_decay_, maximize_, capturable_)
  /// Throws std::invalid_argument for a value out of range; with `may_ascend`, a negative learning rate is accepted.
  void check(bool may_ascend) const override;
};

/// `AdamaxOptions(2e-3).betas({0.9, 0.99})`. Defaults as in Python.
class AdamaxOptions : public OwnOptions<AdamaxOptions> {
 public:
  /// Python's defaults, with this learning rate.
  AdamaxOptions(double lr = 2e-3) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 2e-3)
  /// Decay of the mean of gradients and of their largest absolute value.
  DDP_OPTIM_OPTION(Betas, betas, Betas(0.9, 0.999))
  /// Added to the absolute value of a gradient.
  DDP_OPTIM_OPTION(double, eps, 1e-8)
  /// Share of a parameter that is added to its gradient.
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("Adamax", lr_, betas_, eps_, weight_decay_, maximize_, capturable_)
};

/// `NAdamOptions(2e-3).momentum_decay(4e-3)`. Defaults as in Python.
class NAdamOptions : public OwnOptions<NAdamOptions> {
 public:
  /// Python's defaults, with this learning rate.
  NAdamOptions(double lr = 2e-3) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 2e-3)
  /// Decay of the mean of gradients and of that of their squares.
  DDP_OPTIM_OPTION(Betas, betas, Betas(0.9, 0.999))
  /// Added to the divisor.
  DDP_OPTIM_OPTION(double, eps, 1e-8)
  /// Share of a parameter that is added to its gradient, or see decoupled_weight_decay().
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// How fast the momentum approaches the first beta.
  DDP_OPTIM_OPTION(double, momentum_decay, 4e-3)
  /// Subtract the weight decay, times the learning rate, from the parameter, as AdamW does.
  DDP_OPTIM_OPTION(bool, decoupled_weight_decay, false)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("NAdam", lr_, betas_, eps_, weight_decay_, momentum_decay_, decoupled_weight_decay_, maximize_,
                   capturable_)
};

/// `RAdamOptions(1e-3).decoupled_weight_decay(true)`. Defaults as in Python.
class RAdamOptions : public OwnOptions<RAdamOptions> {
 public:
  /// Python's defaults, with this learning rate.
  RAdamOptions(double lr = 1e-3) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1e-3)
  /// Decay of the mean of gradients and of that of their squares.
  DDP_OPTIM_OPTION(Betas, betas, Betas(0.9, 0.999))
  /// Added to the divisor.
  DDP_OPTIM_OPTION(double, eps, 1e-8)
  /// Share of a parameter that is added to its gradient, or see decoupled_weight_decay().
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Subtract the weight decay, times the learning rate, from the parameter, as AdamW does.
  DDP_OPTIM_OPTION(bool, decoupled_weight_decay, false)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("RAdam", lr_, betas_, eps_, weight_decay_, decoupled_weight_decay_, maximize_, capturable_)
};

/// `ASGDOptions(1e-2).t0(1000)`. Defaults as in Python.
class ASGDOptions : public OwnOptions<ASGDOptions> {
 public:
  /// Python's defaults, with this learning rate.
  ASGDOptions(double lr = 1e-2) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1e-2)
  /// Decay term.
  DDP_OPTIM_OPTION(double, lambd, 1e-4)
  /// The exponent with which the learning rate decreases.
  DDP_OPTIM_OPTION(double, alpha, 0.75)
  /// The step at which averaging begins.
  DDP_OPTIM_OPTION(double, t0, 1e6)
  /// Share of a parameter that is added to its gradient.
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("ASGD", lr_, lambd_, alpha_, t0_, weight_decay_, maximize_, capturable_)
};

/// `RpropOptions(1e-2).step_sizes({1e-6, 1})`. Defaults as in Python.
class RpropOptions : public OwnOptions<RpropOptions> {
 public:
  /// Python's defaults, with this first step size.
  RpropOptions(double lr = 1e-2) : lr_(lr) {}
  /// The initial step sizes.
  DDP_OPTIM_OPTION(double, lr, 1e-2)
  /// Factors of a step size: if the sign of the gradient changes, and if it does not.
  DDP_OPTIM_OPTION(Betas, etas, Betas(0.5, 1.2))
  /// Smallest and largest step size.
  DDP_OPTIM_OPTION(Betas, step_sizes, Betas(1e-6, 50))
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  /// Whether parameters on the CPU are an error, as in Python. On devices every step can be captured in a graph.
  DDP_OPTIM_OPTION(bool, capturable, false)
  DDP_OPTIM_LISTED("Rprop", lr_, etas_, step_sizes_, maximize_, capturable_)
  /// Throws std::invalid_argument for a value out of range; with `may_ascend`, a negative learning rate is accepted.
  void check(bool may_ascend) const override;
};

/// `AdafactorOptions(1e-2).d(1.0)`. Defaults as in Python.
class AdafactorOptions : public OwnOptions<AdafactorOptions> {
 public:
  /// The type of eps().
  using Epsilons = std::tuple<std::optional<double>, double>;
  /// Python's defaults, with this learning rate.
  AdafactorOptions(double lr = 1e-2) : lr_(lr) {}
  /// The largest relative step.
  DDP_OPTIM_OPTION(double, lr, 1e-2)
  /// The exponent of the step number with which the decay of the variance decreases.
  DDP_OPTIM_OPTION(double, beta2_decay, -0.8)
  /// The smallest root of the variance, and the smallest scale of a parameter. If the first is nullopt, it is the
  /// epsilon for the dtype of the group's first parameter with a gradient, as in Python.
  DDP_OPTIM_OPTION(Epsilons, eps, Epsilons(std::nullopt, 1e-3))
  /// Updates with a larger root mean square are clipped.
  DDP_OPTIM_OPTION(double, d, 1.0)
  /// Share of a parameter that a step subtracts from it, times the learning rate.
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  DDP_OPTIM_LISTED("Adafactor", lr_, beta2_decay_, eps_, d_, weight_decay_, maximize_)
  /// Throws std::invalid_argument for a value out of range; with `may_ascend`, a negative learning rate is accepted.
  void check(bool may_ascend) const override;
};

/// `MuonOptions(2e-2).momentum(0.95)`. Defaults as in Python.
class MuonOptions : public OwnOptions<MuonOptions> {
 public:
  /// The type of ns_coefficients().
  using Triple = std::tuple<double, double, double>;
  /// The type of adjust_lr_fn().
  using Adjustment = std::optional<std::string>;
  /// Python's defaults, with this learning rate.
  MuonOptions(double lr = 1e-3) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1e-3)
  /// Share of a parameter that a step subtracts from it, times the learning rate.
  DDP_OPTIM_OPTION(double, weight_decay, 0.1)
  /// Decay of the mean of gradients.
  DDP_OPTIM_OPTION(double, momentum, 0.95)
  /// Nesterov's momentum.
  DDP_OPTIM_OPTION(bool, nesterov, true)
  /// Coefficients of the Newton–Schulz polynomial.
  DDP_OPTIM_OPTION(Triple, ns_coefficients, Triple(3.4445, -4.7750, 2.0315))
  /// Smallest norm by which a gradient is divided.
  DDP_OPTIM_OPTION(double, eps, 1e-7)
  /// Number of Newton–Schulz iterations, less than 100.
  DDP_OPTIM_OPTION(int64_t, ns_steps, 5)
  /// "original" (also nullopt), "match_rms_adamw" or "spectral_unclamped": how the rate depends on the matrix's shape.
  DDP_OPTIM_OPTION(Adjustment, adjust_lr_fn, std::nullopt)
  DDP_OPTIM_LISTED("Muon", lr_, weight_decay_, momentum_, nesterov_, ns_coefficients_, eps_, ns_steps_, adjust_lr_fn_)
  /// Throws std::invalid_argument for a value out of range; with `may_ascend`, a negative learning rate is accepted.
  void check(bool may_ascend) const override;
};

/// `LambOptions(1e-3).max_grad_norm(0)`. Defaults as in apex's FusedLAMB.
class LambOptions : public OwnOptions<LambOptions> {
 public:
  /// Apex's defaults, with this learning rate.
  LambOptions(double lr = 1e-3) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1e-3)
  /// Decay of the mean of gradients and of that of their squares.
  DDP_OPTIM_OPTION(Betas, betas, Betas(0.9, 0.999))
  /// Added to the divisor.
  DDP_OPTIM_OPTION(double, eps, 1e-6)
  /// Share of a parameter that is added to its update.
  DDP_OPTIM_OPTION(double, weight_decay, 0.01)
  /// Divide the means by 1 - beta to the power of the step.
  DDP_OPTIM_OPTION(bool, bias_correction, true)
  /// Multiply new gradients by 1 - beta in the first mean.
  DDP_OPTIM_OPTION(bool, grad_averaging, true)
  /// If the norm of all gradients of the optimizer exceeds this value, the gradients of this group are multiplied by
  /// the value and divided by the norm. 0 disables this.
  DDP_OPTIM_OPTION(double, max_grad_norm, 1.0)
  /// True: subtract the weight decay, times the learning rate, from the parameter. False: add it to the gradient.
  DDP_OPTIM_OPTION(bool, adam_w_mode, true)
  /// Use the trust ratio even if weight_decay is 0.
  DDP_OPTIM_OPTION(bool, use_nvlamb, false)
  DDP_OPTIM_LISTED("Lamb", lr_, bias_correction_, betas_, eps_, weight_decay_, grad_averaging_, max_grad_norm_,
                   adam_w_mode_, use_nvlamb_)
};

/// `LionOptions(1e-4).weight_decay(0.1)`. Defaults as in the paper.
class LionOptions : public OwnOptions<LionOptions> {
 public:
  /// The paper's defaults, with this learning rate.
  LionOptions(double lr = 1e-4) : lr_(lr) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr, 1e-4)
  /// The weight of the mean in the sign that a step uses, and the decay of the mean of gradients.
  DDP_OPTIM_OPTION(Betas, betas, Betas(0.9, 0.99))
  /// Share of a parameter that a step subtracts from it, times the learning rate.
  DDP_OPTIM_OPTION(double, weight_decay, 0)
  /// Whether the objective is maximised.
  DDP_OPTIM_OPTION(bool, maximize, false)
  DDP_OPTIM_LISTED("Lion", lr_, betas_, weight_decay_, maximize_)
};

#undef DDP_OPTIM_OPTION
#undef DDP_OPTIM_LISTED

/// torch.optim.RMSprop (Hinton's lecture 6e); also reads and writes the archives of torch::optim::RMSprop.
using RMSprop = OwnOptimizer<RMSpropOptions>;
/// torch.optim.Adadelta (Zeiler 2012).
using Adadelta = OwnOptimizer<AdadeltaOptions>;
/// torch.optim.Adamax (Kingma and Ba 2015).
using Adamax = OwnOptimizer<AdamaxOptions>;
/// torch.optim.NAdam (Dozat 2016).
using NAdam = OwnOptimizer<NAdamOptions>;
/// torch.optim.RAdam (Liu et al. 2020).
using RAdam = OwnOptimizer<RAdamOptions>;
/// torch.optim.ASGD (Polyak and Juditsky 1992); the averages are the state `ax`.
using ASGD = OwnOptimizer<ASGDOptions>;
/// torch.optim.Rprop (Riedmiller and Braun 1993).
using Rprop = OwnOptimizer<RpropOptions>;
/// torch.optim.Adafactor (Shazeer and Stern 2018).
using Adafactor = OwnOptimizer<AdafactorOptions>;
/// torch.optim.Muon (Jordan 2024). It supports matrices only, and throws std::invalid_argument for other parameters.
using Muon = OwnOptimizer<MuonOptions>;
/// LAMB (You et al. 2020) as apex's FusedLAMB computes it. It needs all gradients, so ZeroRedundancyOptimizer refuses
/// it unless max_grad_norm is 0.
using Lamb = OwnOptimizer<LambOptions>;
/// Lion (Chen et al. 2023).
using Lion = OwnOptimizer<LionOptions>;

}  // namespace ddp::optim
