// What samplers, writers and bars ask of a process group, so that they need to know none.
#pragma once

#include <concepts>

namespace ddp {

/// Knows which rank this is, of how many: ProcessGroup, GroupHandle, horovod's Context, or a class of your own.
template <typename Group>
concept RankedGroup = requires(const Group& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.size() } -> std::convertible_to<int>;
};

}  // namespace ddp
