// The `.rank` of options: taken from a group, given by hand, or refused where it is missing and matters. No LibTorch
// here.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <ddprun/base/rank_info.h>

namespace ddp {

/// Options with the group's rank as their `.rank`. `what` begins an error. Throws std::invalid_argument when they have
/// one already, be it the same: a number in the program is right on one rank and wrong on the others, which would wait
/// for the one that throws.
template <typename Options, RankedGroup Group>
Options with_rank(const std::string& what, Options options, const Group& group);

/// The rank for an object whose output only one rank of a job should show or write: the given rank, else 0. Throws
/// std::invalid_argument in a job of several ranks if no rank was given, because every process would act as rank 0:
/// `consequence` says what all ranks would do, and `spelling` how the group is given, such as `SummaryWriter(folder,
/// group)`.
int require_rank(const std::string& what, std::optional<int> rank, const std::string& consequence,
                 const std::string& spelling);

namespace detail {
[[noreturn]] void refuse_second_rank(const std::string& what, int given);
}  // namespace detail

template <typename Options, RankedGroup Group>
Options with_rank(const std::string& what, Options options, const Group& group) {
  if (options.rank) detail::refuse_second_rank(what, *options.rank);
  options.rank = group.rank();
  return options;
}

}  // namespace ddp
