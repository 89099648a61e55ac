// Slurm's short ways to write lists: "n[01-03,7],m1" for hosts, "2(x3),1" for tasks on each node. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

/// The hosts of a list, in its order, as `scontrol show hostnames` prints them. Throws std::invalid_argument for what
/// is no list, and for more than 65536 hosts.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

/// The number for node `node`, from 0, of a list such as "2(x3),1"; it is 1 there for node 3. Throws
/// std::invalid_argument for what is no list, and where it ends before that node.
int slurm_tasks_on(std::string_view list, int node);

}  // namespace ddp::detail
