// A unit of a fully sharded model: parameters that are gathered, freed and reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/collectives/begin.h"
#include "fsdp/sharded_parameter.h"
#include "fsdp/unit_context.h"
#include "fsdp/unit_gradients.h"

namespace ddp::fsdp {

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

  Unit(int number, std::string name, const std::vector<UnitParameter>& parameters, const UnitContext& context,
       InitialValues& values);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  /// "blocks.3", or "the root".
  const std::string& name() const { return name_; }
  int number() const { return number_; }
  std::vector<ShardedParameter>& parameters() { return parameters_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  State state() const { return state_; }

  /// Starts the all-gather unless the parameters are there or on their way.
  void start_gather();
  /// Waits for it and fills the module's tensors. `in_forward`: notes what the forward saw.
  void finish_gather(bool in_forward);
  /// Frees the module's tensors, and drops an all-gather that has not been used.
  void free();
  /// The program wants them to be there for the next forward.
  void keep_for_program() { is_kept_for_program_ = true; }
  /// The next forward has begun.
  void forget_program() { is_kept_for_program_ = false; }
  /// Whether it does, and they are those of the shards; the latter not if shards were changed past version counters.
  bool is_kept_for_program() const { return is_kept_for_program_ && !is_stale(); }
  /// Whether a shard has a gradient.
  bool has_gradients() const;
  /// Whether a shard was changed since they were gathered; not if past its version counter.
  bool is_stale() const;
  /// Throws std::runtime_error when a shard was changed since the forward.
  void check_unchanged_since_forward() const;

  UnitGradients& gradients() { return gradients_; }
  const UnitGradients& gradients() const { return gradients_; }

  /// After a failure: as free(), and what the all-gather throws is dropped.
  void abandon_gather() noexcept;
  /// Drops what is under way and the gradients of the module's tensors.
  void reset() noexcept;

 private:
  struct Gathering {
    detail::Started call;
    at::Tensor gathered;
  };
  void check_trainable_dtypes() const;
  at::ScalarType gather_dtype() const;
  void wait_for_gather();

  int number_;
  std::string name_;
  const UnitContext& context_;
  std::vector<ShardedParameter> parameters_;
  UnitGradients gradients_;
  State state_ = State::kSharded;
  bool is_kept_for_program_ = false;
  std::optional<Gathering> gathering_;
  int64_t gathered_bytes_ = 0;  // of the parameters when they are gathered
};

}  // namespace ddp::fsdp
