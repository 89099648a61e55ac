// Settings of fully_shard(). Reference: torch.distributed.fsdp.fully_shard, PyTorch 2.15.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/comm/module_holder.h>

namespace ddp {

/// The dtypes of a fully sharded model's computation. The shards, which the optimizer changes, keep the dtype of the
/// model. Buffers are left alone. Reference: torch.distributed.fsdp.MixedPrecisionPolicy.
struct MixedPrecisionPolicy {
  /// Of gathered parameters and of what is gathered; default: the parameters' own.
  std::optional<c10::ScalarType> param_dtype{};
  /// Of the reduction of gradients; default: the parameters' own (as PyTorch 2.15; before, param_dtype).
  std::optional<c10::ScalarType> reduce_dtype{};
  /// What the model's floating-point outputs are cast to; default: they are not.
  std::optional<c10::ScalarType> output_dtype{};
  /// Whether the model's floating-point inputs are cast to param_dtype.
  bool cast_forward_inputs = true;
};

/// Shards, their gradients and so the optimizer's state in host memory; the model still computes on the device of its
/// group. On the CPU it changes nothing. Reference: torch.distributed.fsdp.CPUOffloadPolicy.
struct CpuOffload {
  /// Whether this memory is page-locked, which copies beside the computation need; other processes cannot use it.
  bool pin_memory = true;
};

/// Which modules of a model are units of their own: see each(), children() and together().
class UnitSelector {
 public:
  /// `names` are modules' names as in named_modules(); `matches` is asked for each module if it is not empty.
  /// `is_one_unit`: all selected modules are one unit.
  UnitSelector(std::vector<std::string> names, std::function<bool(const torch::nn::Module&)> matches, bool is_one_unit)
      : names_(std::move(names)), matches_(std::move(matches)), is_one_unit_(is_one_unit) {}

  /// The modules' names.
  const std::vector<std::string>& names() const { return names_; }
  /// Whether a module is selected by its type.
  bool matches(const torch::nn::Module& module) const { return matches_ && matches_(module); }
  /// Whether the modules form one unit.
  bool is_one_unit() const { return is_one_unit_; }

 private:
  std::vector<std::string> names_;
  std::function<bool(const torch::nn::Module&)> matches_;
  bool is_one_unit_;
};

/// Each module of type `Block`, a TORCH_MODULE type or a class derived from torch::nn::Module, is a unit.
template <typename Block>
UnitSelector each() {
  using Holder = detail::ModuleHolderOf<Block>;
  using Module = std::remove_reference_t<decltype(*std::declval<Holder&>())>;
  return {{}, [](const torch::nn::Module& module) { return dynamic_cast<const Module*>(&module) != nullptr; }, false};
}

/// Each of the modules with these names ("encoder.2") is a unit.
inline UnitSelector children(std::vector<std::string> names) {
  return {std::move(names), {}, false};
}

/// The modules with these names are one unit, such as a norm and a head, or modules that share a parameter.
inline UnitSelector together(std::vector<std::string> names) {
  return {std::move(names), {}, true};
}

/// Settings of fully_shard(), all optional.
struct FullyShardOptions {
  /// Which modules are units; what no unit contains belongs to the root. None: the whole model is one unit.
  std::vector<UnitSelector> units{};
  /// Whether parameters are freed after a forward and gathered again for the backward. Default: all but the root's.
  std::optional<bool> reshard_after_forward{};
  /// Dtypes.
  MixedPrecisionPolicy policy{};
  /// Parameters of the model that are neither sharded, moved nor reduced, nor made equal over the ranks: they stay as
  /// they are, and are among parameters() of the result.
  std::vector<at::Tensor> ignored_params{};
  /// Whether shards are in host memory. The model may then be on the CPU before, of which only a unit at a time goes to
  /// the device; buffers go there at once. The optimizer steps on the CPU.
  std::optional<CpuOffload> offload{};
  /// Whether all ranks take rank 0's parameters and buffers first; not done where a rank runs Python, whose
  /// fully_shard() takes each rank's own.
  bool init_sync = true;
  /// Whether shards begin with the model's values. Without, all are NaN until load_weights() or a checkpoint fills them:
  /// a model of deferred_init() then computes none. All ranks must use the same.
  bool initial_values = true;
};

}  // namespace ddp
