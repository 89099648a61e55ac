// How the ranks of a job are spread over its nodes, in the form that torchrun's static rendezvous exchanges. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

// What a node brings.
struct RoleInfo {
  std::string role;
  int node = 0;
  int local_world_size = 0;
};

// What a node is given: its first rank and the size, of the job and within its role.
struct NodeRanks {
  int first_rank = 0;
  int world_size = 0;
  int first_role_rank = 0;
  int role_world_size = 0;
};

// Consecutive ranks in the order of the nodes; nodes may have different numbers of ranks.
std::vector<NodeRanks> assign_ranks(const std::vector<RoleInfo>& nodes);

std::string to_json(const RoleInfo& info);
std::string to_json(const NodeRanks& ranks);
// Nothing when the text is not what another launcher would write.
std::optional<RoleInfo> parse_role_info(std::string_view text);
std::optional<NodeRanks> parse_node_ranks(std::string_view text);

// The first failure in the job, told to the other nodes.
struct FailureNotice {
  int node = 0;
  int exit_status = 1;
  std::string text;
};
std::string to_json(const FailureNotice& notice);
std::optional<FailureNotice> parse_failure_notice(std::string_view text);

}  // namespace launcher
