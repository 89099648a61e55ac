// deepspeed's --include and --exclude: which hosts of a list take part, and which of their slots. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/host_list.h"

namespace launcher {

// `include` and `exclude` are "HOST[:SLOT,...]@..."; at most one of them is not empty. With `include` the hosts that it
// names remain, with `exclude` the others; where slots are named, a host keeps or loses those, its `gpus` are the ones
// that remain, and it has as many ranks. Throws LaunchError for a host or a slot that is not there, and when nothing
// remains.
std::vector<HostSlots> select_hosts(std::vector<HostSlots> hosts, const std::string& include,
                                    const std::string& exclude);

}  // namespace launcher
