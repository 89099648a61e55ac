// Settings of one unit of a fully sharded model. Reference: torch.distributed.fsdp.FSDPModule, as far as its functions
// do not concern the modules inside.
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

  /// As FullyShardOptions::reshard_after_forward, of this unit.
  void set_reshard_after_forward(bool enabled);
  /// Whether the backward gathers the unit before it has shown to need the values. False saves an all-gather where only
  /// gradients arrive, as with an embedding; an operator that needs them still has them gathered, where Python fails.
  void set_unshard_in_backward(bool enabled);
  /// The units of these modules are gathered in advance when this one begins in a forward, after it has been gathered
  /// itself; by default, and with an empty list, the unit that the forward before used next, from the second forward on
  /// (Python's: none). Throws std::invalid_argument for a name that is not a unit's.
  void set_modules_to_forward_prefetch(const std::vector<std::string>& modules);
  /// The same of the backward, where the default is the unit that the forward used before this one.
  void set_modules_to_backward_prefetch(const std::vector<std::string>& modules);
  /// As the model's function of that name, for this unit.
  void set_gradient_divide_factor(double factor);
  /// As the model's function of that name, for this unit.
  void set_force_sum_reduction_for_comms(bool enabled);
  /// As the model's function of that name, for this unit.
  void set_reduce_scatter_unused_params(bool enabled);

  /// Gathers the unit's parameters for the next forward, which then need no all-gather of its own. With `async_op` it
  /// does not wait for the other ranks; the forward does. Until then operators without gradients may read the
  /// parameters. All ranks must call it at the same place among their forwards and backwards, after the optimizer's
  /// step; shards that a fused kernel or .data() changes later are not seen.
  void unshard(bool async_op = false);
  /// Frees them. No rank needs another.
  void reshard();

 private:
  std::shared_ptr<FullyShardCore> core_;
  int number_;
};

}  // namespace ddp
