#include "launcher/plan/job_nodes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/os/network/address.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/host_file.h"
#include "launcher/plan/host_selection.h"

namespace launcher {
namespace {

struct Room {
  JobNode node;
  int slots = 0;  // 0: nothing was said
};

std::vector<Room> rooms_of(std::vector<HostSlots> hosts, const IsLocal& is_local) {
  std::vector<Room> rooms;
  std::optional<std::size_t> own_index;
  for (HostSlots& host : hosts) {
    const bool is_here = is_local(host.host);
    if (!is_here || !own_index) {
      if (is_here) own_index = rooms.size();
      rooms.push_back({{.host = std::move(host.host), .is_local = is_here, .gpus = std::move(host.gpus)}, host.slots});
      continue;
    }
    Room& own = rooms[*own_index];
    own.slots = std::min(std::max(own.slots, 1) + std::max(host.slots, 1), Options::kMaxLocalRanks);
    own.node.gpus.insert(own.node.gpus.end(), host.gpus.begin(), host.gpus.end());
  }
  return rooms;
}

std::string ranks_text(int count) {
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

void share_out(std::vector<Room>& rooms, int ranks) {
  int left = ranks;
  for (Room& room : rooms) {
    room.node.ranks = std::min(left, std::max(room.slots, 1));
    left -= room.node.ranks;
  }
  if (left > 0) {
    throw LaunchError("the hosts of -H or --hostfile have slots for " + std::to_string(ranks - left) + " of " +
                      ranks_text(ranks) + ": write HOST:SLOTS (a host without a number has 1 slot), fewer ranks, or " +
                      "--nproc_per_node N for N ranks on each host");
  }
}

void give_each(std::vector<Room>& rooms, int ranks) {
  for (Room& room : rooms) {
    if (room.slots > 0 && ranks > room.slots) {
      throw LaunchError("host " + room.node.host + " has room for " + std::to_string(room.slots) + ", not for " +
                        ranks_text(ranks));
    }
    room.node.ranks = ranks;
  }
}

}  // namespace

std::vector<JobNode> plan_nodes(std::vector<HostSlots> hosts, const Options& options, const IsLocal& is_local) {
  std::vector<Room> rooms = rooms_of(std::move(hosts), is_local);
  if (options.nproc_per_node == Options::kUnset) {
    for (Room& room : rooms) room.node.ranks = std::max(room.slots, 1);
  } else if (options.nproc_per_node < 0 || !options.counts_all_ranks) {
    give_each(rooms, options.nproc_per_node);
  } else {
    share_out(rooms, options.nproc_per_node);
  }
  std::vector<JobNode> nodes;
  for (Room& room : rooms) {
    if (room.node.ranks == 0) continue;
    // A host of which only some GPUs were named keeps to the first of those.
    const auto ranks = static_cast<std::size_t>(std::max(room.node.ranks, 0));
    if (room.node.ranks > 0 && room.node.gpus.size() > ranks) room.node.gpus.resize(ranks);
    nodes.push_back(std::move(room.node));
  }
  return nodes;
}

std::vector<JobNode> job_nodes(const Options& options) {
  if (options.hosts.empty() && options.host_file.empty()) return {};
  std::vector<HostSlots> hosts =
      options.hosts.empty() ? read_host_file(options.host_file) : parse_host_list(options.hosts);
  const std::string own_name = host_name();
  return plan_nodes(
      select_hosts(std::move(hosts), options.include, options.exclude), options, [&own_name](const std::string& host) {
        const auto addresses = numeric_addresses(host, 0);
        return is_this_machine(host, own_name) || std::any_of(addresses.begin(), addresses.end(), is_own_address);
      });
}

}  // namespace launcher
