"""What `ddprun stack` of 64 ranks costs: its own time, and how long each rank is held up by it, beside what the machine does without it."""

import json
import os
import statistics
import subprocess
import time
import unittest

from harness import DDPRUN, LauncherTest, wait_until

PROGRAM = os.environ["GAP_PROGRAM"]
RANKS = int(os.environ.get("RANKS", "64"))
THREADS = int(os.environ.get("THREADS", "8"))
ROUNDS = int(os.environ.get("ROUNDS", "20"))
MILLISECOND = 1000


class StackCost(LauncherTest):
    def windows(self):
        """For each rank, (begin, how late it was at most, processor time)."""
        found = []
        for rank in range(RANKS):
            lines = self.read(f"gaps.{rank}").splitlines()
            found.append([tuple(map(int, line.split())) for line in lines if line.count(" ") == 2])
        return found

    def held_up(self, windows, spans, column=1):
        """The most in each span, by rank."""
        most = []
        for of_rank in windows:
            for begin, end in spans:
                inside = [window[column] for window in of_rank if begin - 100 * MILLISECOND <= window[0] <= end]
                if inside:
                    most.append(max(inside))
        return most

    def test_nobody_waits_long(self):
        variables = {"XDG_RUNTIME_DIR": self.folder}
        job = self.start("-n", str(RANKS), "--no_prefix", PROGRAM, self.folder, str(THREADS), environment=variables)
        wait_until(lambda: all(os.path.exists(self.path(f"gaps.{rank}")) and self.read(f"gaps.{rank}").count("\n") > 5 for rank in range(RANKS)), "all ranks")
        taken, with_stack, without = [], [], []
        now = lambda: time.monotonic_ns() // 1000
        for _ in range(ROUNDS):
            begin = now()
            done = subprocess.run([DDPRUN, "stack"], env=dict(os.environ, **variables), capture_output=True, text=True, timeout=60)
            end = now()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("does not answer", done.stdout)
            self.assertIn("wait_for_ever", done.stdout)
            taken.append((end - begin) / 1e6)
            with_stack.append((begin, end))
            time.sleep(0.1)
            begin = now()
            time.sleep(taken[-1])
            without.append((begin, now()))
            time.sleep(0.1)
        time.sleep(0.2)
        windows = self.windows()
        figures = {"ranks": RANKS, "threads": THREADS, "load": os.getloadavg()[0], "seconds": [statistics.median(taken), max(taken)]}
        for name, spans in (("with", with_stack), ("without", without)):
            for column, what in ((1, "late"), (2, "processor")):
                most = sorted(self.held_up(windows, spans, column))
                figures[f"{what} {name}"] = [most[len(most) // 2], most[len(most) * 99 // 100], most[-1]]
        print(json.dumps(figures))
        self.assertEqual(len(job.members()), RANKS + 3)
        self.assertLess(statistics.median(taken), 2)
        # The processor time that the answer takes is what it costs a rank, whatever else the machine does.
        self.assertLess(figures["processor with"][1] - figures["processor without"][0], 10 * MILLISECOND)
        self.assertLess(figures["late with"][1], figures["late without"][1] + 10 * MILLISECOND)


if __name__ == "__main__":
    unittest.main(verbosity=2)
