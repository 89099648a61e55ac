"""Random collectives give the bits of torch.distributed's, in jobs of C++ and of both: parity_test.py PROGRAM."""

import os
import pathlib
import random
import sys
import tempfile
import unittest

from mixed_job import run_job

PROGRAM = sys.argv.pop(1)
TWIN = pathlib.Path(__file__).with_name("parity_program.py")
WINDOWS = 60
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
# What moves tensors and does not compute with them takes these as well.
MORE_DTYPES = [*DTYPES, "bool"]
REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter"]
MOVES = ["broadcast", "all_gather", "gather", "scatter", "all_to_all", "ring", "broadcast_coalesced"]
# Ours send shapes ahead, so that all ranks must be ours.
WITHOUT_PEERS = REDUCTIONS + ["broadcast", "all_gather", "gather", "scatter", "all_to_all"]
NOT_WITH_PYTHON = ["all_gather_uneven", "all_to_all_uneven"]
SHAPES = [[], [1], [3], [2, 3], [4, 1, 2], [17], [0], [2, 0]]


def draw_case(rng, size, operations, seed, with_int16):
    operation = rng.choice(operations)
    dtype = rng.choice(DTYPES if operation in REDUCTIONS else MORE_DTYPES)
    if with_int16 and size > 1 and rng.random() < 0.05:
        dtype = "int16"  # which gloo has not; a single rank of ours needs no gloo
    op = rng.choice(["sum", "product", "min", "max"] + (["avg"] if "float" in dtype else []))
    return {
        "operation": operation, "dtype": dtype, "op": op, "seed": seed, "root": rng.randrange(size),
        "shape": rng.choice(SHAPES), "buffer": rng.choice([1, 16, 1000]),
        "rows": [rng.randrange(5) for _ in range(size)],
        "counts": [[rng.randrange(4) for _ in range(size)] for _ in range(size)],
    }


def draw(size, operations, seed, with_int16=True):
    rng = random.Random(seed)
    windows = []
    for window in range(WINDOWS):
        count = rng.randint(1, 5)
        order = list(range(count))
        rng.shuffle(order)
        windows.append({
            "cases": [draw_case(rng, size, operations, 10 * window + i, with_int16) for i in range(count)], "order": order
        })
    return {"windows": windows}


class Parity(unittest.TestCase):
    def check(self, languages, operations, seed, with_int16=True, **variables):
        size = len(languages)
        cases = draw(size, operations, seed, with_int16)
        flat = [case for window in cases["windows"] for case in window["cases"]]
        with tempfile.TemporaryDirectory() as name:
            expected = run_job(pathlib.Path(name), cases, ["Python"] * size, PROGRAM, TWIN)
            results = run_job(pathlib.Path(name), cases, languages, PROGRAM, TWIN, **variables)
        for rank in range(size):
            self.assertEqual(len(results[rank]), len(flat))
            for case, ours, pythons in zip(flat, results[rank], expected[rank]):
                with self.subTest(rank=rank, **case):
                    self.assertEqual(ours, pythons)
        self.assertEqual("error" in [result for rank in results for result in rank], with_int16 and size > 1)

    def test_one_rank(self):
        self.check(["C++"], WITHOUT_PEERS, 1)

    def test_two_ranks(self):
        self.check(["C++"] * 2, REDUCTIONS + MOVES + NOT_WITH_PYTHON, 2)

    def test_three_ranks(self):
        self.check(["C++"] * 3, REDUCTIONS + MOVES + NOT_WITH_PYTHON, 3)

    def test_four_ranks_two_of_which_run_python(self):
        self.check(["Python", "C++", "C++", "Python"], REDUCTIONS + MOVES, 4)

    def test_two_ranks_one_of_which_runs_python(self):
        self.check(["C++", "Python"], REDUCTIONS + MOVES, 5)

    # The backend shm in Python moves int16 too, which gloo does not.
    def check_shm(self, languages, seed):
        self.assertTrue(os.environ["DDPRUN_SHM_LIBRARY"])
        operations = REDUCTIONS + MOVES if len(languages) > 1 else WITHOUT_PEERS
        self.check(languages, operations, seed, with_int16=False, PARITY_BACKEND="shm")

    def test_python_ranks_in_shared_memory(self):
        for size in (1, 2, 3, 4):
            with self.subTest(size=size):
                self.check_shm(["Python"] * size, 10 + size)

    def test_ranks_of_both_languages_in_one_memory(self):
        self.check_shm(["Python", "C++", "C++", "Python"], 20)
        self.check_shm(["C++", "Python"], 21)


if __name__ == "__main__":
    unittest.main()
