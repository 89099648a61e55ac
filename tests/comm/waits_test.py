"""Who waits in a synchronous collective is seen to wait, on each backend: in the progress page and in the timeline."""

import collections
import json
import os
import subprocess
import tempfile
import unittest

LATE = 200  # milliseconds: a busy machine may take some tens of it
LATER = 2000  # where it has taken all of it, and the rank that should wait was late as well


class Waits(unittest.TestCase):
    def waits(self, backend, late):
        """{call: milliseconds that rank 0 has waited in it, by the page and by the timeline}"""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.json")
            command = [os.environ["DDPRUN"], "-n", "2", "--no_prefix", "--timeline", trace, os.environ["PROGRAM"], str(late)]
            done = subprocess.run(command, env={**os.environ, "DDPRUN_CPU_BACKEND": backend}, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(trace, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        in_page = {name: int(time) for name, time in (line.split() for line in done.stdout.splitlines())}
        self.assertEqual(len(in_page), 10, done.stdout)
        in_timeline = collections.Counter()
        for event in events:
            if event["ph"] == "X" and event["pid"] == 0 and event["cat"] == "wait":
                in_timeline[event["name"]] += event["dur"] / 1000
        return {name: (time, in_timeline[f"wait for {name}"]) for name, time in in_page.items()}

    def check(self, backend):
        late = LATE
        waits = self.waits(backend, late)
        if any(min(times) < late * 0.8 for times in waits.values()):
            late = LATER
            waits = self.waits(backend, late)
        for name, times in waits.items():
            with self.subTest(name, backend=backend):
                self.assertGreaterEqual(min(times), late * 0.8)

    def test_in_shared_memory(self):
        self.check("shm")

    def test_over_gloo(self):
        self.check("gloo")


if __name__ == "__main__":
    unittest.main()
