#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/os/machine/usable_cpus.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

// A /sys of the test, for the CPUs that this process has.
class Sys {
 public:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((folder_ / path).parent_path());
    ddp::test::write_file(folder_ / path, text);
  }
  void siblings(int cpu, const std::string& list) const {
    write("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list);
  }
  std::vector<Cpu> cpus() const { return usable_cpu_topology(folder_.path()); }
  std::optional<int> node_of(const std::string& device) const { return numa_node_of_device(device, folder_.path()); }

 private:
  ddp::test::TemporaryFolder folder_;
};

TEST_CASE("CpuTopology: every CPU is a core of its own on one node where /sys says nothing") {
  const Sys empty;
  std::vector<int> numbers;
  for (const Cpu& cpu : empty.cpus()) {
    numbers.push_back(cpu.number);
    CHECK(cpu.core == cpu.number);
    CHECK(cpu.node == 0);
  }
  CHECK(numbers == affinity_cpus());
}

TEST_CASE("CpuTopology: hyperthreads have one core, and CPUs their node") {
  const Sys sys;
  const std::vector<int> numbers = affinity_cpus();
  const std::string all = to_cpu_list(numbers);
  for (const int number : numbers) sys.siblings(number, all + "\n");
  sys.write("devices/system/node/online", "0,3\n");
  sys.write("devices/system/node/node0/cpulist", "60000-60010\n");
  sys.write("devices/system/node/node3/cpulist", all + "\n");
  const std::vector<Cpu> cpus = sys.cpus();
  REQUIRE(cpus.size() == numbers.size());
  for (const Cpu& cpu : cpus) {
    CHECK(cpu.core == numbers.front());
    CHECK(cpu.node == 3);
  }
}

TEST_CASE("CpuTopology: what cannot be understood counts as if it were not there") {
  const Sys sys;
  const int first = affinity_cpus().front();
  for (const std::string text : {"", "\n", "x", "-1", "\xff\xff", "99999999999", "5-3", ","}) {
    CAPTURE(text);
    sys.siblings(first, text);
    sys.write("devices/system/node/online", text);
    const std::vector<Cpu> cpus = sys.cpus();
    REQUIRE_FALSE(cpus.empty());
    CHECK(cpus.front().core == first);
    CHECK(cpus.front().node == 0);
  }
  // A node that is online but says nothing of its CPUs: one whose memory alone is used.
  sys.write("devices/system/node/online", "0-2\n");
  CHECK(sys.cpus().front().node == 0);
}

TEST_CASE("CpuTopology: of this machine has the CPUs that this process may use") {
  const std::vector<Cpu> cpus = usable_cpu_topology();
  REQUIRE_FALSE(cpus.empty());
  CHECK(cpus.size() == affinity_cpus().size());
  CHECK(std::is_sorted(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) { return a.number < b.number; }));
  for (const Cpu& cpu : cpus) {
    CHECK(cpu.core <= cpu.number);
    CHECK(cpu.node >= 0);
  }
}

TEST_CASE("NumaNodeOfDevice: is what the machine says, and nothing where it says none") {
  const Sys sys;
  const auto node = [&](const std::string& text) {
    sys.write("bus/pci/devices/0000:1b:00.0/numa_node", text);
    return sys.node_of("0000:1b:00.0");
  };
  CHECK(node("1\n") == 1);
  CHECK(node("0\n") == 0);
  CHECK_FALSE(node("-1\n"));
  CHECK_FALSE(node(""));
  CHECK_FALSE(node("x"));
  CHECK_FALSE(node("99999999999\n"));
  CHECK_FALSE(sys.node_of("0000:ff:00.0"));
  CHECK_FALSE(sys.node_of(""));
}

}  // namespace
}  // namespace launcher
