// A sampler's options `.num_replicas` and `.rank`: copied from a group, or set by the program. If they are missing but
// needed, an error is thrown. Does not use LibTorch.
#pragma once

#include <optional>
#include <string>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/base/rank_option.h>

namespace ddp {

/// Identifies this rank's share of the samples.
struct Replica {
  int num_replicas = 1;
  int rank = 0;
};

/// Returns the share that the options specify. Both options or neither should be set; if `num_replicas` is 1, no rank
/// is needed. Throws std::invalid_argument in two cases: if neither is set in a job of several ranks, because every
/// rank would get all samples; and if there are several replicas but no rank, because every rank would get the first
/// share. check_replica() checks whether the rank is less than num_replicas.
Replica require_replica(const std::string& sampler, std::optional<int> num_replicas, std::optional<int> rank);

namespace detail {
[[noreturn]] void refuse_second_size(const std::string& sampler, int given, int of_group);
}  // namespace detail

/// Returns the options with the group's rank and size. Throws std::invalid_argument if they already have a rank, see
/// with_rank(), or another size.
template <typename Options, RankedGroup Group>
Options with_replica(const std::string& sampler, Options options, const Group& group) {
  options = with_rank(sampler, options, group);
  const int size = group.size();
  if (options.num_replicas && *options.num_replicas != size) {
    detail::refuse_second_size(sampler, *options.num_replicas, size);
  }
  options.num_replicas = size;
  return options;
}

}  // namespace ddp
