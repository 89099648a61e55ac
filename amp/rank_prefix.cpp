#include "amp/rank_prefix.h"

#include "base/rank_prefix.h"

namespace ddp::amp::detail {

std::string rank_prefix(const std::optional<GroupHandle>& group) {
  return group ? who(group->info()) + ": " : ddp::rank_prefix();
}

}  // namespace ddp::amp::detail
