#include "launcher/os/machine/own_cgroup.h"

#include "tests/support/catch.h"

namespace launcher {
namespace {

constexpr const char* kUnified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_CASE("CgroupFolder: is below the mount") {
  CHECK(cgroup_folder("0::/user.slice/a b.scope\n", kUnified) == "/sys/fs/cgroup/user.slice/a b.scope");
  CHECK(cgroup_folder("0::/\n", kUnified) == "/sys/fs/cgroup");
}

TEST_CASE("CgroupFolder: is found beside the old hierarchies") {
  CHECK(cgroup_folder("4:memory:/m\n1:cpu:/c\n0::/u\n",
                      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n") == "/sys/fs/cgroup/unified/u");
}

TEST_CASE("CgroupFolder: is found where only a part is mounted") {
  const char* part = "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  CHECK(cgroup_folder("0::/box/job\n", part) == "/sys/fs/cgroup/job");
  CHECK(cgroup_folder("0::/box\n", part) == "/sys/fs/cgroup");
  CHECK_FALSE(cgroup_folder("0::/boxes\n", part));
}

TEST_CASE("CgroupFolder: names with blanks are found, which the table of mounts has in octal") {
  const char* part = "30 23 0:26 /a\\040b\\1341 /sys/fs/my\\040groups rw - cgroup2 cgroup2 rw\n";
  CHECK(cgroup_folder("0::/a b\\1/job\n", part) == "/sys/fs/my groups/job");
  CHECK(cgroup_folder("0::/a b\\1\n", part) == "/sys/fs/my groups");
  const char* cut = "30 23 0:26 / /sys/fs/x\\04 rw - cgroup2 cgroup2 rw\n";
  CHECK(cgroup_folder("0::/job\n", cut) == "/sys/fs/x\\04/job");
}

TEST_CASE("CgroupFolder: old hierarchies are found by their controller, alone or among others") {
  const char* groups = "7:cpu,cpuacct:/c\n4:memory:/m\n3:cpuset:/s\n0::/u\n";
  const char* mounts =
      "35 31 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
  CHECK(cgroup_folder(groups, mounts, "cpu") == "/sys/fs/cgroup/cpu,cpuacct/c");
  CHECK(cgroup_folder(groups, mounts, "cpuset") == "/sys/fs/cgroup/cpuset/s");
  CHECK_FALSE(cgroup_folder(groups, mounts, "memory"));
  CHECK_FALSE(cgroup_folder(groups, mounts, "cpuac"));
  CHECK_FALSE(cgroup_folder(groups, mounts));
}

TEST_CASE("CgroupFolder: tables of another kind name no folder") {
  for (const char* groups : {"\n", ":", "::", "0::", "0::a\n", "0:/a\n", "x\n\n\n", "0::../etc\n"}) {
    CAPTURE(groups);
    CHECK_FALSE(cgroup_folder(groups, kUnified));
  }
}

TEST_CASE("CgroupFolder: there is none without a group and a mount") {
  CHECK_FALSE(cgroup_folder("", kUnified));
  CHECK_FALSE(cgroup_folder("4:memory:/m\n", kUnified));
  CHECK_FALSE(cgroup_folder("0::/a\n", ""));
  CHECK(cgroup_folder("0::/a\n", "30 - cgroup2 \n") != "");
}

}  // namespace
}  // namespace launcher
