#include "launcher/os/machine/cpu_binding.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>

namespace launcher {
namespace {

constexpr int kMaxCpus = 1 << 16;

// Divides the units 0 .. units-1 into `shares` contiguous parts, and returns the part of `share` as [first, last).
std::pair<std::size_t, std::size_t> part(std::size_t units, std::size_t shares, std::size_t share) {
  return {units * share / shares, units * (share + 1) / shares};
}

}  // namespace

std::vector<CpuBinding> bind_to_cores(std::vector<Cpu> cpus, int ranks) {
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
  });
  std::vector<std::vector<int>> cores;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    if (i == 0 || cpus[i].core != cpus[i - 1].core) cores.emplace_back();
    cores.back().push_back(cpus[i].number);
  }
  const auto shares = static_cast<std::size_t>(ranks);
  std::vector<CpuBinding> bindings(shares);
  for (std::size_t rank = 0; rank < shares; ++rank) {
    std::vector<int>& mine = bindings[rank].cpus;
    if (cores.size() >= shares) {
      const auto [first, last] = part(cores.size(), shares, rank);
      for (std::size_t core = first; core < last; ++core)
        mine.insert(mine.end(), cores[core].begin(), cores[core].end());
    } else if (cpus.size() >= shares) {
      const auto [first, last] = part(cpus.size(), shares, rank);
      for (std::size_t cpu = first; cpu < last; ++cpu) mine.push_back(cpus[cpu].number);
    } else {
      mine.push_back(cpus[cpus.size() * rank / shares].number);
    }
    std::sort(mine.begin(), mine.end());
  }
  return bindings;
}

std::vector<CpuBinding> bind_to_nodes(const std::vector<Cpu>& cpus, const std::vector<std::optional<int>>& gpu_nodes) {
  std::map<int, std::set<int>> cpus_of_node;
  for (const Cpu& cpu : cpus) cpus_of_node[cpu.node].insert(cpu.number);
  std::vector<int> nodes;
  for (const auto& [node, members] : cpus_of_node) nodes.push_back(node);
  std::vector<CpuBinding> bindings;
  for (std::size_t rank = 0; rank < gpu_nodes.size(); ++rank) {
    int node = nodes[nodes.size() * rank / gpu_nodes.size()];
    if (gpu_nodes[rank] && cpus_of_node.contains(*gpu_nodes[rank])) node = *gpu_nodes[rank];
    const std::set<int>& members = cpus_of_node.at(node);
    bindings.push_back({{members.begin(), members.end()}, node});
  }
  return bindings;
}

std::string to_cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[first]);
    if (last > first) text.append("-").append(std::to_string(cpus[last]));
    first = last + 1;
  }
  return text;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    int first = 0;
    const auto [middle, error] = std::from_chars(item.data(), item.data() + item.size(), first);
    if (error != std::errc() || first < 0 || first >= kMaxCpus) continue;
    int last = first;
    if (middle != item.data() + item.size() && *middle == '-') {
      if (std::from_chars(middle + 1, item.data() + item.size(), last).ec != std::errc()) continue;
    }
    for (int number = first; number <= last && number < kMaxCpus; ++number) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace launcher
