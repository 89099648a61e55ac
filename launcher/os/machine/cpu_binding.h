// Which CPUs and which memory each rank of this node may use. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct Cpu {
  int number = 0;
  int core = 0;  // the same for all hyperthreads of a core; unique on the machine
  int node = 0;  // the NUMA node
};

struct CpuBinding {
  std::vector<int> cpus;  // ascending
  std::optional<int> memory_node = std::nullopt;
};

// Gives each rank a contiguous share of the cores, as equal as possible, with all hyperthreads of a core. With fewer
// cores than ranks the single CPUs are divided; with fewer CPUs than ranks several ranks get the same CPU. `cpus` must
// not be empty.
std::vector<CpuBinding> bind_to_cores(std::vector<Cpu> cpus, int ranks);

// Gives each rank all CPUs of one NUMA node, and prefers that node's memory. It is the node of the rank's GPU if that
// is known and usable (`gpu_nodes`: one per rank). Otherwise the ranks are divided among the nodes in contiguous
// blocks. `cpus` must not be empty.
std::vector<CpuBinding> bind_to_nodes(const std::vector<Cpu>& cpus, const std::vector<std::optional<int>>& gpu_nodes);

// 0, 1, 2, 3, 8 -> "0-3,8"; `cpus` ascending.
std::string to_cpu_list(const std::vector<int>& cpus);

// "0-3,8" -> 0, 1, 2, 3, 8, as in /sys; invalid parts are ignored.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace launcher
