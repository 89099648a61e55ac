"""Starting many ranks costs in proportion to their number. Processor time is compared, which other work on the machine changes
little, with limits that only a cost per pair of ranks exceeds; bench/launcher has the times."""

import os
import resource
import subprocess
import unittest

from harness import DDPRUN, LauncherTest, main

SPAWN_LOOP = os.environ["SPAWN_LOOP"]
ATTEMPTS = 3
PIPES_AND_PROCESSES = 3  # descriptors of a rank


def seconds(*command):
    """Processor time of the command and all below it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers cost more")
class StartGrowth(LauncherTest):
    def setUp(self):
        super().setUp()
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000 * PIPES_AND_PROCESSES + 1000:
            self.skipTest("the limit on open files (ulimit -Hn) is too low for 2000 ranks")

    def test_2000_ranks_cost_less_than_3_times_as_much_as_1000(self):
        # 1.8 to 2.1 times; where each rank cost something for each one before it, 3.6 times.
        ratios = []
        for _ in range(ATTEMPTS):
            thousand, two_thousand = (seconds(DDPRUN, "-n", ranks, "/bin/true") for ranks in ("1000", "2000"))
            ratios.append(two_thousand / thousand)
        self.assertLess(min(ratios), 3, ratios)

    def test_1000_ranks_cost_less_than_twice_as_much_as_in_a_loop_in_c(self):
        # 1.1 times; 3.9 times before.
        ratios = []
        for _ in range(ATTEMPTS):
            ours, loop = seconds(DDPRUN, "-n", "1000", "/bin/true"), seconds(SPAWN_LOOP, "1000", "/bin/true")
            ratios.append(ours / loop)
        self.assertLess(min(ratios), 2, ratios)


if __name__ == "__main__":
    main()
