// The CPUs that this process may use, by its affinity mask and its cgroup quotas, and their positions on the machine.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/machine/cpu_binding.h"

namespace launcher {

// Returns the CPUs that this process may use. Without information in /sys, all belong to one node, and each CPU is a
// core. `sys`: the path of /sys.
std::vector<Cpu> usable_cpu_topology(const std::string& sys = "/sys");

// The NUMA node of a PCI device such as "0000:1b:00.0"; nothing when it is not known.
std::optional<int> numa_node_of_device(const std::string& bus_id, const std::string& sys = "/sys");

int usable_cpus();

// The number of CPUs that a process may use; 0 when it is not known.
int usable_cpus_of(pid_t pid);

// The numbers of the CPUs in this process's affinity mask, ascending.
std::vector<int> affinity_cpus();

// The number of CPUs, rounded up, that a cgroup v2 file cpu.max grants ("max 100000", "150000 100000"); 0: no limit, or
// invalid. Pure.
int cpus_from_cpu_max(std::string_view text);

// The smallest CPU quota of this process's cgroups (v1 and v2) and their parents, in whole CPUs, rounded up; 0: no
// limit. The arguments are the texts of /proc/self/cgroup and /proc/self/mountinfo; reads the folders that they name.
int cpus_of_cgroups(std::string_view cgroups, std::string_view mounts);

// The threads per rank when OMP_NUM_THREADS is unset: an equal share of the CPUs, at least one. Pure.
int default_omp_threads(int cpus, int local_ranks);

}  // namespace launcher
