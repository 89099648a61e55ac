// Who connects to whom when there are more hosts than one ddprun opens connections to. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "launcher/remote/wire.h"

namespace launcher::remote {

// The hosts as at most `fanout` branches, as equal as can be: of each the first host is connected to, and reaches the
// others. Those that need no ssh are branches of their own besides.
std::vector<std::vector<NamedHost>> branches(const std::vector<NamedHost>& hosts, std::size_t fanout);

}  // namespace launcher::remote
