"""Two processes with two simulated devices each, of which each uses its own: when one goes wrong, the other ends in time and says why, as on gloo."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from free_port import free_port  # noqa: E402

PROGRAM = sys.argv.pop(1)
TIMEOUT_S = 4
LATEST_S = TIMEOUT_S + 40  # for hangs: what ends, ends within 3 s of the timeout on a quiet machine


class TwoProcesses(unittest.TestCase):
    def run_ranks(self, model, fault, place, victim=1, step=3, variables=None):
        """The ranks' exit statuses and messages, and how long after the victim's fault the last one ended."""
        port = str(free_port())
        ranks = []
        files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        try:
            for rank in range(2):
                place_of_rank = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "FAULT_BACKEND": "cpu:gloo,cuda:nccl",
                                 "DDPRUN_TEST_DEVICES": "2", **(variables or {})}
                arguments = [PROGRAM, model, fault, place, str(victim), str(step), "0", str(TIMEOUT_S * 1000)]
                ranks.append(subprocess.Popen(arguments, env={**os.environ, **place_of_rank}, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=files[rank]))
            start = time.monotonic()
            statuses = [rank.wait(120) for rank in ranks]
            duration = time.monotonic() - start
            messages = []
            for file in files:
                file.seek(0)
                messages.append(file.read())
            return statuses, messages, duration
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
            for file in files:
                file.close()

    def test_nothing_goes_wrong(self):
        for model in ("ddp", "syncbn"):
            with self.subTest(model):
                statuses, messages, _ = self.run_ranks(model, "never", "nowhere", variables={"DDPRUN_TEST_DEVICE_STRICT": "1"})
                self.assertEqual(statuses, [0, 0], messages)

    def test_a_rank_that_is_killed_or_aborts(self):
        for place, fault in (("start", "kill"), ("backward", "kill"), ("after", "kill"), ("forward", "abort"), ("backward", "abort")):
            with self.subTest(f"{fault} {place}"):
                statuses, messages, duration = self.run_ranks("ddp", fault, place)
                self.assertEqual(statuses[1], -signal.SIGKILL if fault == "kill" else -signal.SIGABRT)
                self.assertNotEqual(statuses[0], 0)
                self.assertIn("rank 1", messages[0])
                self.assertLess(duration, LATEST_S)

    def test_a_rank_that_throws(self):
        statuses, messages, duration = self.run_ranks("ddp", "throw", "backward")
        self.assertNotIn(0, statuses)
        self.assertIn("the data of this rank is bad", messages[1])
        self.assertIn("rank 1", messages[0])
        self.assertLess(duration, LATEST_S)

    def test_a_rank_that_leaves_the_others_order(self):
        for fault, place in (("skip", "start"), ("shorter", "start"), ("other", "after"), ("other", "backward")):
            with self.subTest(f"{fault} {place}"):
                statuses, messages, duration = self.run_ranks("ddp", fault, place)
                self.assertNotEqual(statuses, [0, 0], messages)
                self.assertLess(duration, LATEST_S)


    def test_a_rank_whose_model_is_another(self):
        for step in range(4):
            with self.subTest(step):
                statuses, messages, duration = self.run_ranks("ddp", "model", "wrapped", step=step)
                self.assertNotIn(0, statuses)
                self.assertRegex(messages[0] + messages[1], "rank [01]")
                self.assertLess(duration, LATEST_S)


if __name__ == "__main__":
    unittest.main(verbosity=2)
