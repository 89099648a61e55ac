#include "launcher/machine/usable_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace launcher {
namespace {

TEST(UsableCpus, AQuotaIsRoundedUpToWholeCpus) {
  EXPECT_EQ(cpus_from_cpu_max("200000 100000\n"), 2);
  EXPECT_EQ(cpus_from_cpu_max("150000 100000"), 2);
  EXPECT_EQ(cpus_from_cpu_max("1000 100000"), 1);
  EXPECT_EQ(cpus_from_cpu_max("9223372036854775807 1"), 1 << 20);
}

TEST(UsableCpus, WhatIsNoQuotaIsNoLimit) {
  for (const char* text : {"", "max 100000", "100000", "0 100000", "-5 100000", "100000 0", "x y", "100000 -1"}) {
    EXPECT_EQ(cpus_from_cpu_max(text), 0) << text;
  }
}

TEST(UsableCpus, RespectsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(usable_cpus(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(UsableCpus, ThreadsAreAnEqualShareAndAtLeastOne) {
  EXPECT_EQ(default_omp_threads(64, 8), 8);
  EXPECT_EQ(default_omp_threads(7, 2), 3);
  EXPECT_EQ(default_omp_threads(2, 8), 1);
}

}  // namespace
}  // namespace launcher
