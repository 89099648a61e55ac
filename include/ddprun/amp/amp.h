// Mixed precision by optimization levels, with the interface of apex.amp: call initialize() once, and then scale_loss()
// for each backward pass. Reference: apex.amp, which was removed from apex in 2025.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/opt_level.h>
#include <ddprun/comm/any_module_ref.h>
#include <ddprun/comm/output_tensors.h>
#include <ddprun/detail/comm/module_holder.h>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace ddp::amp {

namespace detail {

struct AmpState;

/// The casts and the autocast setting that a model's forward applies.
class ForwardRules {
 public:
  explicit ForwardRules(std::shared_ptr<const AmpState> state);
  /// Must be called before each forward.
  void begin() const;
  CastScope scope() const;
  const std::optional<c10::ScalarType>& input_type() const { return input_type_; }
  const std::optional<c10::ScalarType>& output_type() const { return output_type_; }

 private:
  std::shared_ptr<const AmpState> state_;
  std::optional<c10::ScalarType> input_type_, output_type_;
};

/// Casts the floating-point tensors in `value` to `type`. Tensors that `value` holds as const are not cast.
template <typename Value>
void cast_tensors(Value& value, c10::ScalarType type) {
  for_each_tensor(value, [type](auto& tensor) {
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) {
      if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(type);
    }
  });
}

/// Whether an argument of forward() is copied, so that the tensors in the copy can be cast. All other arguments are
/// passed on unchanged. A pointer is not copied, because the object that it refers to belongs to the caller.
template <typename Argument>
constexpr bool is_cast_argument() {
  using Plain = std::remove_cvref_t<Argument>;
  if constexpr (ddp::detail::WithoutTensors<Plain> || !std::is_constructible_v<Plain, Argument>) {
    return false;
  } else {
    return ddp::detail::HasVisitTensors<Plain> || !ddp::detail::PointerLike<Plain>;
  }
}

template <typename Argument>
decltype(auto) cast_argument(Argument&& argument, const std::optional<c10::ScalarType>& type) {
  if constexpr (is_cast_argument<Argument>()) {
    std::remove_cvref_t<Argument> copy(std::forward<Argument>(argument));
    if (type) cast_tensors(copy, *type);
    return copy;
  } else {
    return std::forward<Argument>(argument);
  }
}

template <typename Argument>
using CastArgument = decltype(cast_argument(std::declval<Argument>(), std::declval<std::optional<c10::ScalarType>>()));

template <typename Holder, typename... Arguments>
using CastForwardResult =
    std::remove_cvref_t<decltype(std::declval<Holder&>()->forward(std::declval<CastArgument<Arguments>>()...))>;

}  // namespace detail

/// The module that a Model holder points to. `Holder` is the type that holds the wrapped model: a TORCH_MODULE type
/// such as `Net`, or `std::shared_ptr<NetImpl>`.
template <typename Holder>
class ModelImpl : public torch::nn::Module {
 public:
  /// Called by Amp::model(); programs do not call it.
  ModelImpl(Holder module, detail::ForwardRules rules)
      : torch::nn::Module("amp::Model"), module_(std::move(module)), rules_(std::move(rules)) {
    this->register_module("module", module_);
  }

  /// Calls the model's forward and returns its result. With a cast_model_type (O0, O2, O3), the floating-point tensors
  /// in `arguments` are cast to that type first, also inside vectors, tuples, maps, structs … (see
  /// <ddprun/comm/output_tensors.h>), but not through pointers. The floating-point tensors in the result are then cast
  /// to float32, or to `cast_model_outputs` if that is set. At O1 the forward runs in autocast, and only
  /// `cast_model_outputs` casts anything.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) -> detail::CastForwardResult<Holder, Arguments...> {
    using Result = detail::CastForwardResult<Holder, Arguments...>;
    rules_.begin();
    const CastScope scope = rules_.scope();
    if constexpr (std::is_void_v<Result>) {
      module_->forward(detail::cast_argument(std::forward<Arguments>(arguments), rules_.input_type())...);
    } else {
      Result result =
          module_->forward(detail::cast_argument(std::forward<Arguments>(arguments), rules_.input_type())...);
      if (rules_.output_type()) detail::cast_tensors(result, *rules_.output_type());
      return result;
    }
  }

  /// The wrapped model, shared with the caller. Its parameter names have no "module." prefix.
  Holder& module() { return module_; }
  /// The same for a const wrapper.
  const Holder& module() const { return module_; }

  /// Throws std::logic_error, because a wrapper cannot be cloned. The message says what can be cloned.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    ddp::detail::refuse_to_clone("amp::Model");
  }

 private:
  Holder module_;
  detail::ForwardRules rules_;
};

/// The model to call, and to wrap in DistributedDataParallel; Amp::model() makes it. It shares its parameters with the
/// wrapped model, and it keeps the objects that initialize() made alive.
template <typename Holder>
class Model : public torch::nn::ModuleHolder<ModelImpl<Holder>> {
 public:
  /// The type of the module that this holder points to.
  using Impl = ModelImpl<Holder>;

  /// An empty holder.
  explicit Model(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}
  /// Called by Amp::model(); programs do not call it.
  Model(Holder module, detail::ForwardRules rules)
      : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), std::move(rules))) {}

  /// The same as `->forward(…)`.
  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

/// Settings of one scale_loss(), all optional.
struct ScaleLossOptions {
  int loss_id = 0;  ///< which loss scale, 0 … num_losses-1
  /// Leaves the gradients scaled. Set it for all but the last backward pass of an accumulated step, and for backward
  /// passes under DistributedDataParallel's no_sync(). A scale_loss() without it must precede the step.
  bool delay_unscale = false;
  /// Divides the gradients by the scale, but does not update the loss scale. An overflow then reduces the scale at the
  /// end of the next scale_loss() of this loss. The optimizers' next step is skipped in any case.
  bool delay_overflow_check = false;
};

namespace detail {
struct AmpState;
class OptimizerRecord;
}  // namespace detail

/// A loss multiplied by its scale. When this scope ends, the optimizers' gradients (or those of the master weights, if
/// an optimizer has them) are divided by the scale and checked for infinities and NaN. Amp::scale_loss() returns it.
class ScaledLoss {
 public:
  /// Called by Amp::scale_loss(); programs do not call it.
  ScaledLoss(std::shared_ptr<detail::AmpState> state, const at::Tensor& loss,
             std::vector<detail::OptimizerRecord*> records, const ScaleLossOptions& options);
  /// Calls finish(). If finish() fails, the next call to step() or scale_loss() throws the error. If the destructor
  /// runs because of an exception, it restores the gradients from before the backward pass instead.
  ~ScaledLoss();
  ScaledLoss(const ScaledLoss&) = delete;
  ScaledLoss& operator=(const ScaledLoss&) = delete;

  /// The scaled loss, in float32.
  const at::Tensor& loss() const { return loss_; }
  /// The same as loss().
  operator const at::Tensor&() const { return loss_; }
  /// Runs the backward pass of the scaled loss.
  void backward() const { loss_.backward(); }

  /// Ends the scope now. The host does not wait for a device.
  void finish();

 private:
  std::shared_ptr<detail::AmpState> state_;
  at::Tensor loss_;
  std::vector<detail::OptimizerRecord*> records_;
  ScaleLossOptions options_;
  int exceptions_at_construction_;
  bool pass_through_ = false;
  bool finished_ = false;
};

/// One model or several: `net`, `{generator, discriminator}`.
class Models {
 public:
  /// One model: a torch::nn::Module, or an object that holds one.
  template <typename Model>
  requires(!std::is_same_v<Model, Models> && std::is_constructible_v<AnyModuleRef, Model&>) Models(Model& model)
      : models_{AnyModuleRef(model)} {}
  /// Several models.
  Models(std::initializer_list<AnyModuleRef> models) : models_(models) {}
  /// Returns the models in the order in which they were passed.
  const std::vector<AnyModuleRef>& all() const { return models_; }

 private:
  std::vector<AnyModuleRef> models_;
};

/// One optimizer or several: `optimizer`, `{first, second}`; `{}` for none.
class Optimizers {
 public:
  /// A reference that can be kept in a list.
  using Reference = std::reference_wrapper<torch::optim::Optimizer>;
  /// One optimizer.
  Optimizers(torch::optim::Optimizer& optimizer) : optimizers_{optimizer} {}
  /// Several optimizers, or none.
  Optimizers(std::initializer_list<Reference> optimizers) : optimizers_(optimizers) {}
  /// The same of a vector.
  Optimizers(std::vector<Reference> optimizers) : optimizers_(std::move(optimizers)) {}
  /// Returns the optimizers in the order in which they were passed.
  const std::vector<Reference>& all() const { return optimizers_; }

 private:
  std::vector<Reference> optimizers_;
};

/// The result of initialize(): the models to call, and everything that a training step needs. Copies are cheap and
/// share one state. The models and optimizers must exist as long as it is used.
class Amp {
 public:
  /// Called by initialize(); programs do not call it.
  explicit Amp(std::shared_ptr<detail::AmpState> state);

  /// The model to call, and to wrap in DistributedDataParallel, in place of `net`. Throws std::invalid_argument if
  /// `net` was not passed to initialize().
  template <typename Holder>
  Model<Holder> model(Holder net) const {
    require_initialized(*net);
    return Model<Holder>(std::move(net), detail::ForwardRules(state_));
  }

  /// Enables autocast for the computation of the loss at O1; does nothing at the other levels. The model's forward
  /// enables autocast by itself.
  CastScope autocast() const;

  /// Returns `loss` (any shape), converted to float32 and multiplied by its scale, for one backward pass. `optimizers`
  /// must name every optimizer whose parameters get gradients in that pass:
  ///
  ///     amp.scale_loss(loss, optimizer).backward();
  ///     amp.step(optimizer);
  ///
  /// Throws std::invalid_argument for optimizers that were not passed to initialize(), and std::out_of_range for a
  /// loss_id that is not below num_losses.
  [[nodiscard]] ScaledLoss scale_loss(const at::Tensor& loss, const Optimizers& optimizers,
                                      const ScaleLossOptions& options = {}) const;

  /// Steps `optimizer` and copies the master weights to their 16-bit parameters. After an overflow, it skips the step
  /// instead. It clears the gradients of the master weights. The host waits for the device only with a dynamic loss
  /// scale and an optimizer that is not from ddp::optim. Throws std::runtime_error if the last scale_loss() had
  /// delay_unscale set.
  void step(torch::optim::Optimizer& optimizer) const;

  /// Clears all gradients of `optimizer`: those of the master weights, of the parameters, and of an unfinished
  /// accumulation. Before an ordinary step the optimizer's own zero_grad() is enough.
  void zero_grad(torch::optim::Optimizer& optimizer) const;

  /// Returns the scale of one loss; 1 if disabled. The host waits for the device.
  double loss_scale(int loss_id = 0) const;
  /// The settings that result from the level and the options of initialize().
  const Properties& properties() const;

  /// Returns the state in apex's format: {"loss_scaler0": {loss_scale, unskipped}, …}; empty if disabled. The host
  /// waits for the device.
  std::map<std::string, LossScalerState> state_dict() const;
  /// Loads a state that state_dict() returned, and prints a warning if it has a different number of losses. Throws
  /// std::runtime_error, and changes nothing, for unknown keys and for numbers out of range.
  void load_state_dict(const std::map<std::string, LossScalerState>& state) const;
  /// Writes the state into a LibTorch archive. CheckpointManager calls it for TrainingState{.scaler = amp}.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Loads the state that save() has written. Throws std::runtime_error for an archive without such a state; otherwise
  /// throws as load_state_dict() does.
  void load(torch::serialize::InputArchive& archive) const;

  /// Returns a module for checkpoints, with the parameter and buffer names of `net` and all tensors in float32. A
  /// parameter that has a master weight is represented by that master weight itself, not by a copy. Values that are
  /// loaded into it therefore reach `net` at the next forward of model(), and an optimizer of master weights finds its
  /// parameters by name. Other 16-bit tensors are converted copies. The module has no forward.
  std::shared_ptr<torch::nn::Module> fp32_state(AnyModuleRef net) const;

 private:
  void require_initialized(const torch::nn::Module& net) const;

  std::shared_ptr<detail::AmpState> state_;
};

/// Prepares models and optimizers for mixed precision: casts the models in place, replaces the optimizers' 16-bit
/// parameters by float32 master weights, and creates the loss scales, as `options.opt_level` specifies:
///
///     Net net;
///     net->to(group.device());
///     torch::optim::SGD optimizer(net->parameters(), 0.1);
///     auto amp = ddp::amp::initialize(net, optimizer, {.opt_level = "O2"});
///     ddp::DistributedDataParallel model(amp.model(net), group);
///
/// Every rank must call it, with float32 models on their device, after convert_sync_batchnorm() and before
/// DistributedDataParallel; it does not communicate. The master weights get their initial values from the model at the
/// first scale_loss(), after DistributedDataParallel has given all ranks the same values.
///
/// Throws std::logic_error for a wrapped model; std::runtime_error for an unknown level, a model that is not float32,
/// an optimizer that was already passed to an earlier call, and overrides that contradict the level;
/// std::invalid_argument for other values out of range and for an optimizer that already has state for parameters whose
/// dtype would change. If it throws, models and optimizers are unchanged.
Amp initialize(const Models& models, const Optimizers& optimizers, const Options& options = {});

/// Returns the parameters that `optimizer` updates: 16-bit parameters that have a master weight are replaced by it. To
/// clip gradients, clip those of these parameters, not those of the model.
std::vector<at::Tensor> master_params(const torch::optim::Optimizer& optimizer);

}  // namespace ddp::amp
