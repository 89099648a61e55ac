#include "launcher/plan/rank_assignment.h"

#include <map>

namespace launcher {

std::vector<NodeRanks> assign_ranks(const std::vector<RoleInfo>& nodes) {
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
