"""Random collectives give the bits of torch.distributed's, in jobs of C++ and of both: parity_test.py PROGRAM."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import forked_python  # noqa: E402
from free_port import free_port  # noqa: E402

PROGRAM = sys.argv.pop(1)
PYTHONS = pathlib.Path(__file__).with_name("parity_program.py")
WINDOWS = 60
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
# What moves tensors and does not compute with them takes these as well.
MORE_DTYPES = [*DTYPES, "bool"]
REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter"]
MOVES = ["broadcast", "all_gather", "gather", "scatter", "all_to_all", "ring", "broadcast_coalesced"]
# Ours send shapes ahead, so that all ranks must be ours.
NOT_WITH_PYTHON = ["all_gather_uneven", "all_to_all_uneven"]
SHAPES = [[], [1], [3], [2, 3], [4, 1, 2], [17], [0], [2, 0]]


def draw_case(rng, size, operations, seed):
    operation = rng.choice(operations)
    dtype = rng.choice(DTYPES if operation in REDUCTIONS else MORE_DTYPES)
    if size > 1 and rng.random() < 0.05:
        dtype = "int16"  # which gloo has not; a single rank of ours needs no gloo
    op = rng.choice(["sum", "product", "min", "max"] + (["avg"] if "float" in dtype else []))
    return {
        "operation": operation, "dtype": dtype, "op": op, "seed": seed, "root": rng.randrange(size),
        "shape": rng.choice(SHAPES), "buffer": rng.choice([1, 16, 1000]),
        "rows": [rng.randrange(5) for _ in range(size)],
        "counts": [[rng.randrange(4) for _ in range(size)] for _ in range(size)],
    }


def draw(size, operations, seed):
    rng = random.Random(seed)
    windows = []
    for window in range(WINDOWS):
        count = rng.randint(1, 5)
        order = list(range(count))
        rng.shuffle(order)
        windows.append({
            "cases": [draw_case(rng, size, operations, 10 * window + i) for i in range(count)], "order": order
        })
    return {"windows": windows}


def run_job(folder, cases, languages):
    """Each rank's results; `languages` says what each rank runs."""
    path = folder / "cases.json"
    path.write_text(json.dumps(cases))
    port = free_port()
    ranks = []
    for rank, language in enumerate(languages):
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(languages)), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port), LOCAL_WORLD_SIZE=str(len(languages)), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
        start, program = (subprocess.Popen, [PROGRAM]) if language == "C++" else (forked_python.popen, [PYTHONS])
        arguments = [*program, path, folder / f"result{rank}.json"]
        with open(folder / f"errors{rank}.txt", "w") as errors:
            ranks.append(start(arguments, env=environment, stderr=errors))
    try:
        # The first one that fails tells why; the others would wait for it.
        deadline = time.monotonic() + 200
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() for rank in ranks) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
    finally:
        codes = [rank.poll() for rank in ranks]
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, code in enumerate(codes):
        if code:
            raise AssertionError(f"rank {rank} ended with {code}: {(folder / f'errors{rank}.txt').read_text()}")
    if None in codes:
        raise AssertionError(f"ranks hang: {[rank for rank, code in enumerate(codes) if code is None]}")
    return [json.loads((folder / f"result{rank}.json").read_text()) for rank in range(len(languages))]


class Parity(unittest.TestCase):
    def check(self, languages, operations, seed):
        size = len(languages)
        cases = draw(size, operations, seed)
        flat = [case for window in cases["windows"] for case in window["cases"]]
        with tempfile.TemporaryDirectory() as name:
            expected = run_job(pathlib.Path(name), cases, ["Python"] * size)
            results = run_job(pathlib.Path(name), cases, languages)
        for rank in range(size):
            self.assertEqual(len(results[rank]), len(flat))
            for case, ours, pythons in zip(flat, results[rank], expected[rank]):
                with self.subTest(rank=rank, **case):
                    self.assertEqual(ours, pythons)
        self.assertEqual("error" in [result for rank in results for result in rank], size > 1)

    def test_one_rank(self):
        self.check(["C++"], REDUCTIONS + ["broadcast", "all_gather", "gather", "scatter", "all_to_all"], 1)

    def test_two_ranks(self):
        self.check(["C++"] * 2, REDUCTIONS + MOVES + NOT_WITH_PYTHON, 2)

    def test_three_ranks(self):
        self.check(["C++"] * 3, REDUCTIONS + MOVES + NOT_WITH_PYTHON, 3)

    def test_four_ranks_two_of_which_run_python(self):
        self.check(["Python", "C++", "C++", "Python"], REDUCTIONS + MOVES, 4)

    def test_two_ranks_one_of_which_runs_python(self):
        self.check(["C++", "Python"], REDUCTIONS + MOVES, 5)


if __name__ == "__main__":
    unittest.main()
