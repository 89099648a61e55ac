#include "launcher/os/machine/usable_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>
#include <thread>

#include "launcher/os/machine/own_cgroup.h"

namespace launcher {
namespace {

std::string read_small_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The smaller of two limits; 0 means no limit.
int smaller_limit(int a, int b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

// cgroup v2 has both numbers in one file, v1 in two files.
int cpus_of_folder(const std::string& folder, bool is_unified) {
  if (is_unified) return cpus_from_cpu_max(read_small_file(folder + "/cpu.max"));
  const std::string quota = read_small_file(folder + "/cpu.cfs_quota_us");
  if (quota.empty()) return 0;
  return cpus_from_cpu_max(quota.substr(0, quota.find('\n')) + " " + read_small_file(folder + "/cpu.cfs_period_us"));
}

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

int cpus_of_cgroups(std::string_view cgroups, std::string_view mounts) {
  int fewest = 0;
  for (const char* controller : {"", "cpu"}) {
    auto folder = cgroup_folder(cgroups, mounts, controller);
    while (folder && !folder->empty()) {
      fewest = smaller_limit(fewest, cpus_of_folder(*folder, *controller == '\0'));
      folder->resize(folder->rfind('/') == std::string::npos ? 0 : folder->rfind('/'));
    }
  }
  return fewest;
}

int cpus_from_cpu_max(std::string_view text) {
  std::int64_t quota = 0;
  std::int64_t period = 0;
  const char* end = text.data() + text.size();
  auto [after_quota, quota_error] = std::from_chars(text.data(), end, quota);
  if (quota_error != std::errc() || after_quota == end || *after_quota != ' ') return 0;
  auto [after_period, period_error] = std::from_chars(after_quota + 1, end, period);
  if (period_error != std::errc() || quota <= 0 || period <= 0) return 0;
  const std::int64_t cpus = quota / period + (quota % period != 0 ? 1 : 0);
  return static_cast<int>(std::min<std::int64_t>(cpus, 1 << 20));
}

int default_omp_threads(int cpus, int local_ranks) {
  return std::max(1, cpus / std::max(1, local_ranks));
}

std::vector<int> affinity_cpus() {
  // The kernel refuses a mask that is shorter than its own; machines with more than 1024 CPUs need a longer one.
  for (std::size_t cpus = CPU_SETSIZE; cpus <= (1U << 16); cpus *= 2) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    const std::size_t bytes = mask.size() * sizeof(unsigned long);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(0, bytes, set) != 0) continue;
    std::vector<int> numbers;
    for (std::size_t cpu = 0; cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) numbers.push_back(static_cast<int>(cpu));
    }
    return numbers;
  }
  std::vector<int> numbers(std::max(1U, std::thread::hardware_concurrency()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

int usable_cpus_of(pid_t pid) {
  for (std::size_t cpus = CPU_SETSIZE; cpus <= (1U << 16); cpus *= 2) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    const std::size_t bytes = mask.size() * sizeof(unsigned long);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(pid, bytes, set) == 0) return CPU_COUNT_S(bytes, set);
    if (errno != EINVAL) return 0;
  }
  return 0;
}

int usable_cpus() {
  const int affinity = std::max(1, static_cast<int>(affinity_cpus().size()));
  const int quota = cpus_of_cgroups(read_small_file("/proc/self/cgroup"), read_small_file("/proc/self/mountinfo"));
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

}  // namespace launcher
