#include "launcher/os/machine/cpu_topology.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>

#include "launcher/os/machine/usable_cpus.h"

namespace launcher {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::vector<Cpu> usable_cpu_topology(const std::string& sys) {
  std::map<int, int> node_of_cpu;
  for (const int node : parse_cpu_list(first_line(sys + "/devices/system/node/online"))) {
    const std::string list = first_line(sys + "/devices/system/node/node" + std::to_string(node) + "/cpulist");
    for (const int cpu : parse_cpu_list(list)) node_of_cpu[cpu] = node;
  }
  std::vector<Cpu> cpus;
  for (const int number : affinity_cpus()) {
    const std::string folder = sys + "/devices/system/cpu/cpu" + std::to_string(number) + "/topology/";
    const std::vector<int> siblings = parse_cpu_list(first_line(folder + "thread_siblings_list"));
    const auto node = node_of_cpu.find(number);
    cpus.push_back({.number = number,
                    .core = siblings.empty() ? number : *std::min_element(siblings.begin(), siblings.end()),
                    .node = node == node_of_cpu.end() ? 0 : node->second});
  }
  return cpus;
}

std::optional<int> numa_node_of_device(const std::string& bus_id, const std::string& sys) {
  const std::string text = first_line(sys + "/bus/pci/devices/" + bus_id + "/numa_node");
  int node = -1;
  std::from_chars(text.data(), text.data() + text.size(), node);
  return node < 0 ? std::nullopt : std::optional(node);
}

}  // namespace launcher
