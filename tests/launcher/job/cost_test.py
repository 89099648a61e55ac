"""What ddprun costs: limits far above what bench/launcher measures, so that only a loss of an order of magnitude fails.
Others may use the machine: each figure is the best of a few attempts."""

import os
import re
import shlex
import statistics
import subprocess
import time
import unittest

from harness import DDPRUN, LauncherTest, main

SPAWN_LOOP = os.environ["SPAWN_LOOP"]
QUIET = {"OMP_NUM_THREADS": "1"}
ATTEMPTS = 5


def best(attempt, is_good):
    """The first good result of attempt(), else all of them."""
    results = []
    for _ in range(ATTEMPTS):
        results.append(attempt())
        if is_good(results[-1]):
            return results[-1:]
    return results


@unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers cost more")
class Cost(LauncherTest):
    def seconds(self, *command):
        begin = time.monotonic()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **QUIET})
        return time.monotonic() - begin

    def test_two_processes_start_and_end_within_50_ms_more_than_by_a_loop_in_c(self):
        # 3 to 5 ms.
        def attempt():
            pairs = [(self.seconds(DDPRUN, "-n", "2", "/bin/true"), self.seconds(SPAWN_LOOP, "2", "/bin/true")) for _ in range(9)]
            ours, loop = (statistics.median(column) for column in zip(*pairs))
            return ours - loop

        self.assertLess(best(attempt, lambda more: more < 0.05)[-1], 0.05)

    def test_from_a_failure_to_the_end_it_takes_200_ms_at_most(self):
        # 20 ms. Rank 0 notes the time and fails when the other one, which obeys TERM, is there.
        program = self.write("fail.py", """
import os, time
folder = os.environ["DDPRUN_TEST_FOLDER"]
if os.environ["RANK"] == "1":
    open(folder + "/ready", "w").close()
    time.sleep(1000)
while not os.path.exists(folder + "/ready"):
    time.sleep(0.002)
with open(folder + "/failed", "w") as file:
    print(time.monotonic(), file=file)
    file.flush()
    os._exit(1)
""")

        def attempt():
            times = []
            for _ in range(3):
                self.assertEqual(self.run_job("-n", "2", program, environment=QUIET)[0], 1)
                times.append(time.monotonic() - float(self.read("failed")))
                os.remove(self.path("ready"))
            return statistics.median(times)

        self.assertLess(best(attempt, lambda seconds: seconds < 0.2)[-1], 0.2)

    def test_64_ranks_cost_12_mb_of_memory_at_most(self):
        # 8 MB of the supervising process, with pipes for all ranks.
        job = self.start("-n", "64", "sh", "-c", "echo x; exec sleep 1000", environment=QUIET)
        supervisor = job.supervisor()
        lines = [job.process.stdout.readline() for _ in range(64)]
        self.assertEqual(len(lines), 64)
        for pid in (job.process.pid, supervisor):
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                self.assertLess(int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1)), 12 << 10)

    def test_prefixed_output_passes_at_a_third_of_400_mb_per_second(self):
        # Two ranks, lines of 80 bytes. Where even a pipe without ddprun is slow, a quarter of that will do.
        size = 100_000_000
        rank = f"yes {'x' * 79} | head -c {size}"

        def rate(command):
            begin = time.monotonic()
            count = subprocess.run(["sh", "-c", f"{command} | wc -c"], check=True, capture_output=True, env={**os.environ, **QUIET, "RANK_PROGRAM": rank})
            self.assertGreaterEqual(int(count.stdout), 2 * size)
            return 2 * size / (time.monotonic() - begin) / 1e6

        def attempt():
            plain = rate('{ sh -c "$RANK_PROGRAM" & sh -c "$RANK_PROGRAM"; wait; }')
            ours = rate(f'{shlex.quote(DDPRUN)} -n 2 sh -c "$RANK_PROGRAM"')
            return ours / min(400 / 3, plain / 4)

        self.assertGreater(best(attempt, lambda share: share > 1)[-1], 1)


if __name__ == "__main__":
    main()
