// How the ranks of a job are distributed over its nodes. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace launcher {

// The ranks that a node offers.
struct RoleInfo {
  std::string role;
  int node = 0;
  int local_world_size = 0;
};

// The ranks that a node gets: its first rank and the total number, in the job and within its role.
struct NodeRanks {
  int first_rank = 0;
  int world_size = 0;
  int first_role_rank = 0;
  int role_world_size = 0;
};

// A node's number, the number of nodes, and its ranks.
struct NodePlace {
  int group_rank = 0;
  int group_world_size = 1;
  NodeRanks ranks{};
};

// Assigns consecutive ranks in the order of the nodes; nodes may have different numbers of ranks.
inline std::vector<NodeRanks> assign_ranks(const std::vector<RoleInfo>& nodes) {
  int world_size = 0;
  std::map<std::string, int> role_sizes;
  for (const RoleInfo& node : nodes) {
    world_size += node.local_world_size;
    role_sizes[node.role] += node.local_world_size;
  }
  std::vector<NodeRanks> assigned;
  int next = 0;
  std::map<std::string, int> next_of_role;
  for (const RoleInfo& node : nodes) {
    assigned.push_back({next, world_size, next_of_role[node.role], role_sizes[node.role]});
    next += node.local_world_size;
    next_of_role[node.role] += node.local_world_size;
  }
  return assigned;
}

}  // namespace launcher
