// A copy of a model whose weights are the average of the weights during training: an exponential moving average (EMA)
// or the mean (SWA). Reference: torch.optim.swa_utils.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/comm/any_module_ref.h>
#include <ddprun/detail/comm/module_holder.h>

namespace ddp::optim {

/// A function that returns the new average of one tensor. The arguments are the average so far, the model's tensor
/// (both have the same shape and device), and the number of models in the average. The function must not change its
/// arguments. It is called with gradients disabled.
using AverageFunction =
    std::function<at::Tensor(const at::Tensor& averaged, const at::Tensor& current, int64_t n_averaged)>;

/// Does the same, in place in `averaged`, for all tensors of one dtype and device in one call.
using MultiAverageFunction = std::function<void(const std::vector<at::Tensor>& averaged,
                                                const std::vector<at::Tensor>& current, int64_t n_averaged)>;

/// Returns decay · average + (1 - decay) · model, Polyak's average with exponential weights. Throws
/// std::invalid_argument for a decay outside [0, 1].
AverageFunction get_ema_avg_fn(double decay = 0.999);
/// The same with one kernel for many tensors. The results are rounded differently, as with Python's function of this
/// name.
MultiAverageFunction get_ema_multi_avg_fn(double decay = 0.999);

/// The mean of all models so far: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
/// UAI 2018.
AverageFunction get_swa_avg_fn();
/// The same with one kernel for many tensors. The results are rounded differently, as with Python's function of this
/// name.
MultiAverageFunction get_swa_multi_avg_fn();

/// Settings of an AveragedModel, all optional.
struct AveragedModelOptions {
  std::optional<c10::Device> device{};  ///< the device of the average; empty: that of the model
  AverageFunction avg_fn{};             ///< one of get_ema_avg_fn(), get_swa_avg_fn() or your own; empty: SWA
  MultiAverageFunction multi_avg_fn{};  ///< replaces avg_fn
  /// Averages the buffers (batch norm's running statistics) as well. If false, the buffers are copies of the model's
  /// current ones; update_bn() then computes the statistics for the averaged weights.
  bool use_buffers = false;
  /// For models that cannot clone(): returns a new module of the same class and structure; its values do not matter.
  std::function<std::shared_ptr<torch::nn::Module>()> make_copy{};
};

/// The base of all AveragedModels. The names of parameters and buffers are those of Python's state_dict(): `module.…`
/// and `n_averaged`.
class AveragedModelBase : public torch::nn::Module {
 public:
  /// Adds `model`'s parameters and buffers to the average; the first call copies them. `model` is the trained model or
  /// its wrapper, such as DistributedDataParallel. Tied weights are averaged once. It does not communicate: the ranks
  /// have equal parameters, so all get the same average. (Buffers may differ from rank to rank, as in the model;
  /// evaluate() and checkpoints use those of rank 0.) Call it on every rank, after the optimizer's step. Throws
  /// std::invalid_argument, and changes nothing, when the parameters or buffers of `model` do not match those of the
  /// copied model.
  void update_parameters(AnyModuleRef model);

  /// How many models are in the average.
  int64_t n_averaged() const;

  /// Throws std::logic_error, because a wrapper cannot be cloned. The message says what can be cloned.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    ddp::detail::refuse_to_clone("AveragedModel");
  }

  /// Loads an archive that save() wrote. If it throws, nothing has changed.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  AveragedModelBase(std::shared_ptr<torch::nn::Module> copy, const torch::nn::Module& model,
                    AveragedModelOptions options);

  static std::shared_ptr<torch::nn::Module> copy_of(const torch::nn::Module* model,
                                                    const AveragedModelOptions& options);
  [[noreturn]] static void refuse_other_class();

 private:
  void average(std::vector<at::Tensor> averaged, std::vector<at::Tensor> current, int64_t count) const;

  std::shared_ptr<torch::nn::Module> copy_;
  AveragedModelOptions options_;
  at::Tensor n_averaged_;
};

/// The module that an AveragedModel holder points to. `Holder` is the model's own holder, as for
/// DistributedDataParallelImpl.
template <typename Holder>
class AveragedModelImpl : public AveragedModelBase {
 public:
  /// The model's class.
  using Contained = std::remove_reference_t<decltype(*std::declval<Holder&>())>;

  /// As AveragedModel's constructor.
  AveragedModelImpl(const Holder& model, const AveragedModelOptions& options)
      : AveragedModelImpl(copy_of(ddp::detail::as_module(model).get(), options), *ddp::detail::as_module(model),
                          options) {}

  /// Calls the averaged model's forward.
  template <typename... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  /// The averaged model, with the parameter names of the original model: for evaluation, and to save for use.
  std::shared_ptr<Contained>& module() { return module_; }
  /// The same for a const wrapper.
  const std::shared_ptr<Contained>& module() const { return module_; }

 private:
  AveragedModelImpl(const std::shared_ptr<torch::nn::Module>& copy, const torch::nn::Module& model,
                    const AveragedModelOptions& options)
      : AveragedModelBase(copy, model, options), module_(std::dynamic_pointer_cast<Contained>(copy)) {
    if (!module_) refuse_other_class();
  }

  std::shared_ptr<Contained> module_;
};

/// A copy of `net` that averages its weights during training:
///
///     ddp::optim::AveragedModel ema(net, {.avg_fn = ddp::optim::get_ema_avg_fn(0.999)});
///     for (auto& batch : loader) {
///       … optimizer.step();
///       ema->update_parameters(net);
///     }
///     ddp::update_bn(loader, ema, group);                                // for models with batch norm
///     for (auto& batch : ddp::evaluate(ema, test, group)) … ema(batch.data) …
///
/// `net` may have any type that DistributedDataParallel accepts, and is the model itself, not its wrapper. It must
/// derive from torch::nn::Cloneable, or make_copy must be set. Batch norms that convert_sync_batchnorm() converted are
/// ordinary batch norms in the copy. The states of random generators do not change.
///
/// A checkpoint of the run holds it as `ddp::TrainingState{…, .shared = {{"ema", *ema}}}`; with
/// `save_checkpoint(file, {.model = ema}, group)` Python's AveragedModel loads the file, and the other way round. Its
/// functions are not saved.
///
/// Throws std::invalid_argument for an empty holder, a model that cannot be copied, and if both avg_fn and multi_avg_fn
/// are set.
template <typename Model>
class AveragedModel : public torch::nn::ModuleHolder<AveragedModelImpl<ddp::detail::ModuleHolderOf<Model>>> {
 public:
  /// What holds the model.
  using Holder = ddp::detail::ModuleHolderOf<Model>;
  /// What it points to.
  using Impl = AveragedModelImpl<Holder>;

  /// An empty holder.
  explicit AveragedModel(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}

  /// Copies the model in a holder.
  explicit AveragedModel(const Holder& model, const AveragedModelOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(model, options)) {}

  /// Copies a module that is not a holder.
  template <typename Plain>
  requires(ddp::detail::kIsPlainModule<Model>&& std::is_same_v<Plain, Model>) explicit AveragedModel(
      Plain& model, const AveragedModelOptions& options = {})
      : AveragedModel(ddp::detail::borrowed(model), options) {}

  /// The same as `->forward(…)`.
  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

template <typename Model>
AveragedModel(Model) -> AveragedModel<Model>;
template <typename Model>
AveragedModel(Model, const AveragedModelOptions&) -> AveragedModel<Model>;

}  // namespace ddp::optim
