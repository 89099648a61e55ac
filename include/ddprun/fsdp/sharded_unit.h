// Settings of one unit of a fully sharded model. Reference: torch.distributed.fsdp.FSDPModule, without its functions
// that concern the modules inside.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddp {

class FullyShardCore;

/// A unit of a fully sharded model; made by its ->unit(name). All ranks must use equal settings, between two steps
/// unless a function says otherwise. It keeps the model alive.
class ShardedUnit {
 public:
  /// Used by ->unit().
  ShardedUnit(std::shared_ptr<FullyShardCore> core, int number) : core_(std::move(core)), number_(number) {}

  /// Sets FullyShardOptions::reshard_after_forward for this unit.
  void set_reshard_after_forward(bool enabled);
  /// Whether the backward gathers the unit in advance, before it is known to need the values. False saves an all-gather
  /// if the backward of the unit does not use the values, as in an embedding. If an operator does need them, they are
  /// still gathered (Python fails then).
  void set_unshard_in_backward(bool enabled);
  /// The units of these modules are gathered in advance when a forward enters this unit, after this unit itself. By
  /// default, and with an empty list, it is the unit that the previous forward used next, from the second forward on
  /// (Python's default: none). Throws std::invalid_argument for a name that is not a unit's.
  void set_modules_to_forward_prefetch(const std::vector<std::string>& modules);
  /// The same for the backward. The default is the unit that the forward used before this one.
  void set_modules_to_backward_prefetch(const std::vector<std::string>& modules);
  /// Does for this unit what the model's function of this name does for all units.
  void set_gradient_divide_factor(double factor);
  /// Does for this unit what the model's function of this name does for all units.
  void set_force_sum_reduction_for_comms(bool enabled);
  /// Does for this unit what the model's function of this name does for all units.
  void set_reduce_scatter_unused_params(bool enabled);

  /// Gathers the unit's parameters for the next forward, which then needs no all-gather for them. With `async_op` it
  /// does not wait for the other ranks; the forward does. Until then operators without gradients may read the
  /// parameters. All ranks must call it at the same place among their forwards and backwards, after the optimizer's
  /// step; later changes of the shards by a fused kernel or .data() are not detected.
  void unshard(bool async_op = false);
  /// Frees the unit's parameters. Not a collective.
  void reshard();

 private:
  std::shared_ptr<FullyShardCore> core_;
  int number_;
};

}  // namespace ddp
