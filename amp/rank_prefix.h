// The beginning of this folder's error messages.
#pragma once

#include <optional>
#include <string>

#include <ddprun/comm/process_group.h>

namespace ddp::amp::detail {

/// "rank 1 of 2: ", of `group` if there is one, else of the launcher's variables.
std::string rank_prefix(const std::optional<GroupHandle>& group);

}  // namespace ddp::amp::detail
