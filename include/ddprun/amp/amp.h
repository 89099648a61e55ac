// Mixed precision by optimization levels, the way apex.amp did it: initialize() once, then scale_loss() around each
// backward pass. Reference: apex.amp, dropped from apex in 2025.
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

/// What a model's forward has to know.
class ForwardRules {
 public:
  explicit ForwardRules(std::shared_ptr<const AmpState> state);
  /// To be called before each forward.
  void begin() const;
  CastScope scope() const;
  const std::optional<c10::ScalarType>& input_type() const { return input_type_; }
  const std::optional<c10::ScalarType>& output_type() const { return output_type_; }

 private:
  std::shared_ptr<const AmpState> state_;
  std::optional<c10::ScalarType> input_type_, output_type_;
};

/// Casts the floating-point tensors in `value`. Tensors that it holds const are left.
template <typename Value>
void cast_tensors(Value& value, c10::ScalarType type) {
  for_each_tensor(value, [type](auto& tensor) {
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) {
      if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(type);
    }
  });
}

/// Whether a forward's argument is copied to cast the tensors in it; all others are passed on as they are. What is
/// that a pointer refers to belongs to the caller.
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

/// What a Model holder points to. `Holder` is the model's own holder: a TORCH_MODULE type such as `Net`, or
/// `std::shared_ptr<NetImpl>`.
template <typename Holder>
class ModelImpl : public torch::nn::Module {
 public:
  /// For Amp::model(), which makes it.
  ModelImpl(Holder module, detail::ForwardRules rules)
      : torch::nn::Module("amp::Model"), module_(std::move(module)), rules_(std::move(rules)) {
    this->register_module("module", module_);
  }

  /// Calls the model's forward with the floating-point tensors in `arguments` cast to its type (in vectors, tuples,
  /// maps, structs … too, see <ddprun/comm/output_tensors.h>, but not through pointers), and returns what it
  /// returns with tensors cast to float32 or `cast_model_outputs`. At O1 nothing is cast; the forward runs in autocast.
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

  /// The model itself, shared with the caller: parameter names without "module.".
  Holder& module() { return module_; }
  /// The same of a const wrapper.
  const Holder& module() const { return module_; }

  /// A wrapper cannot be cloned: throws std::logic_error, which says what can.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    ddp::detail::refuse_to_clone("amp::Model");
  }

 private:
  Holder module_;
  detail::ForwardRules rules_;
};

/// The model to call, and to wrap in DistributedDataParallel; Amp::model() makes it. It shares the parameters with the
/// model inside, and keeps what initialize() made alive.
template <typename Holder>
class Model : public torch::nn::ModuleHolder<ModelImpl<Holder>> {
 public:
  /// What it points to.
  using Impl = ModelImpl<Holder>;

  /// An empty holder.
  explicit Model(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}
  /// For Amp::model(), which makes it.
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
  /// Leave the gradients scaled: for all but the last backward pass of an accumulated step, and for those under
  /// DistributedDataParallel's no_sync(). A scale_loss() without it has to come before the step.
  bool delay_unscale = false;
  /// Divide, but leave the loss scale as it is; an overflow counts at the next scale_loss() of this loss, and the
  /// optimizers' next step is skipped nevertheless.
  bool delay_overflow_check = false;
};

namespace detail {
struct AmpState;
class OptimizerRecord;
}  // namespace detail

/// A loss times its scale; when it ends, the gradients of the optimizers are divided by the scale, in the masters where
/// there are some, and looked at for infinities and NaN. Amp::scale_loss() makes it.
class ScaledLoss {
 public:
  /// For Amp::scale_loss(), which makes it.
  ScaledLoss(std::shared_ptr<detail::AmpState> state, const at::Tensor& loss,
             std::vector<detail::OptimizerRecord*> records, const ScaleLossOptions& options);
  /// finish(). An error is thrown by the next call to step() or scale_loss(). While an exception unwinds, the gradients
  /// that were there before come back instead.
  ~ScaledLoss();
  ScaledLoss(const ScaledLoss&) = delete;
  ScaledLoss& operator=(const ScaledLoss&) = delete;

  /// The scaled loss, in float32.
  const at::Tensor& loss() const { return loss_; }
  /// loss().
  operator const at::Tensor&() const { return loss_; }
  /// Runs the backward pass of the scaled loss.
  void backward() const { loss_.backward(); }

  /// Ends the scope now. The host waits for no device.
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
  /// One model: a torch::nn::Module or what holds one.
  template <typename Model>
  requires(!std::is_same_v<Model, Models> && std::is_constructible_v<AnyModuleRef, Model&>) Models(Model& model)
      : models_{AnyModuleRef(model)} {}
  /// Several models.
  Models(std::initializer_list<AnyModuleRef> models) : models_(models) {}
  /// The models, in the order in which they were given.
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
  /// The optimizers, in the order in which they were given.
  const std::vector<Reference>& all() const { return optimizers_; }

 private:
  std::vector<Reference> optimizers_;
};

/// What initialize() returns: the models to call, and everything that a training step needs. Cheap to copy; copies are
/// the same amp. Models and optimizers must outlive its use.
class Amp {
 public:
  /// For initialize(), which makes it.
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
  /// The masters' gradients are cleared. The host waits for the device only with a dynamic loss scale and an
  /// optimizer that is not ddp::optim's. Throws std::runtime_error when the last scale_loss() had delay_unscale.
  void step(torch::optim::Optimizer& optimizer) const;

  /// Clears all gradients of `optimizer`: masters', parameters', and those of an unfinished accumulation. Before an
  /// ordinary step the optimizer's own zero_grad() is enough.
  void zero_grad(torch::optim::Optimizer& optimizer) const;

  /// The scale of one loss, 1 when disabled. The host waits for the device.
  double loss_scale(int loss_id = 0) const;
  /// The settings that result from the level and the options of initialize().
  const Properties& properties() const;

  /// apex's state: {"loss_scaler0": {loss_scale, unskipped}, …}; empty when disabled. The host waits for the device.
  std::map<std::string, LossScalerState> state_dict() const;
  /// Takes such a state over; warns when it is for a different number of losses. Throws std::runtime_error, and changes
  /// nothing, for other keys and for numbers out of range.
  void load_state_dict(const std::map<std::string, LossScalerState>& state) const;
  /// Writes the state into an archive of LibTorch's; for CheckpointManager too: TrainingState{.scaler = amp}.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Takes over what save() has written. Throws std::runtime_error for an archive without such a state, and
  /// as load_state_dict().
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
