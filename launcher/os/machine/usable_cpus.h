// Which CPUs this process may use: its affinity mask, reduced by cgroup quotas; and where they are.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/machine/cpu_binding.h"

namespace launcher {

// The CPUs that this process may use. What /sys does not say counts as one node, and every CPU as a core of its own.
// `sys`: where /sys is.
std::vector<Cpu> usable_cpu_topology(const std::string& sys = "/sys");

// The NUMA node of a PCI device such as "0000:1b:00.0"; nothing when the machine has none or does not say.
std::optional<int> numa_node_of_device(const std::string& bus_id, const std::string& sys = "/sys");

int usable_cpus();

// The CPUs that a process may run on; 0 when that is not known.
int usable_cpus_of(pid_t pid);

// The numbers of the CPUs in this process's affinity mask, ascending.
std::vector<int> affinity_cpus();

// Whole CPUs granted by the text of a cgroup v2 cpu.max file ("max 100000", "150000 100000"), rounded up; 0: no limit
// or not understood. Pure.
int cpus_from_cpu_max(std::string_view text);

// The smallest CPU quota on the way from this process's cgroups (v1 and v2) to their roots, in whole CPUs, rounded up;
// 0: no limit. From the texts of /proc/self/cgroup and /proc/self/mountinfo; reads the folders that they name.
int cpus_of_cgroups(std::string_view cgroups, std::string_view mounts);

// Threads per rank when OMP_NUM_THREADS is unset: an equal share of the CPUs, at least one. Pure.
int default_omp_threads(int cpus, int local_ranks);

}  // namespace launcher
