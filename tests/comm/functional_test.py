"""Random programs of collectives with gradients give the bits of PyTorch's, in jobs of C++ and of both languages:
functional_test.py PROGRAM. DDPRUN_FUNCTIONAL_PROGRAMS is their number in all, DDPRUN_FUNCTIONAL_SEED where they begin."""

import os
import pathlib
import random
import sys
import tempfile
import unittest

from mixed_job import run_job

PROGRAM = sys.argv.pop(1)
TWIN = pathlib.Path(__file__).with_name("functional_program.py")
PROGRAMS = int(os.environ.get("DDPRUN_FUNCTIONAL_PROGRAMS", "120"))
SEED = int(os.environ.get("DDPRUN_FUNCTIONAL_SEED", "1"))
DTYPES = ["float32", "float64", "bfloat16"]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_split", "all_reduce_coalesced", "all_gather_coalesced",
               "reduce_scatter_coalesced", "broadcast", "reduce", "gather", "scatter"]
# Those of torch.distributed.nn.functional have no second gradient of their own kind on every rank.
WITH_ROOT = ["broadcast", "reduce", "gather", "scatter"]
LOCAL = ["multiply", "tanh", "transpose", "expand"]


class Drawn:
    """A program, and the shape and dtype of each of its values; None for one whose shape is not equal on all ranks."""

    def __init__(self, rng, size):
        self.rng, self.size = rng, size
        self.values, self.steps = [], []
        self.leaves = [self.leaf() for _ in range(rng.randint(1, 3))]
        self.leaves[0]["grad"] = True
        self.fails = False
        for _ in range(rng.randint(1, 6)):
            self.step()

    def leaf(self):
        shape = [self.size * self.rng.randint(0, 3) if self.rng.random() < 0.6 else self.rng.randint(1, 4)
                 for _ in range(self.rng.randint(0, 3))]
        leaf = {"shape": shape, "dtype": self.rng.choice(DTYPES), "seed": self.rng.randrange(1000), "grad": self.rng.random() < 0.8,
                "range": self.rng.choice([3, 2001]), "nan": self.rng.choice([0] * 9 + [4])}
        self.values.append((shape, leaf["dtype"]))
        return leaf

    def any_of(self, fits=lambda shape: True):
        found = [i for i, value in enumerate(self.values) if value and fits(value[0])]
        return self.rng.choice(found) if found else None

    def divisible(self, dim=0):
        return lambda shape: len(shape) > dim and shape[dim] % self.size == 0

    def step(self):
        rng, size = self.rng, self.size
        op = rng.choice(COLLECTIVES * 2 + LOCAL)
        step = {"op": op, "reduction": rng.choice(["sum", "sum", "avg", "min", "max"]), "dim": 0, "root": rng.randrange(size),
                "async": rng.random() < 0.3, "splits": []}
        if op in ("reduce_scatter", "reduce_scatter_coalesced", "reduce"):
            step["reduction"] = "sum"
        if op == "all_reduce_coalesced":  # of these PyTorch's backward fails: the saved output has been changed in place
            step["reduction"] = rng.choice(["sum", "avg"])
        if any(leaf["nan"] for leaf in self.leaves) and step["reduction"] in ("min", "max"):  # backends may drop it
            step["reduction"] = "sum"
        if op == "all_gather":
            step["dim"] = rng.randint(0, 2)
            of = self.any_of(lambda shape: len(shape) > step["dim"])
        elif op == "reduce_scatter":
            step["dim"] = rng.randint(0, 2)
            of = self.any_of(self.divisible(step["dim"]))
        elif op in ("all_to_all", "scatter", "reduce_scatter_coalesced"):
            of = self.any_of(self.divisible())
        elif op in ("all_to_all_split", "all_gather_coalesced", "gather"):
            of = self.any_of(lambda shape: len(shape) > 0)
        elif op == "transpose":
            of = self.any_of(lambda shape: len(shape) > 1)
        else:
            of = self.any_of()
        if of is None:
            return
        shape, dtype = self.values[of]
        step["of"], results = [of], [list(shape)]
        if op == "all_gather" or op == "gather":
            results[0][step["dim"]] *= size
        elif op == "reduce_scatter":
            results[0][step["dim"]] //= size
        elif op == "scatter":
            results[0][0] //= size
        elif op == "transpose":
            results[0][0], results[0][-1] = shape[-1], shape[0]
        elif op == "all_to_all_split":
            step["splits"] = [self.composition(shape[0]) for _ in range(size)]
            results = [None]
        elif op.endswith("_coalesced"):
            fits = self.divisible() if op.startswith("reduce_scatter") else (lambda other: len(other) > 0 or op.startswith("all_reduce"))
            alike = [i for i, value in enumerate(self.values) if value and value[1] == dtype and fits(value[0])]
            step["of"] += [rng.choice(alike) for _ in range(rng.randint(0, 2))]
            factor = {"all_reduce_coalesced": 1, "all_gather_coalesced": size, "reduce_scatter_coalesced": 1 / size}[op]
            results = [[int(length * factor) if i == 0 else length for i, length in enumerate(self.values[index][0])] for index in step["of"]]
        elif op == "multiply":
            step["of"].append(rng.choice([i for i, value in enumerate(self.values) if value == self.values[of]]))
        elif op == "expand":
            larger = [i for i, value in enumerate(self.values) if value and value[1] == dtype and value[0][1:] == shape and len(value[0]) == len(shape) + 1]
            if not larger:
                return
            step["of"].append(rng.choice(larger))
            results = [list(self.values[step["of"][1]][0])]
        self.steps.append(step)
        self.values += [None if result is None else (result, dtype) for result in results]

    def composition(self, rows):
        cuts = sorted(self.rng.randint(0, rows) for _ in range(self.size - 1))
        return [end - begin for begin, end in zip([0, *cuts], [*cuts, rows])]

    def spec(self):
        second = self.rng.random() < 0.3 and not any(step["op"] in WITH_ROOT for step in self.steps)
        return {"leaves": self.leaves, "steps": self.steps, "second": second, "fails": self.fails}


def failing(op, reduction):
    """A backward that Python refuses."""
    return {"leaves": [{"shape": [4], "dtype": "float32", "seed": 1, "grad": True, "range": 2001, "nan": 0}], "second": False, "fails": True,
            "steps": [{"op": op, "of": [0], "reduction": reduction, "dim": 0, "root": 0, "async": False, "splits": []}]}


class Functional(unittest.TestCase):
    maxDiff = 3000

    def check(self, languages, share, seed, refused=True, **variables):
        size = len(languages)
        rng = random.Random(SEED * 1000 + seed)
        programs = [Drawn(rng, size).spec() for _ in range(max(1, PROGRAMS * share // 100))]
        if refused and size == 2:
            programs += [failing("all_reduce", "product"), failing("reduce_scatter", "max"), failing("all_reduce_coalesced", "product")]
        with tempfile.TemporaryDirectory() as name:
            expected = run_job(pathlib.Path(name), {"programs": programs}, ["Python"] * size, PROGRAM, TWIN)
            results = run_job(pathlib.Path(name), {"programs": programs}, languages, PROGRAM, TWIN, **variables)
        for rank in range(size):
            for number, (program, ours, pythons) in enumerate(zip(programs, results[rank], expected[rank], strict=True)):
                with self.subTest(rank=rank, number=number):
                    self.assertEqual(program["fails"], pythons == "error")
                    self.assertEqual(ours, pythons, program)

    def test_one_rank(self):
        self.check(["C++"], 5, 1)

    def test_two_ranks_in_shared_memory(self):
        self.check(["C++"] * 2, 15, 2)

    def test_two_ranks_on_gloo(self):
        self.check(["C++"] * 2, 10, 3, DDPRUN_CPU_BACKEND="gloo")

    def test_three_ranks_in_shared_memory(self):
        self.check(["C++"] * 3, 15, 4)

    def test_three_ranks_on_gloo(self):
        self.check(["C++"] * 3, 10, 5, DDPRUN_CPU_BACKEND="gloo")

    def test_four_ranks_in_shared_memory(self):
        self.check(["C++"] * 4, 15, 6)

    def test_four_ranks_on_gloo(self):
        self.check(["C++"] * 4, 10, 7, DDPRUN_CPU_BACKEND="gloo")

    def test_three_ranks_one_of_which_runs_python(self):
        self.check(["C++", "Python", "C++"], 10, 8, DDPRUN_CPU_BACKEND="gloo")

    def test_two_ranks_the_first_of_which_runs_python(self):
        self.check(["Python", "C++"], 10, 9, DDPRUN_CPU_BACKEND="gloo")


if __name__ == "__main__":
    unittest.main()
