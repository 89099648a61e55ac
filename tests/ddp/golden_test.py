"""Trainings on two ranks against numbers that Python's DDP gave, for machines without Python's torch.

    golden_test.py PROGRAM           compares within 1e-5
    golden_test.py PROGRAM --write   runs Python's DDP (with an interpreter that has torch) and writes golden.json
"""

import array
import json
import pathlib
import sys
import unittest

from parity_jobs import CPP, PYTHON, Job

GOLDEN = pathlib.Path(__file__).with_name("golden.json")
STEPS = 20
TOLERANCE = 1e-5
CASES = {
    "tied": {"model": "tied"},
    "unused": {"model": "branches", "find_unused": 1},
    "accumulate": {"model": "branches", "find_unused": 1, "accumulate": 4},
    "static": {"model": "static", "static": 1},
    "fp16": {"model": "frozen", "hook": "fp16"},
    "join": {"model": "normed", "join": "active"},
}
CASES = {name: {**case, "save_at": STEPS} for name, case in CASES.items()}


def values(job, name, rank):
    """All parameters; the buffers behind them have other types, so only whole leading floats of the parameters count."""
    numbers = array.array("f", job.weights(name, STEPS, rank))
    return [float(f"{number:.9g}") for number in numbers[:200]]


class Golden(unittest.TestCase):
    def test_trainings_give_pythons_numbers(self):
        golden = json.loads(GOLDEN.read_text())
        self.assertEqual(golden.keys(), CASES.keys())
        job = Job(type(self), [CPP, CPP], CASES)
        for name, expected in golden.items():
            for rank in (0, 1):
                actual = values(job, name, rank)
                self.assertEqual(len(actual), len(expected))
                for place, (one, other) in enumerate(zip(actual, expected)):
                    self.assertLess(abs(one - other), TOLERANCE * max(1, abs(other)), f"{name}, rank {rank}, {place}")


class Writer(unittest.TestCase):
    def test_write(self):
        job = Job(type(self), [PYTHON, PYTHON], CASES)
        golden = {name: values(job, name, 0) for name in CASES}
        GOLDEN.write_text("{\n" + ",\n".join(f'"{n}": {json.dumps(v)}' for n, v in golden.items()) + "\n}\n")


if __name__ == "__main__":
    if "--write" in sys.argv:
        sys.argv.remove("--write")
        unittest.main(defaultTest="Writer")
    unittest.main(defaultTest="Golden")
