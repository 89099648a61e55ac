"""The same training in Python's DDP, in ours and in jobs that mix both: equal bits, and N ranks follow one process.

    parity_test.py PROGRAM    with an interpreter that has torch
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import numpy
from torch.distributed import TCPStore

PROGRAM = sys.argv.pop(1)
TWIN = pathlib.Path(__file__).with_name("parity_train.py")
CPP = [PROGRAM]
PYTHON = [sys.executable, str(TWIN)]
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "SLURM_")
JOB_LIMIT_S = 120

DEFAULTS = {
    "model": "lenet",
    "batch": 16,
    "lr": 0.05,
    "views": 1,
    "set_to_none": 1,
    "bucket_cap_bytes": 0,
    "accumulate": 1,
    "save_at": 50,
    "replaces": 1,
}
LENET = {"save_at": "10,50"}
CASES = {
    "lenet": LENET,
    "small_buckets": {"bucket_cap_bytes": 4096, "save_at": 20},
    "accumulate": {"accumulate": 4, "bucket_cap_bytes": 16384, "save_at": 10},
    "accumulate_zeroed": {"accumulate": 3, "set_to_none": 0, "views": 0, "save_at": 8},
    "resnet18": {"model": "resnet18", "batch": 4, "lr": 0.01, "save_at": 5},
}
# Ways to do the same training: equal bits whichever is taken.
LENET_VARIANTS = {
    "lenet_views_zeroed": {**LENET, "set_to_none": 0},
    "lenet_copied": {**LENET, "views": 0},
    "lenet_copied_zeroed": {**LENET, "views": 0, "set_to_none": 0},
}


def cases_file(folder, cases):
    path = pathlib.Path(folder) / "cases.txt"
    lines = []
    for name, changes in cases.items():
        settings = {**DEFAULTS, **changes}
        lines.append(" ".join([name, *(f"{key}={value}" for key, value in settings.items())]))
    path.write_text("\n".join(lines) + "\n")
    return path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(rank, size, port):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    variables |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return variables


class Job:
    """The ranks of one job, one command each; the result files of all cases are in `folder`."""

    def __init__(self, test, commands, cases, agent_store=None, size=None, timeout_s=60, expect_success=True):
        folder = tempfile.TemporaryDirectory()
        test.addClassCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        arguments = [str(cases_file(self.folder, cases)), str(self.folder), str(timeout_s)]
        port = agent_store.port if agent_store else free_port()
        variables = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if agent_store else {}
        ranks = [
            subprocess.Popen(
                command + arguments,
                env=environment(rank, size or len(commands), port) | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, command in enumerate(commands)
        ]
        deadline = time.monotonic() + JOB_LIMIT_S
        try:
            outputs = [rank.communicate(timeout=max(0, deadline - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.communicate()
        self.errors = [errors for _, errors in outputs]
        self.output = [output for output, _ in outputs]
        self.statuses = [rank.returncode for rank in ranks]
        if expect_success and (any(self.statuses) or any(self.errors)):
            raise AssertionError(f"exit statuses {self.statuses}, expected 0 and nothing on stderr: {outputs}")

    def weights(self, case, step, rank=0):
        return (self.folder / f"{case}.step{step}.rank{rank}").read_bytes()

    def all_weights(self):
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.rank*"))}


class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Both with a store of ours, to see their keys; in the mixed jobs rank 0 hosts it.
        python_store, cpp_store = (TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2))
        cls.python = Job(cls, [PYTHON, PYTHON], CASES, python_store)
        cls.cpp = Job(cls, [CPP, CPP], CASES | LENET_VARIANTS, cpp_store)
        cls.python_keys = set(python_store.list_keys())
        cls.cpp_keys = set(cpp_store.list_keys())

    def assert_same_bits(self, job):
        expected = self.python.all_weights()
        self.assertEqual(len(expected), 2 * (len(CASES) + 1), expected.keys())
        actual = job.all_weights()
        for name, weights in expected.items():
            self.assertEqual(len(actual[name]), len(weights), name)
            if actual[name] == weights:
                continue
            bytes_of = [numpy.frombuffer(content, numpy.uint8) for content in (actual[name], weights)]
            different = numpy.count_nonzero(bytes_of[0] != bytes_of[1])
            self.fail(f"{name}: {different} of {len(weights)} bytes differ from Python's")

    def test_all_ranks_in_cpp_give_pythons_bits(self):
        self.assert_same_bits(self.cpp)

    def test_python_as_rank_0_and_cpp_as_rank_1_give_the_same_bits(self):
        self.assert_same_bits(Job(type(self), [PYTHON, CPP], CASES))

    def test_cpp_as_rank_0_and_python_as_rank_1_give_the_same_bits(self):
        self.assert_same_bits(Job(type(self), [CPP, PYTHON], CASES))

    def test_bucket_views_and_both_kinds_of_zero_grad_make_no_difference(self):
        for variant in LENET_VARIANTS:
            for step in (10, 50):
                for rank in (0, 1):
                    same = self.cpp.weights(variant, step, rank) == self.cpp.weights("lenet", step, rank)
                    self.assertTrue(same, f"{variant} after step {step}, rank {rank}")

    def test_the_cases_train_and_use_the_buckets_they_are_about(self):
        self.assertNotEqual(self.cpp.weights("lenet", 10), self.cpp.weights("lenet", 50))
        self.assertIn("small_buckets: rebuilt=1 buckets=4", self.python.output[0])
        self.assertIn("accumulate: rebuilt=1 buckets=3", self.python.output[0])
        self.assertIn("resnet18: rebuilt=1 buckets=3", self.python.output[0])

    def test_ranks_agree_on_the_parameters(self):
        self.assertEqual(self.cpp.weights("lenet", 50, rank=0), self.cpp.weights("lenet", 50, rank=1))
        # Batch norm's statistics are each rank's own after a step; they lie behind the parameters.
        first, second = (self.cpp.weights("resnet18", 5, rank) for rank in (0, 1))
        parameters = 4 * 11_181_642
        self.assertEqual(first[:parameters], second[:parameters])
        self.assertNotEqual(first[parameters:], second[parameters:])

    def test_two_ranks_follow_one_process_with_twice_the_batch(self):
        alone = Job(type(self), [CPP], {"lenet": {**LENET, "replaces": 2}})
        for step, bound in ((10, 1e-5), (50, 1e-3)):
            one = numpy.frombuffer(alone.weights("lenet", step), numpy.float32).astype(numpy.float64)
            two = numpy.frombuffer(self.cpp.weights("lenet", step), numpy.float32).astype(numpy.float64)
            relative = numpy.linalg.norm(one - two) / numpy.linalg.norm(one)
            print(f"relative difference after step {step}: {relative:.2e}", file=sys.stderr)
            self.assertLess(relative, bound)
            self.assertGreater(relative, 0, "a comparison with itself would prove nothing")

    def test_a_missing_rank_is_named_and_pythons_ranks_are_not(self):
        job = Job(type(self), [CPP, PYTHON], CASES, size=3, timeout_s=8, expect_success=False)
        self.assertEqual(job.statuses, [1, 1])
        self.assertRegex(job.errors[0], r"error: rank 0 of 3: could not connect .*; never arrived: rank 2\n")

    def test_cpp_ranks_use_pythons_keys_in_the_store(self):
        self.assertIn("default_pg/0//cpu//0/1", self.python_keys)
        self.assertEqual({key for key in self.cpp_keys if not key.startswith("ddprun/")}, self.python_keys)


if __name__ == "__main__":
    unittest.main(verbosity=2)
