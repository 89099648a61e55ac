// The CPUs of this machine, as /sys describes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/machine/cpu_binding.h"

namespace launcher {

// The CPUs that this process may use. What /sys does not say counts as one node, and every CPU as a core of its own.
// `sys`: where /sys is.
std::vector<Cpu> usable_cpu_topology(const std::string& sys = "/sys");

// The NUMA node of a PCI device such as "0000:1b:00.0"; nothing when the machine has none or does not say.
std::optional<int> numa_node_of_device(const std::string& bus_id, const std::string& sys = "/sys");

}  // namespace launcher
