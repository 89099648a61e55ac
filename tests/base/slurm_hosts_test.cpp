// Slurm's lists, and that scontrol expands hosts in the same way.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/schedulers/slurm_step.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace ddp::detail {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("SlurmHosts: expands ranges as wide as they are written, in the list's order") {
  CHECK(expand_slurm_hosts("n[01-03,7],m1") == Names{"n01", "n02", "n03", "n7", "m1"});
  CHECK(expand_slurm_hosts("node") == Names{"node"});
  CHECK(expand_slurm_hosts("n[9-11]") == Names{"n9", "n10", "n11"});
  CHECK(expand_slurm_hosts("n[08-10]") == Names{"n08", "n09", "n10"});
  CHECK(expand_slurm_hosts("n[8-010]") == Names{"n8", "n9", "n10"});
  CHECK(expand_slurm_hosts("n[099-101]") == Names{"n099", "n100", "n101"});
  CHECK(expand_slurm_hosts("b[2,1],a") == Names{"b2", "b1", "a"});
  CHECK(expand_slurm_hosts("r[0-1]n[1-2]") == Names{"r0n1", "r0n2", "r1n1", "r1n2"});
  CHECK(expand_slurm_hosts("gpu-a.cluster,[3-4]") == Names{"gpu-a.cluster", "3", "4"});
  CHECK(expand_slurm_hosts("a,a") == Names{"a", "a"});
}

TEST_CASE("SlurmHosts: what is no list is refused") {
  for (const char* list : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "n[",
                           "n]",
                           "n[]",
                           "n[1",
                           "n1]",
                           "n[1,]",
                           "n[,1]",
                           "n[1-]",
                           "n[-1]",
                           "n[3-1]",
                           "n[a-c]",
                           "n[0x1-3]",
                           "n[1-2-3]",
                           "n[1 ]",
                           "n[[1]]",
                           "n[1]]",
                           "n[9999999999]",
                           "n[1-99999]",
                           "n[1-300][1-300]",
                           "n[1-60000],m[1-60000]",
                           "[0-9][0-9][0-9][0-9][0-9]"}) {
    CAPTURE(list);
    CHECK_THROWS_AS(expand_slurm_hosts(list), std::invalid_argument);
  }
  CHECK_THROWS_AS(expand_slurm_hosts(std::string(256, 'n')), std::invalid_argument);
  CHECK(expand_slurm_hosts("n[1-65536]").size() == 65536);
}

TEST_CASE("SlurmHosts: tells a node's tasks") {
  const std::vector<int> tasks = {2, 2, 2, 1, 16};
  for (std::size_t node = 0; node < tasks.size(); ++node) {
    CAPTURE(node);
    CHECK(slurm_tasks_on("2(x3),1,16", static_cast<int>(node)) == tasks[node]);
  }
  CHECK(slurm_tasks_on("8", 0) == 8);
}

TEST_CASE("SlurmHosts: what does not tell a node's tasks is refused") {
  for (const char* list : {"", ",", "2(x3", "2(x)", "2(x0)", "2(3)", "x", "-1", "2(x3)1", "1,", "2(x-1)"}) {
    CAPTURE(list);
    CHECK_THROWS_AS(slurm_tasks_on(list, 5), std::invalid_argument);
  }
  CHECK_THROWS_AS(slurm_tasks_on("2(x3),1", 4), std::invalid_argument);
}

Names output_lines(const std::string& command) {
  Names lines;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::array<char, 512> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    const std::string text = line.data();
    lines.push_back(text.substr(0, text.find('\n')));
  }
  return lines;
}

// A list as Slurm writes them, or a little odder: ranges of several widths, two brackets in a name, a host twice.
class RandomList {
 public:
  std::string next() {
    std::string list;
    for (int entries = below(4); entries >= 0; --entries) list += (list.empty() ? "" : ",") + entry();
    return list;
  }

 private:
  int below(int size) { return std::uniform_int_distribution(0, size - 1)(random_); }

  std::string number(int value) {
    std::string digits = std::to_string(value);
    if (below(2) == 0) digits.insert(0, static_cast<std::size_t>(below(3)), '0');
    return digits;
  }

  std::string group() {
    std::string ranges;
    for (int count = below(3); count >= 0; --count) {
      const int first = below(120);
      ranges += (ranges.empty() ? "" : ",") + number(first);
      if (below(2) == 0) ranges += "-" + std::to_string(first + below(12));
    }
    return "[" + ranges + "]";
  }

  std::string entry() {
    constexpr std::array kNames = {"n", "gpu-", "rack1-node", "a.b", "x2y"};
    std::string text = kNames[static_cast<std::size_t>(below(kNames.size()))];
    if (below(4) == 0) return text + std::to_string(below(100));
    text += group();
    if (below(5) == 0) text += "p" + group();
    return text;
  }

  std::mt19937 random_{11};
};

TEST_CASE("SlurmHosts: random lists are what scontrol makes of them") {
  if (std::system("command -v scontrol > /dev/null 2>&1") != 0) SKIP("scontrol is not installed");
  const test::TemporaryFolder folder;
  const std::string configuration = (folder.path() / "slurm.conf").string();
  std::ofstream(configuration) << "ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\n";
  RandomList random;
  for (int round = 0; round < 100; ++round) {
    const std::string list = random.next();
    CAPTURE(list);
    CHECK(expand_slurm_hosts(list) ==
          output_lines("SLURM_CONF='" + configuration + "' scontrol show hostnames '" + list + "'"));
  }
}

}  // namespace
}  // namespace ddp::detail
