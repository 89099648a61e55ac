"""What DistributedDataParallel, loaders, optimizers and checkpoints tell ddprun of themselves."""

import json
import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))
from harness import DDPRUN, LauncherTest, wait_until  # noqa: E402

PROGRAM = os.environ["PROGRAM"]
FAULTS = int(os.environ.get("FAULTS", "1"))


class WatchedTraining(LauncherTest):
    def hang(self, kind, rank, step, ranks):
        status, _, err = self.run_job("-n", str(ranks), "--hang_timeout", "4", "--on_hang", "stop", "--grace", "5",
                                      PROGRAM, self.folder, kind, str(rank), str(step), patience=120)
        self.assertEqual(status, 124, err)
        return err

    def test_a_rank_that_sleeps_is_named_with_its_phase_and_stack(self):
        for kind in ["data", "forward"]:
            for _ in range(FAULTS):
                ranks = random.randint(2, 3)
                rank = random.randrange(ranks)
                with self.subTest(kind=kind, rank=rank, ranks=ranks):
                    step = random.randint(1, 15)
                    report = self.hang(kind, rank, step, ranks)
                    # In the second forward rank 0 tells the others the order of the buckets.
                    awaited = r"broadcast #\d+" if (kind, step, rank) == ("data", 1, 0) else r"all_reduce #\d+ of \d+ bytes"
                    self.assertRegex(report, rf"rank {rank} has not entered {awaited} \(step {step}\); "
                                             rf"it has been in {kind} for .*wait")
                    # What is called from one place alone may be part of its caller.
                    self.assertRegex(report, rf"stack of rank {rank}:\n(    #.*\n)*    #.*(get_batch|Net::forward|train)\(")

    def test_phases_steps_and_collectives_are_shown(self):
        variables = {"XDG_RUNTIME_DIR": self.folder}
        self.start("-n", "2", PROGRAM, self.folder, "none", "0", "0", environment=variables)

        def ranks():
            done = subprocess.run([DDPRUN, "status", "--json"], env=dict(os.environ, **variables), capture_output=True,
                                  text=True, timeout=60)
            return [rank for line in done.stdout.splitlines() for rank in json.loads(line)["ranks"]]

        wait_until(lambda: ranks() and all(rank.get("step", 0) > 20 for rank in ranks()), "steps of both ranks")
        # Times are counted by the kernel's tick, so those of short phases take a while to show.
        for phase in ["data", "forward", "backward", "optimizer", "checkpoint"]:
            wait_until(lambda phase=phase: all(rank["seconds_in_phases"].get(phase, 0) > 0 for rank in ranks()), phase)

    def test_a_healthy_training_is_not_reported(self):
        status, _, err = self.run_job("-n", "2", "--hang_timeout", "4", PROGRAM, self.folder, "none", "0", "0", "100")
        self.assertEqual(status, 0, err)
        self.assertNotIn("progress", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
