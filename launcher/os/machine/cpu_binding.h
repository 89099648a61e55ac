// Which CPUs, and which memory, each rank of this node may use. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct Cpu {
  int number = 0;
  int core = 0;  // hyperthreads of one core have the same; unique on the machine
  int node = 0;  // NUMA
};

struct CpuBinding {
  std::vector<int> cpus;  // ascending
  std::optional<int> memory_node = std::nullopt;
};

// Contiguous shares of the cores, as equal as can be; hyperthreads stay with their core. With fewer cores than ranks
// the single CPUs are shared out, and with fewer CPUs than ranks several ranks get the same one. `cpus` must not be
// empty.
std::vector<CpuBinding> bind_to_cores(std::vector<Cpu> cpus, int ranks);

// Each rank gets all CPUs of one NUMA node, and that node's memory first: the node of its GPU where that is known and
// usable (`gpu_nodes`: one per rank), else nodes in turn, the ranks in contiguous blocks. `cpus` must not be empty.
std::vector<CpuBinding> bind_to_nodes(const std::vector<Cpu>& cpus, const std::vector<std::optional<int>>& gpu_nodes);

// 0, 1, 2, 3, 8 -> "0-3,8"; `cpus` ascending.
std::string to_cpu_list(const std::vector<int>& cpus);

// "0-3,8" -> 0, 1, 2, 3, 8, as in /sys; what is not understood is left out.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace launcher
