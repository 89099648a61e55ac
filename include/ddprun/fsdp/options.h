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
/// model. Buffers are not cast. Reference: torch.distributed.fsdp.MixedPrecisionPolicy.
struct MixedPrecisionPolicy {
  /// The dtype of gathered parameters and of the all-gather; default: that of the parameters.
  std::optional<c10::ScalarType> param_dtype{};
  /// The dtype in which gradients are reduced; default: that of the parameters (as in PyTorch 2.15; before,
  /// param_dtype).
  std::optional<c10::ScalarType> reduce_dtype{};
  /// The dtype to which the model's floating-point outputs are cast; default: they are not cast.
  std::optional<c10::ScalarType> output_dtype{};
  /// Whether the model's floating-point inputs are cast to param_dtype.
  bool cast_forward_inputs = true;
};

/// Keeps the shards, their gradients and therefore the optimizer's state in host memory. The model still computes on
/// the device of its group. It has no effect on the CPU. Reference: torch.distributed.fsdp.CPUOffloadPolicy.
struct CpuOffload {
  /// Whether this memory is page-locked. Only then do copies overlap with computation. Page-locked memory is not
  /// available to other processes.
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
  /// Which modules are units. Modules that are in no unit belong to the root unit. Empty: the whole model is one unit.
  std::vector<UnitSelector> units{};
  /// Whether parameters are freed after a forward and gathered again for the backward. Default: true for all units
  /// except the root.
  std::optional<bool> reshard_after_forward{};
  /// Dtypes.
  MixedPrecisionPolicy policy{};
  /// Parameters that are neither sharded, moved nor reduced, and whose values are not broadcast. They stay unchanged,
  /// and parameters() of the result contains them.
  std::vector<at::Tensor> ignored_params{};
  /// Whether shards are in host memory. The model may then be on the CPU when fully_shard() is called: only one unit at
  /// a time is copied to the device, and the buffers are moved there immediately. The optimizer's step runs on the CPU.
  std::optional<CpuOffload> offload{};
  /// Whether all ranks first get rank 0's parameters and buffers. Not done if a rank of the job runs Python, because
  /// Python's fully_shard() keeps each rank's values.
  bool init_sync = true;
  /// Whether shards get the model's values. If false, all are NaN until load_weights() or a checkpoint sets them; for a
  /// model of deferred_init() the values are then not computed. All ranks must use the same setting.
  bool initial_values = true;
};

}  // namespace ddp
