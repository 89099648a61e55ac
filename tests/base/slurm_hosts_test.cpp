// Slurm's lists. That scontrol expands hosts in the same way is in tests/launcher/slurm_test.py.
#include "base/schedulers/slurm_hosts.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

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

}  // namespace
}  // namespace ddp::detail
