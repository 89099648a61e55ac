// The beginning of the error messages in this folder.
#pragma once

#include <optional>
#include <string>

#include <ddprun/comm/process_group.h>

namespace ddp::amp::detail {

/// Returns a prefix such as "rank 1 of 2: ", from `group` if there is one, otherwise from the launcher's environment
/// variables.
std::string rank_prefix(const std::optional<GroupHandle>& group);

}  // namespace ddp::amp::detail
