// "localhost:4,node7:8": hosts and how many ranks each takes, as mpirun's and horovodrun's -H has it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct HostSlots {
  std::string host;
  int slots = 1;

  bool operator==(const HostSlots&) const = default;
};

// A host without a number has one slot; of a host that is named twice the slots add up; an IPv6 address stands in
// brackets: [::1]:4. Throws LaunchError for a list that is none.
std::vector<HostSlots> parse_host_list(std::string_view text);

// The slots of a list that names nothing but this machine, whose name is `own_name`. Throws LaunchError for another
// host.
int local_slots(const std::vector<HostSlots>& hosts, std::string_view own_name);

}  // namespace launcher
