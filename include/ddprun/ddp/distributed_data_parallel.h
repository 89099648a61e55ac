// DistributedDataParallel: data parallel training of one model over the ranks of a process group. Reference:
// torch.nn.parallel.DistributedDataParallel; Li et al., "PyTorch Distributed", VLDB 2020.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/output_tensors.h>
#include <ddprun/ddp/ddp_wrapper.h>
#include <ddprun/detail/comm/module_holder.h>
#include <ddprun/detail/ddp/ddp_core.h>

namespace ddp {

namespace detail {

template <typename Holder, typename... Arguments>
using ForwardResult = std::remove_cvref_t<decltype(std::declval<Holder&>()->forward(std::declval<Arguments>()...))>;

}  // namespace detail

/// The module that a DistributedDataParallel holder points to. `Holder` is the model's own holder: a TORCH_MODULE type
/// such as `Net`, or `std::shared_ptr<NetImpl>`.
template <typename Holder>
class DistributedDataParallelImpl : public torch::nn::Module, public DdpWrapper {
 public:
  /// As DistributedDataParallel's constructor.
  DistributedDataParallelImpl(Holder module, const GroupHandle& group, const DdpOptions& options)
      : torch::nn::Module("DistributedDataParallel"),
        DdpWrapper(std::make_shared<DdpCore>(detail::as_module(module), group, options)),
        module_(std::move(module)) {
    this->register_module("module", detail::as_module(module_));
  }

  /// Calls the model's forward, which may have arguments and a result of any types, and returns its result (a copy, if
  /// it is a reference). Gradients are averaged over the ranks during every backward of its result, unless the forward
  /// ran under no_sync(). Such a backward throws std::runtime_error when parameters get no gradient (see
  /// find_unused_parameters). A backward that does not belong to such a forward throws std::logic_error. All ranks must
  /// call it equally often, or inside join(). Before a forward that follows a synchronised one, the model's buffers are
  /// broadcast from rank 0. With find_unused_parameters or static_graph the output's tensors must be found and replaced
  /// by copies: see <ddprun/comm/output_tensors.h>. Throws std::logic_error when they cannot be found or replaced,
  /// because gradients would then be missing. Throws std::runtime_error when the model has changed since it was
  /// wrapped, when the last backward did not reach every parameter, and when a reduction has failed.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) -> detail::ForwardResult<Holder, Arguments...> {
    core().before_forward();
    if constexpr (std::is_void_v<detail::ForwardResult<Holder, Arguments...>>) {
      module_->forward(std::forward<Arguments>(arguments)...);
      core().after_forward({}, typeid(void));
    } else {
      detail::ForwardResult<Holder, Arguments...> output = module_->forward(std::forward<Arguments>(arguments)...);
      const std::type_info& type = typeid(detail::ForwardResult<Holder, Arguments...>);
      const OutputTensors found = core().looks_at_outputs() ? find_tensors(output) : OutputTensors();
      if (!found.known && core().wants_outputs()) core().refuse_output(type, OutputFault::kUnknown);
      const std::vector<at::Tensor> replacements = core().after_forward(found, type);
      if (!replacements.empty() && !replace_tensors(output, replacements)) {
        core().refuse_output(type, OutputFault::kCopies);
      }
      return output;
    }
  }

  /// The wrapped model, shared with the caller. Its parameter names have no "module." prefix. Save this model, and load
  /// into it.
  Holder& module() { return module_; }
  /// The same for a const wrapper.
  const Holder& module() const { return module_; }

  /// Moving or casting a wrapped model would not move the gradient buckets: throws std::logic_error, which says what to
  /// do.
  void to(torch::Device /*device*/, torch::Dtype /*dtype*/, bool /*non_blocking*/ = false) override {
    refuse_to_move();
  }
  /// The same for a dtype alone.
  void to(torch::Dtype /*dtype*/, bool /*non_blocking*/ = false) override { refuse_to_move(); }
  /// The same for a device alone.
  void to(torch::Device /*device*/, bool /*non_blocking*/ = false) override { refuse_to_move(); }

  /// A wrapper cannot be cloned: throws a std::logic_error whose message says what can be cloned.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    detail::refuse_to_clone("DistributedDataParallel");
  }

 private:
  Holder module_;
};

/// Wraps a model so that every rank's backward leaves the gradients averaged over all ranks in the parameters:
///
///     ddp::DistributedDataParallel<Net> model(net, group);
///     auto loss = torch::mse_loss(model(x), y);
///     loss.backward();                                  // reduction overlaps with this
///     optimizer.step();                                 // built from model->parameters() or net->parameters()
///
/// `Net` is a type made by TORCH_MODULE, a std::shared_ptr to a module, or a plain class derived from
/// torch::nn::Module; in the last case `net` may be a std::shared_ptr<Net>, or a Net that outlives the wrapper.
///
/// Every rank of `group` must construct it, with equal models on the device they will train on; parameters and buffers
/// are checked against rank 0's and then taken from it. Construct it under the stream on which the forwards will run.
/// The wrapper shares the model with the caller and must be destroyed before, or together with, the process group.
/// Throws std::runtime_error when the ranks' models differ and std::invalid_argument when the model cannot be wrapped.
template <typename Model>
class DistributedDataParallel
    : public torch::nn::ModuleHolder<DistributedDataParallelImpl<detail::ModuleHolderOf<Model>>> {
 public:
  /// What holds the model.
  using Holder = detail::ModuleHolderOf<Model>;
  /// What it points to.
  using Impl = DistributedDataParallelImpl<Holder>;

  /// An empty holder.
  explicit DistributedDataParallel(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}

  /// Wraps the model in a holder; a collective.
  DistributedDataParallel(Holder module, const GroupHandle& group, const DdpOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), group, options)) {}

  /// Wraps a module that is not a holder and must outlive the wrapper; a collective.
  template <typename Plain>
  requires(detail::kIsPlainModule<Model>&& std::is_same_v<Plain, Model>)
      DistributedDataParallel(Plain& module, const GroupHandle& group, const DdpOptions& options = {})
      : DistributedDataParallel(detail::borrowed(module), group, options) {}

  /// The same as `->forward(…)`.
  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

template <typename Model>
DistributedDataParallel(Model, const GroupHandle&) -> DistributedDataParallel<Model>;
template <typename Model>
DistributedDataParallel(Model, const GroupHandle&, const DdpOptions&) -> DistributedDataParallel<Model>;
}  // namespace ddp
