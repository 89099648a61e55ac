"""A rank that is killed in the middle of a backward, and a store that disappears: no other rank hangs, each says what failed.

    faults_test.py PROGRAM    with an interpreter that has torch; PROGRAM is parity_program
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import parity_jobs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import forked_python  # noqa: E402

LIMIT_S = 60
SERVER = pathlib.Path(__file__).with_name("store_server.py")


def start(size, victim, folder, port):
    settings = {"model": "tied", "save_at": "1,20", "die": f"{victim}:10"}
    cases = parity_jobs.cases_file(folder, {"training": settings})
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    return [
        subprocess.Popen(
            [*parity_jobs.CPP, str(cases), str(folder), "20"],
            env=parity_jobs.environment(rank, size, port) | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def start_server():
    """A store of its own, as a launcher has one; ends with its standard input."""
    server = forked_python.popen([SERVER], env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server.stdin.write("127.0.0.1\n")
    server.stdin.flush()
    return server, int(server.stdout.readline())


class KilledRank(unittest.TestCase):
    def check(self, ranks, victim):
        deadline = time.monotonic() + LIMIT_S
        try:
            outputs = [rank.communicate(timeout=max(0.1, deadline - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.communicate()
        for number, (rank, (_, errors)) in enumerate(zip(ranks, outputs)):
            if number == victim:
                self.assertEqual(rank.returncode, -signal.SIGKILL, errors)
                continue
            self.assertEqual(rank.returncode, 1, errors)
            yield number, errors

    def test_every_other_rank_names_the_collective_and_the_killed_rank(self):
        for size in (2, 3, 4):
            for victim in range(size):
                with self.subTest(size=size, victim=victim), tempfile.TemporaryDirectory() as folder:
                    server, port = start_server()
                    self.addCleanup(server.communicate)
                    for rank, errors in self.check(start(size, victim, pathlib.Path(folder), port), victim):
                        self.assertRegex(errors, f"error: rank {rank} of {size}: all_reduce of a gradient bucket")
                        self.assertRegex(errors, rf"did not take part in it: rank [\d, ]*\b{victim}\b")

    def test_a_store_that_disappears_stops_nobody_and_then_a_killed_rank_still_ends_all(self):
        for size, victim in ((2, 1), (3, 0), (4, 2)):
            with self.subTest(size=size, victim=victim), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                server, port = start_server()
                ranks = start(size, victim, folder, port)
                first_step = [folder / f"training.step1.rank{rank}" for rank in range(size)]
                deadline = time.monotonic() + LIMIT_S
                while not all(path.exists() for path in first_step) and time.monotonic() < deadline:
                    time.sleep(0.002)
                server.kill()
                server.communicate()
                for rank, errors in self.check(ranks, victim):
                    self.assertRegex(errors, f"error: rank {rank} of {size}: .*")


if __name__ == "__main__":
    unittest.main(verbosity=2)
