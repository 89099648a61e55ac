// A copy of a model whose weights are the average of those that training went through: exponential (EMA) or equal
// (SWA). Reference: torch.optim.swa_utils.
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

/// The new average of one tensor, from the average so far, the model's tensor (both of one shape, on one device) and
/// how many models are in the average. Leaves both alone. Called without recording gradients.
using AverageFunction =
    std::function<at::Tensor(const at::Tensor& averaged, const at::Tensor& current, int64_t n_averaged)>;

/// The same for all tensors of one dtype and device at once, in place in `averaged`.
using MultiAverageFunction = std::function<void(const std::vector<at::Tensor>& averaged,
                                                const std::vector<at::Tensor>& current, int64_t n_averaged)>;

/// decay · average + (1 - decay) · model: Polyak's average with exponential weights. Throws std::invalid_argument for
/// a decay outside [0, 1].
AverageFunction get_ema_avg_fn(double decay = 0.999);
/// The same by one kernel for many tensors, with other roundings, which are those of Python's function of this name.
MultiAverageFunction get_ema_multi_avg_fn(double decay = 0.999);

/// The mean of all models so far: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
/// UAI 2018.
AverageFunction get_swa_avg_fn();
/// The same by one kernel for many tensors, with other roundings, which are those of Python's function of this name.
MultiAverageFunction get_swa_multi_avg_fn();

/// Settings of an AveragedModel, all optional.
struct AveragedModelOptions {
  std::optional<c10::Device> device{};  ///< where the average is kept; empty: with the model
  AverageFunction avg_fn{};             ///< one of get_ema_avg_fn(), get_swa_avg_fn() or your own; empty: SWA
  MultiAverageFunction multi_avg_fn{};  ///< instead of avg_fn
  /// Average the buffers (batch norm's running statistics) as well. Else they are the model's current ones, and
  /// update_bn() computes those that fit the averaged weights.
  bool use_buffers = false;
  /// For models that cannot clone(): returns a new module of the same class and structure; its values do not matter.
  std::function<std::shared_ptr<torch::nn::Module>()> make_copy{};
};

/// What every AveragedModel is, whatever its model: state_dict()'s names are Python's, `module.…` and `n_averaged`.
class AveragedModelBase : public torch::nn::Module {
 public:
  /// Takes `model`'s parameters, and its buffers, into the average; the first call copies them. `model` is the one that
  /// is trained or what wraps it, DistributedDataParallel for example. Tied weights are averaged once. No
  /// communication: ranks have equal parameters, so all get the same average (buffers may differ from rank to rank, as
  /// the model's do; evaluate() and checkpoints take rank 0's). Call it on every rank, after the optimizer's step.
  /// Throws std::invalid_argument when the model has other parameters or buffers than the one that was copied, and then
  /// changes nothing.
  void update_parameters(AnyModuleRef model);

  /// How many models are in the average.
  int64_t n_averaged() const;

  /// A wrapper cannot be cloned: throws std::logic_error, which says what can.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    ddp::detail::refuse_to_clone("AveragedModel");
  }

  /// From an archive that save() wrote: all of it, or std::exception and nothing is changed.
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

/// What an AveragedModel holder points to. `Holder` is the model's own holder, as for DistributedDataParallelImpl.
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

  /// The averaged model, with the model's own parameter names: to evaluate, and to save for use.
  std::shared_ptr<Contained>& module() { return module_; }
  /// The same of a const wrapper.
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
/// `net` may be what DistributedDataParallel takes, and is the model itself, not its wrapper. It must derive from
/// torch::nn::Cloneable, or make_copy be given. Batch norms that convert_sync_batchnorm() converted are plain ones in
/// the copy. Random generators are left where they are.
///
/// A checkpoint of the run holds it as `ddp::TrainingState{…, .shared = {{"ema", *ema}}}`; with
/// `save_checkpoint(file, {.model = ema}, group)` Python's AveragedModel loads the file, and the other way round. Its
/// functions are not saved.
///
/// Throws std::invalid_argument for an empty holder, a model that cannot be copied, and two functions at once.
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
