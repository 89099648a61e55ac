// A unit of a fully sharded model: parameters that are gathered, freed and reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/fsdp/options.h>

#include "comm/collectives/begin.h"
#include "fsdp/block_cache.h"
#include "fsdp/sharded_parameter.h"

namespace ddp::fsdp {

/// What shares the parameters and gradients of a unit.
struct ShardGroups {
  GroupHandle shard;                     ///< each of its ranks has a part of every parameter
  std::optional<GroupHandle> replicate;  ///< its ranks have equal parts: with a mesh of two dimensions
};

/// A parameter of the module and its name.
struct UnitParameter {
  std::string name;
  at::Tensor tensor;
};

class InitialValues;

/// All functions that communicate are called by all ranks in the same order; wait() of a collective is part of the
/// function that needs its result.
class Unit {
 public:
  enum class State { kSharded, kGathering, kGathered };

  Unit(int number, std::string name, const std::vector<UnitParameter>& parameters, const ShardGroups& groups,
       const MixedPrecisionPolicy& policy, ParameterOwner* owner, BlockCache& cache, InitialValues& values);

  /// "blocks.3", or "the root".
  const std::string& name() const { return name_; }
  int number() const { return number_; }
  std::vector<ShardedParameter>& parameters() { return parameters_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  State state() const { return state_; }

  // ------------------------------------------------------------------------------------------------------- parameters
  /// Starts the all-gather unless the parameters are there or on their way.
  void start_gather();
  /// Waits for it and fills the module's tensors. `in_forward`: notes what the forward saw.
  void finish_gather(bool in_forward);
  /// Frees the module's tensors, and drops an all-gather that nobody has used.
  void free();
  /// Whether a shard was changed since they were gathered; not if past its version counter.
  bool is_stale() const;
  /// Throws std::runtime_error when a shard was changed since the forward.
  void check_unchanged_since_forward() const;

  // -------------------------------------------------------------------------------------------------------- gradients
  /// The forward uses a parameter.
  void mark_used(int parameter) { used_[static_cast<size_t>(parameter)] = true; }
  /// Before the first forward after a backward.
  void forget_uses() { used_.assign(parameters_.size(), false); }
  /// The backward begins to use this unit; `reduces`: its gradients will be reduced at its end.
  void expect_gradients(bool reduces);
  /// A backward begins.
  void begin_backward() { arrived_.assign(parameters_.size(), false); }
  /// The gradient of a parameter is complete.
  void note_arrival(int parameter) { arrived_[static_cast<size_t>(parameter)] = true; }
  /// Whether all gradients that the forward promised have arrived.
  bool is_complete() const;

  /// Takes the gradients off the module's tensors and starts their reduction. Nothing without gradients.
  void start_reduction(bool all_reduces);
  /// Waits for it and adds the result to the shards' gradients.
  void finish_reduction();
  bool is_reducing() const { return reduction_.has_value(); }
  /// Keeps the gradients on the module's tensors in the dtype in which they are added up.
  void keep_gradients();
  /// After a failure: as free(), and what the all-gather throws is dropped.
  void abandon_gather() noexcept;
  /// Drops what is under way and the gradients of the module's tensors.
  void reset() noexcept;
  /// Drops the gradients of the module's tensors, and what waits for an all-reduce.
  void drop_unreduced();

 private:
  struct Gathering {
    detail::Started call;
    at::Tensor gathered;
  };
  struct Reduction {
    detail::Started call;
    at::Tensor output;
    std::vector<size_t> parameters;
    bool all_reduces = true;
  };

  void restore_gradient_dtypes();
  bool waits_for_replicas(size_t parameter) const;
  bool sums_in_wider_dtype(const ShardedParameter& parameter) const;
  at::ScalarType gather_dtype() const;
  at::ScalarType reduce_dtype() const;
  std::string note(const char* what, const std::vector<size_t>& parameters) const;
  double pre_divisor(at::ScalarType dtype) const;
  void add_to_shards(const at::Tensor& reduced, const std::vector<size_t>& parameters);
  at::Tensor combined_with_partial(at::Tensor output, const std::vector<size_t>& parameters);

  int number_;
  std::string name_;
  ShardGroups groups_;
  MixedPrecisionPolicy policy_;
  BlockCache& cache_;
  std::vector<ShardedParameter> parameters_;
  State state_ = State::kSharded;
  std::optional<Gathering> gathering_;
  std::vector<bool> used_;
  std::vector<bool> arrived_;
  std::optional<Reduction> reduction_;
  at::Tensor partial_;                      // reduced over the shards' group, not yet over the replicas
  std::vector<size_t> partial_parameters_;  // whose gradients it has
};

}  // namespace ddp::fsdp
