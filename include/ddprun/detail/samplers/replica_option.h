// A sampler's `.num_replicas` and `.rank`: taken from a group, given by hand, or refused where they are missing and
// matter. No LibTorch.
#pragma once

#include <optional>
#include <string>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/base/rank_option.h>

namespace ddp {

/// Which share of the samples is this rank's.
struct Replica {
  int num_replicas = 1;
  int rank = 0;
};

/// The share that the options name. Both or neither should be given; `num_replicas` of 1 needs no rank. Throws
/// std::invalid_argument when one is missing and matters: neither in a job of several ranks, where every rank would get
/// everything, and several replicas without a rank, where every rank would get the first share. Whether the rank is
/// within num_replicas is check_replica()'s business.
Replica require_replica(const std::string& sampler, std::optional<int> num_replicas, std::optional<int> rank);

namespace detail {
[[noreturn]] void refuse_second_size(const std::string& sampler, int given, int of_group);
}  // namespace detail

/// Options with the group's rank and size. Throws std::invalid_argument when they have a rank already, see with_rank(),
/// or another size.
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
