#include "launcher/os/machine/usable_cpus.h"

#include <sched.h>

#include <filesystem>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

TEST_CASE("UsableCpus: a quota is rounded up to whole CPUs") {
  CHECK(cpus_from_cpu_max("200000 100000\n") == 2);
  CHECK(cpus_from_cpu_max("150000 100000") == 2);
  CHECK(cpus_from_cpu_max("1000 100000") == 1);
  CHECK(cpus_from_cpu_max("9223372036854775807 1") == 1 << 20);
}

TEST_CASE("UsableCpus: what is not a quota is not a limit") {
  for (const char* text : {"", "max 100000", "100000", "0 100000", "-5 100000", "100000 0", "x y", "100000 -1"}) {
    CAPTURE(text);
    CHECK(cpus_from_cpu_max(text) == 0);
  }
}

// Folders as the kernel would show them.
class Cgroups {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    ddp::test::write_file(path, text);
  }
  std::string mount(const std::string& root, const std::string& name, const std::string& type,
                    const std::string& options) const {
    return "30 23 0:26 " + root + " " + (folder_ / name).string() + " rw,nosuid shared:9 - " + type + " cgroup " +
           options + "\n";
  }
  ddp::test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(Cgroups, "Cgroups: the quota of version 1 counts") {
  const std::string mounts =
      mount("/", "memory", "cgroup", "rw,memory") + mount("/", "cpu,cpuacct", "cgroup", "rw,cpu,cpuacct");
  const std::string groups = "5:memory:/other\n4:cpu,cpuacct:/box/job\n0::/box/job\n";
  CHECK(cpus_of_cgroups(groups, mounts) == 0);
  write("cpu,cpuacct/box/job/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/box/job/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_of_cgroups(groups, mounts) == 0);
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "450000\n");
  write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_of_cgroups(groups, mounts) == 5);
  write("cpu,cpuacct/box/job/cpu.cfs_quota_us", "250000\n");
  CHECK(cpus_of_cgroups(groups, mounts) == 3);
}

TEST_CASE_METHOD(Cgroups, "Cgroups: a container sees its own group as the root") {
  write("cpu/cpu.cfs_quota_us", "200000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_of_cgroups("4:cpu:/docker/12\n", mount("/docker/12", "cpu", "cgroup", "rw,cpu")) == 2);
  CHECK(cpus_of_cgroups("4:cpuset:/docker/12\n", mount("/docker/12", "cpu", "cgroup", "rw,cpuset")) == 0);
}

TEST_CASE_METHOD(Cgroups, "Cgroups: the smallest quota of version 2 on the way up counts") {
  const std::string mounts = mount("/", "unified", "cgroup2", "rw");
  write("unified/a/b/cpu.max", "max 100000\n");
  CHECK(cpus_of_cgroups("0::/a/b\n", mounts) == 0);
  write("unified/a/cpu.max", "300000 100000\n");
  CHECK(cpus_of_cgroups("0::/a/b\n", mounts) == 3);
  write("unified/a/b/cpu.max", "600000 100000\n");
  CHECK(cpus_of_cgroups("0::/a/b\n", mounts) == 3);
}

TEST_CASE("UsableCpus: respects the affinity mask") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cpus() <= CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cpus() == 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST_CASE("UsableCpus: threads are an equal share and at least one") {
  CHECK(default_omp_threads(64, 8) == 8);
  CHECK(default_omp_threads(7, 2) == 3);
  CHECK(default_omp_threads(2, 8) == 1);
}

}  // namespace
}  // namespace launcher
