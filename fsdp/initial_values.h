// The initial values of a model's shards: those of its construction (of this rank, or of rank 0), or no values. They
// are loaded into memory one parameter after the other, because a whole model of deferred_init() may not fit.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <vector>

#include "fsdp/unit.h"

namespace ddp::fsdp {

struct InitialValuesOptions {
  bool broadcasts = true;          ///< all ranks take those of the mesh's first rank
  bool computes = true;            ///< else parameters are NaN
  c10::Device device = c10::kCPU;  ///< where the ranks communicate; the tensors may be on the CPU beside it
};

class InitialValues {
 public:
  /// Both have to live as long.
  InitialValues(const ShardGroups& groups, const InitialValuesOptions& options) : groups_(groups), options_(options) {}

  /// All buffers of the model. A collective.
  void initialize_buffers(const torch::nn::Module& module) const;

  /// Before the parameter `next` of a unit is sharded: gives it its values, and with it some that follow, in one
  /// message. To be called for all parameters of a unit in their order. A collective.
  void initialize_parameter(const std::vector<UnitParameter>& parameters, size_t next);

  /// Of parameters that belong to no unit, whose values each rank has for itself.
  void compute_rest(const torch::nn::Module& module) const;

 private:
  bool needs_own_values() const;
  void initialize(const std::vector<at::Tensor>& tensors) const;

  const ShardGroups& groups_;
  InitialValuesOptions options_;
  size_t end_ = 0;  // of the parameters of this unit that have their values
};

}  // namespace ddp::fsdp
