// The values that the launchers of several nodes write into the store for each other: those of torchrun's static
// rendezvous, and ddprun's own notice of a failure. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher {

std::string to_json(const RoleInfo& info);
std::string to_json(const NodeRanks& ranks);
std::string to_json(const FailureNotice& notice);
// Returns nothing when the text is not what another launcher would write.
std::optional<RoleInfo> parse_role_info(std::string_view text);
std::optional<NodeRanks> parse_node_ranks(std::string_view text);
std::optional<FailureNotice> parse_failure_notice(std::string_view text);

}  // namespace launcher
