// Fully sharded data parallel training: each rank keeps a part of every parameter, gradient and optimizer state, and
// the whole parameters of a unit are in memory only while that unit computes. Reference:
// torch.distributed.fsdp.fully_shard (FSDP2); Zhao et al., "PyTorch FSDP", VLDB 2023.
//
//     auto model = ddp::fully_shard(net, group, {.units = {ddp::each<Block>()}});
//     torch::optim::AdamW optimizer(model->parameters(), 1e-3);     // of the shards
//     torch::mse_loss(model(x), y).backward();                      // gradients are averaged over the ranks
//     optimizer.step();
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/output_tensors.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/detail/comm/module_holder.h>
#include <ddprun/detail/fsdp/fully_shard_core.h>
#include <ddprun/fsdp/options.h>

namespace ddp {

namespace detail {

/// The result type, by value, of the forward of a module in a `Holder` for these argument types.
template <typename Holder, typename... Arguments>
using ForwardValue = std::remove_cvref_t<decltype(std::declval<Holder&>()->forward(std::declval<Arguments>()...))>;

}  // namespace detail

/// The module that a FullySharded holder points to. Its parameters() are the shards, under the names of the model's
/// parameters; its buffers() are the model's.
template <typename Holder>
class FullyShardedImpl : public torch::nn::Module, public FullyShardedWrapper {
 public:
  /// As fully_shard().
  FullyShardedImpl(Holder module, const ShardMesh& mesh, const FullyShardOptions& options)
      : torch::nn::Module("FullySharded"),
        FullyShardedWrapper(std::make_shared<FullyShardCore>(detail::as_module(module), mesh, options)),
        module_(std::move(module)) {
    core().mirror_into(*this);
  }

  /// Calls the model's forward, which may take and return anything. Gathers each unit's parameters when an operator
  /// first uses one, and frees them when an operator of another unit begins. All ranks of the mesh must call it equally
  /// often, and each backward of its result. Throws std::runtime_error when a peer fails, when the last backward has
  /// failed, and std::logic_error when parameters were replaced.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    return run(
        [&]() -> detail::ForwardValue<Holder, Arguments...> { return call(std::forward<Arguments>(arguments)...); });
  }

  /// Calls `function`, which may use the model in another way than by its forward: by another member function, or some
  /// of its modules. Returns the result of `function` by value. Everything else is as in forward(), except that inputs
  /// are not cast. Reference: torch.distributed.fsdp.register_fsdp_forward_method.
  template <typename Function>
  auto run(Function&& function) {
    core().before_forward();
    try {
      using Result = std::remove_cvref_t<decltype(function())>;
      if constexpr (std::is_void_v<Result>) {
        std::forward<Function>(function)();
        core().after_forward();
      } else {
        Result output = std::forward<Function>(function)();
        if (core().options().policy.output_dtype) {
          for_each_tensor(output, [this](auto& tensor) {
            if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) {
              tensor = core().cast_output(tensor);
            }
          });
        }
        core().after_forward();
        return output;
      }
    } catch (...) {
      core().after_failed_forward();
      throw;
    }
  }

  /// The model, shared with the caller. Its parameters have memory during forwards and backwards only.
  Holder& module() { return module_; }
  /// The same for a const wrapper.
  const Holder& module() const { return module_; }

  /// Scales all gradients down so that their norm of order `norm_type` (above 0; infinity for the largest absolute
  /// value), over all shards of the model, is at most `max_norm`; returns the norm before, a tensor of no dimensions
  /// that is equal on all ranks. Ignored parameters are left out, because their gradients are not sharded. All ranks
  /// must call it. Reference: torch.nn.utils.clip_grad_norm_, whose result is one rank's part of the norm.
  at::Tensor clip_grad_norm_(double max_norm, double norm_type = 2) {
    return core().clip(this->parameters(), max_norm, norm_type);
  }

  /// Sets the mode of the model too.
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    detail::as_module(module_)->train(on);
  }
  /// Clears the gradients, also those that wait for a reduction.
  void zero_grad(bool set_to_none = true) override {
    torch::nn::Module::zero_grad(set_to_none);
    drop_unreduced_gradients();
  }

  /// Throws std::logic_error: move the model before it is sharded.
  void to(torch::Device /*device*/, torch::Dtype /*dtype*/, bool /*non_blocking*/ = false) override {
    refuse_to_move_shards();
  }
  /// The same for a dtype alone.
  void to(torch::Dtype /*dtype*/, bool /*non_blocking*/ = false) override { refuse_to_move_shards(); }
  /// The same for a device alone.
  void to(torch::Device /*device*/, bool /*non_blocking*/ = false) override { refuse_to_move_shards(); }
  /// Throws std::logic_error: a sharded model cannot be cloned.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    detail::refuse_to_clone("fully_shard()");
  }

 private:
  // An argument, or a copy of it in which floating-point tensors are cast. An argument that needs no cast, such as a
  // list that the forward fills, is passed without a copy.
  template <typename Argument>
  class CastArgument {
   public:
    CastArgument(Argument& argument, const FullyShardCore& core) : argument_(argument) {
      if constexpr (std::is_copy_constructible_v<std::remove_const_t<Argument>>) {
        bool needs_cast = false;
        for_each_tensor(argument, [&](const auto& tensor) { needs_cast = needs_cast || core.needs_cast(tensor); });
        if (!needs_cast) return;
        copy_.emplace(argument);
        for_each_tensor(*copy_, [&](auto& tensor) {
          if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) tensor = core.cast_input(tensor);
        });
      }
    }
    Argument& get() { return copy_ ? *copy_ : argument_; }

   private:
    Argument& argument_;
    std::optional<std::remove_const_t<Argument>> copy_;
  };

  template <typename... Arguments>
  detail::ForwardValue<Holder, Arguments...> call(Arguments&&... arguments) {
    const MixedPrecisionPolicy& policy = core().options().policy;
    if (!policy.param_dtype || !policy.cast_forward_inputs) {
      return module_->forward(std::forward<Arguments>(arguments)...);
    }
    std::tuple<CastArgument<std::remove_reference_t<Arguments>>...> casts(
        CastArgument<std::remove_reference_t<Arguments>>(arguments, core())...);
    return std::apply(
        [this](auto&... each) -> detail::ForwardValue<Holder, Arguments...> {
          return module_->forward(static_cast<Arguments&&>(each.get())...);
        },
        casts);
  }

  Holder module_;
};

/// A model whose parameters are sharded; made by fully_shard().
template <typename Model>
class FullySharded : public torch::nn::ModuleHolder<FullyShardedImpl<detail::ModuleHolderOf<Model>>> {
 public:
  /// What holds the model.
  using Holder = detail::ModuleHolderOf<Model>;
  /// What it points to.
  using Impl = FullyShardedImpl<Holder>;

  /// An empty holder.
  explicit FullySharded(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}
  /// As fully_shard().
  FullySharded(Holder module, const ShardMesh& mesh, const FullyShardOptions& options = {})
      : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), mesh, options)) {}

  /// The same as `->forward(…)`.
  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

/// Divides the parameters of `model` over the ranks of `mesh`: a group, a mesh of one dimension, or one of two,
/// (replicate, shard). Every rank must call it with an equal model, on the device on which it will train, before the
/// optimizer is constructed from `->parameters()` of the result. The model itself is not changed otherwise: its
/// parameters are the same tensor objects, but have memory only during forwards and backwards. `model` may be of any
/// type that DistributedDataParallel accepts. The result shares it, and must be destroyed before the mesh.
///
/// Throws std::invalid_argument when the model cannot be sharded and std::runtime_error when the ranks' models differ.
template <typename Model>
FullySharded<Model> fully_shard(Model model, const ShardMesh& mesh, const FullyShardOptions& options = {}) {
  return FullySharded<Model>(std::move(model), mesh, options);
}

}  // namespace ddp
