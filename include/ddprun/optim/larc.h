// Layer-wise adaptive rate clipping, as in apex.parallel.LARC (You, Gitman and Ginsburg 2017).
#pragma once

#include <torch/optim/optimizer.h>

#include <utility>
#include <vector>

#include <ddprun/optim/fused_optimizer.h>

namespace ddp::optim {

/// Settings of a Larc, all optional; the defaults are apex's.
struct LarcOptions {
  double trust_coefficient = 0.02;  ///< factor of the ratio between a parameter's norm and its gradient's norm
  /// True: the layer's adaptive rate is limited to the group's rate (LARC). False: it multiplies the group's rate
  /// (LARS).
  bool clip = true;
  double eps = 1e-8;  ///< added to the divisor
};

namespace detail {

/// Sets the groups' weight decays to 0 while it exists, and restores them in its destructor: LARC applies weight decay
/// itself.
class SuspendedWeightDecay {
 public:
  explicit SuspendedWeightDecay(std::vector<torch::optim::OptimizerParamGroup>& groups);
  ~SuspendedWeightDecay();
  SuspendedWeightDecay(const SuspendedWeightDecay&) = delete;
  SuspendedWeightDecay& operator=(const SuspendedWeightDecay&) = delete;

  double of(size_t group) const { return values_[group]; }

 private:
  std::vector<torch::optim::OptimizerParamGroup>& groups_;
  std::vector<double> values_{};
};

/// Adds weight decay to each gradient and multiplies it by its layer's adaptive rate. Gradients must be dense, as the
/// optimizer's check_step() requires. The host reads no values.
void adapt_gradients(const torch::optim::OptimizerParamGroup& group, double weight_decay, const LarcOptions& options,
                     const GradientScaling& scaling);

}  // namespace detail

/// The optimizer `Base` (SGD, Adam, …) with a separate learning rate for each parameter. Every step first computes it
/// as trust_coefficient |p| / (|g| + weight_decay |p| + eps). Unlike apex's LARC, it does not make the host wait for
/// the device. Reference: apex.parallel.LARC.
template <typename Base>
class Larc : public Base {
 public:
  /// As Base's constructor for `parameters` or parameter groups, with LARC's own options last.
  template <typename Parameters, typename Options>
  Larc(Parameters parameters, Options defaults, const LarcOptions& larc = {})
      : Base(std::move(parameters), std::move(defaults)), larc_(larc) {}

 protected:
  void apply_step(const GradientScaling& scaling) override {
    this->check_step();  // throws before any gradient is changed
    const detail::SuspendedWeightDecay weight_decay(this->param_groups_);
    for (size_t i = 0; i < this->param_groups_.size(); ++i) {
      detail::adapt_gradients(this->param_groups_[i], weight_decay.of(i), larc_, scaling);
    }
    Base::apply_step(scaling);
  }

 private:
  LarcOptions larc_;
};

}  // namespace ddp::optim
