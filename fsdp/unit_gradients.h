// The gradients of a unit: which have arrived, their reduction, and their way into the shards' gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/collectives/begin.h"
#include "fsdp/core/gradient_division.h"
#include "fsdp/sharded_parameter.h"
#include "fsdp/unit_context.h"

namespace ddp::fsdp {

/// How the gradients of a unit are reduced; a program may change it between two steps.
struct ReductionSettings {
  std::optional<double> divide_factor{};
  bool only_sums = false;
  bool reduces_unused = false;  ///< parameters without a gradient take part with zeros
};

/// Of `parameters`, all of a unit's, which outlive it. Functions that communicate are called by all ranks in the same
/// order.
class UnitGradients {
 public:
  UnitGradients(int number, const std::string& name, std::vector<ShardedParameter>& parameters,
                const UnitContext& context);

  /// The forward uses a parameter.
  void mark_used(int parameter) { used_[static_cast<size_t>(parameter)] = true; }
  /// Before the first forward after a backward.
  void forget_uses() { used_.assign(parameters_.size(), false); }
  /// The backward begins to use this unit; `reduces`: its gradients will be reduced at its end.
  void expect(bool reduces);
  /// A backward begins.
  void begin_backward() { arrived_.assign(parameters_.size(), false); }
  /// The gradient of a parameter is complete.
  void note_arrival(int parameter) { arrived_[static_cast<size_t>(parameter)] = true; }
  /// Whether all gradients that the forward promised have arrived.
  bool are_complete() const;

  ReductionSettings& settings() { return settings_; }
  /// Takes the gradients off the module's tensors and starts their reduction. Nothing without gradients.
  void start_reduction(bool all_reduces);
  /// Waits for it and adds the result to the shards' gradients.
  void finish_reduction();
  bool is_reducing() const { return reduction_.has_value(); }
  /// Whether backwards have left gradients that are not reduced, or not over the replicas.
  bool has_unreduced() const;
  /// Keeps the gradients on the module's tensors in the dtype in which they are added up.
  void keep();
  /// Drops what is under way and the gradients of the module's tensors.
  void reset() noexcept;
  /// Drops the gradients of the module's tensors, and what waits for an all-reduce.
  void drop_unreduced();

 private:
  struct Reduction {
    detail::Started call;
    at::Tensor output;
    std::vector<size_t> parameters;
    GradientDivision division;
    bool all_reduces = true;
  };

  void restore_dtypes();
  bool waits_for_replicas(size_t parameter) const;
  bool sums_in_wider_dtype(const ShardedParameter& parameter) const;
  at::ScalarType reduce_dtype() const;
  std::string note(const std::vector<size_t>& parameters) const;
  GradientDivision division(at::ScalarType dtype) const;
  bool takes_part_with_zeros(size_t parameter) const;
  std::vector<at::Tensor> take(std::vector<size_t>& parameters);
  void add_to_shards(const at::Tensor& flat, const std::vector<size_t>& parameters);
  at::Tensor combined_with_partial(at::Tensor output, const std::vector<size_t>& parameters);

  int number_;
  const std::string& name_;
  std::vector<ShardedParameter>& parameters_;
  const UnitContext& context_;
  ReductionSettings settings_;
  std::vector<bool> used_;
  std::vector<bool> arrived_;
  std::optional<Reduction> reduction_;
  at::Tensor partial_;                      // reduced over the shards' group, not yet over the replicas
  std::vector<size_t> partial_parameters_;  // whose gradients it has
};

}  // namespace ddp::fsdp
