"""Two threads, each with a group of its own, hold each other up in nothing that needs the job's store.

Every pair of: wrapping a model, its first step with and without a hook, new_group, SyncBatchNorm, a comparison, collectives.
ROUNDS says how often each pair runs.
"""

import os
import subprocess
import tempfile
import unittest

ROUNDS = int(os.environ.get("ROUNDS", "5"))
FOR_HANGS_S = 200 + ROUNDS * 4  # the groups' own timeout is 120 s


class ThreadPairs(unittest.TestCase):
    def said(self, rounds, backend, *init_method, options=()):
        command = [os.environ["DDPRUN"], "-n", "2", "--no_prefix", *options, os.environ["PROGRAM"], str(rounds), backend, *init_method]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FOR_HANGS_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check(self, *arguments, **options):
        self.assertEqual(self.said(ROUNDS, *arguments, **options), f"28 pairs, {ROUNDS} rounds each\n")

    def test_in_shared_memory(self):
        self.check("shm")

    def test_over_gloo(self):
        self.check("gloo")

    def test_with_a_store_of_torch(self):
        self.check("gloo", options=["--store", "rank0"])

    def test_with_a_store_in_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check("shm", f"file://{folder}/store")

    def test_a_failure_is_explained_while_another_thread_waits(self):
        for backend in ("shm", "gloo"):
            with self.subTest(backend):
                error = self.said(0, backend)
                self.assertRegex(error, "all_reduce .* failed: .* did not take part in it: rank 1 ")
                self.assertNotIn("is not known", error)


if __name__ == "__main__":
    unittest.main()
