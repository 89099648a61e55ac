// The file of --hostfile: one host per line, as mpirun, horovodrun, deepspeed and MPICH's hydra write it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"

namespace launcher {

// Lines "host", "host:4", "host slots=4", "host slots=4 max_slots=8" (max-slots too); `#` begins a comment; an IPv6
// address may stand without brackets where no slots follow a colon. Of a host that is named twice the slots add up.
// Throws LaunchError, which names `file` and the line.
std::vector<HostSlots> parse_host_file(std::string_view text, const std::string& file);

// Reads `file`. Throws LaunchError when that is impossible too.
std::vector<HostSlots> read_host_file(const std::string& file);

}  // namespace launcher
