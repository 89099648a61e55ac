// The common base of this folder's optimizers: the interface of torch::optim, access to the state under Python's names,
// and a step that uses a gradient scaler's tensors without reading them on the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ddp::optim {

/// The arguments of a gradient scaler for one step. Both are float32 tensors of one element on any device. The step
/// uses them only during the call and does not wait for their device.
struct GradientScaling {
  /// The step divides the gradients by it, and leaves them divided, as Python's fused optimizers do. Undefined: the
  /// gradients are not scaled (or unscale_() has divided them already).
  at::Tensor grad_scale{};
  /// If it is 0 or undefined, the step is performed. Otherwise parameters, state, step counters and gradients are
  /// unchanged.
  at::Tensor found_inf{};
};

/// A parameter's state as tensors under Python's names, such as {"step": float32 scalar, "exp_avg": …}.
using StateTensors = std::map<std::string, at::Tensor>;

/// The base class of ddp::optim's optimizers, which use LibTorch's fused kernels or ddprun's own. They are
/// torch::optim::Optimizers. Parameter groups have options, which may also be LibTorch's options of the same optimizer.
/// save() and load() exchange archives with LibTorch's optimizer of the same name, if there is one.
class FusedOptimizer : public torch::optim::Optimizer {
 public:
  /// The options of a group are used unchanged. (Since LibTorch 2.12, torch::optim::Optimizer replaces options that
  /// equal the class's default by `defaults`.) If a group contains a parameter twice (parameters() of a model with tied
  /// weights does), it is kept once. Throws std::invalid_argument with Python's text if two groups contain the same
  /// parameter.
  FusedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  /// As torch::optim::Optimizer::add_param_group(), except that the group's options are used unchanged, as in the
  /// constructor. (A call through a reference to torch::optim::Optimizer follows LibTorch's rule.)
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Runs `closure`, if there is one, with gradients enabled, takes one step and returns the closure's loss. Throws
  /// std::invalid_argument for a sparse gradient, a parameter that is not floating point, or one on a device without
  /// fused kernels.
  torch::Tensor step(LossClosure closure = nullptr) override;

  /// Takes one step for a gradient scaler. On CUDA, the host reads neither tensor. A tensor that is not on the
  /// parameters' device is copied to it. Throws as step() does, and std::invalid_argument if a tensor of `scaling` is
  /// not a float32 tensor of one element.
  void step_scaled(const GradientScaling& scaling);

  /// Clears all gradients. With `set_to_none` they become undefined, otherwise they become zero in place. Supports
  /// gradients that are views of a bucket, for which torch::optim::Optimizer::zero_grad() throws.
  void zero_grad(bool set_to_none = true);

  /// Python's name of the class, such as "AdamW".
  virtual std::string type_name() const = 0;

  /// The state of `parameter`. The tensors share the optimizer's memory. Empty if there is no state yet.
  virtual StateTensors parameter_state(const at::Tensor& parameter) const = 0;

  /// Whether each rank keeps the state of other parameters, as with ZeroRedundancyOptimizer between two calls of
  /// consolidate_state().
  virtual bool is_state_divided() const { return false; }

  /// Whether this rank keeps the state of `parameter`.
  virtual bool keeps_state_of(const at::Tensor& /*parameter*/) const { return true; }

  /// Returns parameter_state() if this rank keeps the state of `parameter`, else an empty state. Not a collective.
  virtual StateTensors kept_state(const at::Tensor& parameter) const { return parameter_state(parameter); }

  /// Throws std::invalid_argument if set_parameter_state() would reject `state` for `parameter`.
  virtual void check_parameter_state(const at::Tensor& parameter, const StateTensors& state) const = 0;

  /// Replaces the state of `parameter` by copies of `state` on its device; empty removes it. Throws
  /// std::invalid_argument for names, shapes or dtypes that do not fit, and then changes nothing.
  virtual void set_parameter_state(const at::Tensor& parameter, const StateTensors& state) = 0;

  /// Whether parameters may have a state `name`.
  virtual bool has_state(const std::string& name) const = 0;

  /// Returns a tensor without values that has the shape, dtype and device of the state `name` for `parameter`. Throws
  /// std::invalid_argument if the optimizer has no state of this name.
  virtual at::Tensor empty_state(const at::Tensor& parameter, const std::string& name) const = 0;

  /// The reason why a step needs all parameters of `group` together, as a sentence; empty if each parameter is updated
  /// independently.
  virtual std::string dependence(const torch::optim::OptimizerParamGroup& group) const;

  /// Writes state and options in the format of LibTorch's optimizer of the same name, so that it can load them, if
  /// there is such an optimizer.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Reads an archive of save() or of LibTorch's optimizer of the same name (since 1.5). Parameters are matched by
  /// their position. Throws std::invalid_argument, and changes nothing, if groups, sizes, shapes or names do not match.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// Takes the step; gradients are disabled, and `scaling.found_inf` is 0 or 1.
  virtual void apply_step(const GradientScaling& scaling) = 0;
};

}  // namespace ddp::optim
