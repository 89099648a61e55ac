// How the ranks of a job are spread over its nodes. Pure.
#pragma once

#include <string>
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

// A node's number, how many there are, and its ranks.
struct NodePlace {
  int group_rank = 0;
  int group_world_size = 1;
  NodeRanks ranks{};
};

// Consecutive ranks in the order of the nodes; nodes may have different numbers of ranks.
std::vector<NodeRanks> assign_ranks(const std::vector<RoleInfo>& nodes);

}  // namespace launcher
