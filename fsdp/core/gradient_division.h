// By what gradients are divided around their reduction. Reference: _get_gradient_divide_factors of PyTorch's
// fully_shard(). Does not use LibTorch.
#pragma once

#include <optional>

namespace ddp::fsdp {

/// What decides.
struct DivisionCase {
  int shards = 1;                  ///< ranks of the reduce-scatter
  int replicas = 1;                ///< ranks of the all-reduce
  bool may_overflow = false;       ///< sums in this dtype overflow sooner than the gradients themselves
  bool only_sums = false;          ///< no averages by the backend
  std::optional<double> factor{};  ///< what the sum is divided by; default: the number of ranks
};

/// First the gradients are divided by `before` and multiplied by `multiplied`; after the reductions, each of which is
/// a sum or an average, the result is divided by `after`.
struct GradientDivision {
  double before = 1;
  double multiplied = 1;
  bool scatter_averages = false;
  bool all_reduce_averages = false;
  double after = 1;
};

/// In PyTorch's way, so that each number is rounded as there.
GradientDivision division_of(const DivisionCase& one);

}  // namespace ddp::fsdp
