// Mixed precision by optimization levels, the way apex.amp did it: initialize() once, then scale_loss() around each
// backward pass. Reference: apex.amp, dropped from apex in 2025.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/amp/cast_scope.h>
#include <ddprun/amp/loss_scaler.h>
#include <ddprun/amp/model.h>
#include <ddprun/amp/opt_level.h>
#include <ddprun/amp/scaled_loss.h>
#include <ddprun/comm/any_module_ref.h>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace ddp::amp {

/// One model or several: `net`, `{generator, discriminator}`.
class Models {
 public:
  template <typename Model>
  requires(!std::is_same_v<Model, Models> && std::is_constructible_v<AnyModuleRef, Model&>) Models(Model& model)
      : models_{AnyModuleRef(model)} {}
  Models(std::initializer_list<AnyModuleRef> models) : models_(models) {}
  const std::vector<AnyModuleRef>& all() const { return models_; }

 private:
  std::vector<AnyModuleRef> models_;
};

/// One optimizer or several: `optimizer`, `{first, second}`; `{}` for none.
class Optimizers {
 public:
  using Reference = std::reference_wrapper<torch::optim::Optimizer>;
  Optimizers(torch::optim::Optimizer& optimizer) : optimizers_{optimizer} {}
  Optimizers(std::initializer_list<Reference> optimizers) : optimizers_(optimizers) {}
  Optimizers(std::vector<Reference> optimizers) : optimizers_(std::move(optimizers)) {}
  const std::vector<Reference>& all() const { return optimizers_; }

 private:
  std::vector<Reference> optimizers_;
};

/// What initialize() returns: the models to call, and everything that a training step needs. Cheap to copy; copies are
/// the same amp. Models and optimizers must outlive its use.
class Amp {
 public:
  explicit Amp(std::shared_ptr<detail::AmpState> state);

  /// The model to call, and to wrap in DistributedDataParallel, for `net`, one of those that were initialized. Throws
  /// std::invalid_argument for another one.
  template <typename Holder>
  Model<Holder> model(Holder net) const {
    require_initialized(*net);
    return Model<Holder>(std::move(net), detail::ForwardRules(state_));
  }

  /// Autocast for the computation of the loss, at O1; nothing at the other levels. The model's forward has its own.
  CastScope autocast() const;

  /// `loss`, any shape, in float32 times its scale, for one backward pass of whose gradients `optimizers` are all
  /// owners:
  ///
  ///     amp.scale_loss(loss, optimizer).backward();
  ///     amp.step(optimizer);
  ///
  /// Throws std::invalid_argument for optimizers that were not initialized, and std::out_of_range for a loss_id.
  [[nodiscard]] ScaledLoss scale_loss(const at::Tensor& loss, const Optimizers& optimizers,
                                      const ScaleLossOptions& options = {}) const;

  /// Steps `optimizer` and brings 16-bit parameters up to date with their masters; after an overflow it skips instead.
  /// The masters' gradients are cleared. The host waits for the device only with optimizers that are none of
  /// ddp::optim's and a dynamic loss scale. Throws std::runtime_error when the last scale_loss() had delay_unscale.
  void step(torch::optim::Optimizer& optimizer) const;

  /// Clears all gradients of `optimizer`: masters', parameters', and those of an unfinished accumulation. Before an
  /// ordinary step the optimizer's own zero_grad() is enough.
  void zero_grad(torch::optim::Optimizer& optimizer) const;

  /// The scale of one loss, 1 when disabled. The host waits for the device.
  double loss_scale(int loss_id = 0) const;
  const Properties& properties() const;

  /// apex's state: {"loss_scaler0": {loss_scale, unskipped}, …}; empty when disabled. The host waits for the device.
  std::map<std::string, LossScalerState> state_dict() const;
  /// Takes such a state over; warns when it is of another number of losses. Throws std::runtime_error, and changes
  /// nothing, for other keys and for numbers out of range.
  void load_state_dict(const std::map<std::string, LossScalerState>& state) const;
  /// The same in LibTorch's archives, for CheckpointManager too: TrainingState{.scaler = amp}.
  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive) const;

  /// A module with the names of `net` and everything in float32, for checkpoints: masters stand for their parameters
  /// and are shared, so that what is loaded into it reaches `net` at the next forward of model(), and optimizers of
  /// masters find their parameters by name; other 16-bit tensors are copies. It has no forward.
  std::shared_ptr<torch::nn::Module> fp32_state(AnyModuleRef net) const;

 private:
  void require_initialized(const torch::nn::Module& net) const;

  std::shared_ptr<detail::AmpState> state_;
};

/// Prepares models and optimizers for mixed precision: casts the models in place, gives the optimizers float masters to
/// work on, and makes the loss scales, all as `options.opt_level` says:
///
///     Net net;
///     net->to(group.device());
///     torch::optim::SGD optimizer(net->parameters(), 0.1);
///     auto amp = ddp::amp::initialize(net, optimizer, {.opt_level = "O2"});
///     ddp::DistributedDataParallel model(amp.model(net), group);
///
/// Every rank must call it, with float32 models on their device, after convert_sync_batchnorm() and before
/// DistributedDataParallel; it communicates nothing. Masters take their first values from the model at the first
/// scale_loss(), when DistributedDataParallel has made the ranks equal.
///
/// Throws std::logic_error for a wrapped model, std::runtime_error for an unknown level, a model that is not float32,
/// an optimizer that was given before and overrides that contradict the level, std::invalid_argument for other values
/// out of range and for an optimizer with state whose parameters would lose their type. Then nothing is changed.
Amp initialize(const Models& models, const Optimizers& optimizers, const Options& options = {});

/// The parameters that `optimizer` steps: masters where there are some. Clip these gradients, not the model's.
std::vector<at::Tensor> master_params(const torch::optim::Optimizer& optimizer);

}  // namespace ddp::amp
