#include "launcher/machine/own_cgroup.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

constexpr const char* kUnified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupFolder, BelowTheMount) {
  EXPECT_EQ(cgroup_folder("0::/user.slice/a b.scope\n", kUnified), "/sys/fs/cgroup/user.slice/a b.scope");
  EXPECT_EQ(cgroup_folder("0::/\n", kUnified), "/sys/fs/cgroup");
}

TEST(CgroupFolder, BesideTheOldHierarchies) {
  EXPECT_EQ(cgroup_folder("4:memory:/m\n1:cpu:/c\n0::/u\n",
                          "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                          "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"),
            "/sys/fs/cgroup/unified/u");
}

TEST(CgroupFolder, AMountOfAPart) {
  const char* part = "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(cgroup_folder("0::/box/job\n", part), "/sys/fs/cgroup/job");
  EXPECT_EQ(cgroup_folder("0::/box\n", part), "/sys/fs/cgroup");
  EXPECT_FALSE(cgroup_folder("0::/boxes\n", part));
}

TEST(CgroupFolder, NothingWithoutIt) {
  EXPECT_FALSE(cgroup_folder("", kUnified));
  EXPECT_FALSE(cgroup_folder("4:memory:/m\n", kUnified));
  EXPECT_FALSE(cgroup_folder("0::/a\n", ""));
  EXPECT_FALSE(cgroup_folder("0::/a\n", "30 - cgroup2 \n").has_value() &&
               cgroup_folder("0::/a\n", "30 - cgroup2 \n")->empty());
}

}  // namespace
}  // namespace launcher
