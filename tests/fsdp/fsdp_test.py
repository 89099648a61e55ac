"""Random fully sharded trainings give the bits of PyTorch's fully_shard, in jobs of C++ and of both languages: fsdp_test.py PROGRAM.
DDPRUN_FSDP_PROGRAMS is their number in all, DDPRUN_FSDP_SEED where they begin."""

import os
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "comm"))
from mixed_job import run_job  # noqa: E402

PROGRAM = sys.argv.pop(1)
TWIN = pathlib.Path(__file__).with_name("fsdp_program.py")
PROGRAMS = int(os.environ.get("DDPRUN_FSDP_PROGRAMS", "100"))
SEED = int(os.environ.get("DDPRUN_FSDP_SEED", "1"))
POLICIES = [{}, {}, {}, {"param_dtype": "bfloat16"}, {"param_dtype": "bfloat16", "reduce_dtype": "float32"},
            {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16", "output_dtype": "float32"}, {"reduce_dtype": "float16"}]


def draw_division(rng, shards, policy):
    """What gloo can judge: Python's premultiplied sums need NCCL, and it divides twice where one rank has all shards."""
    in_16_bits = policy.get("reduce_dtype") == "float16"
    divide = rng.choice([None, None, None, None, 0.5, 2, 3, 7, shards])
    only_sums = rng.random() < 0.2
    if divide is not None and shards == 1:
        return (None, False) if in_16_bits else (divide, False)
    return divide, only_sums or (divide not in (None, shards) and not in_16_bits)


def draw_settings(rng, layers, units, none):
    """Of single units, each named by its first module; the root is ''."""
    names = [unit[0] for unit in units]
    embeddings = [f"l{i}" for i, layer in enumerate(layers) if layer["kind"] == "embedding"]

    def some(of, share):
        return [] if none else [name for name in of if rng.random() < share]

    return {"unit_reshard": [[name, rng.random() < 0.5] for name in some(names, 0.2)],
            "no_unshard": [name for name in names if name in embeddings and rng.random() < 0.5],
            "forward_prefetch": [[name, rng.sample(names[i:], rng.randint(0, min(3, len(names) - i)))]
                                 for i, name in enumerate(["", *names]) if name in some(["", *names], 0.4)],
            "backward_prefetch": [[name, rng.sample(names, rng.randint(0, min(3, len(names))))] for name in some(["", *names], 0.4)],
            "unshard": [[name, rng.random() < 0.5] for name in some(["", *names], 0.15)],
            "reshard_all": None if none else rng.choice([None, True, False])}


def draw(rng, size, with_python):
    width, layers, units, names = rng.randint(2, 9), [], [], []

    def add(kind, inputs, outputs):
        layers.append({"kind": kind, "in": inputs, "out": outputs, "bias": rng.random() < 0.8})
        name = f"l{len(layers) - 1}"
        parts = {"block": ["a", "c"], "linear": ["a"], "unused": ["a"]}.get(kind, [])
        if rng.random() < 0.6:
            units.append([name])
        for part in parts:
            if rng.random() < 0.2 and (kind != "linear" or [name] not in units):  # a unit of no parameters of its own is not Python's
                units.append([f"{name}.{part}"])
        names.extend(f"{name}.{part}.weight" for part in parts)
        names.extend(f"{name}.{part}.bias" for part in parts if layers[-1]["bias"])

    if rng.random() < 0.3:
        add("embedding", rng.randint(2, 11), width)
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(["linear", "linear", "norm", "block", "block", "unused"])
        outputs = rng.randint(1, 9) if kind in ("linear", "unused") else width
        add(kind, width, outputs)
        width = outputs
    same = [i for i, layer in enumerate(layers) if layer["kind"] != "embedding" and layer["in"] == layer["out"] == width]
    # Python gathers a unit again that a forward uses twice in a row, and keeps it in other cases.
    again = same and rng.random() < 0.3 and not with_python
    if again:
        layers.append({"kind": "again", "layer": same[0]})
    head = rng.random() < 0.7
    if head and rng.random() < 0.3:
        units.append(["head"])
    replicas = rng.choice([0, 0, 1, 2]) if size % 2 == 0 else 0
    accumulate = rng.choice(["reduce", "keep", "partial"]) if replicas else rng.choice(["reduce", "keep"])
    if again and same[0] == len(layers) - 2:  # two uses in a row are one here, so nothing is reduced between them
        accumulate = "reduce"
    policy, micro = rng.choice(POLICIES), rng.choice([1, 1, 2])
    divide, only_sums = draw_division(rng, size // replicas if replicas else size, policy)
    # Between backwards Python gathers a last unit before the root, whose output it is.
    interleaved = micro > 1 and rng.random() < 0.3 and not with_python
    more = {"divide": divide, "only_sums": only_sums, "reduce_unused": rng.random() < 0.2, "offload": rng.random() < 0.2,
            # Those keep their dtype.
            "ignored": [name for name in names if rng.random() < 0.15] if "param_dtype" not in policy and rng.random() < 0.4 else [],
            "interleaved": interleaved, "says_last": interleaved and rng.random() < 0.5}
    # For the same reason what is gathered in advance comes at other times.
    settings = draw_settings(rng, layers, units, rng.random() < 0.5 or with_python)
    return more | settings | {"seed": rng.randrange(1000), "layers": layers, "width": width, "head": head, "units": units,
            "frozen": [name for name in names if rng.random() < 0.1], "steps": rng.randint(2, 5), "optimizer": rng.choice(["sgd", "adamw"]),
            "policy": policy, "replicas": replicas, "micro": micro, "accumulate": accumulate,
            "clip": rng.choice([0, 0, 0.1]),
            # An infinite norm of a shard without elements is an error of PyTorch.
            "norm_type": rng.choice([2, 2, 1, 0 if size == 1 else 3]),
            "reshard_after_forward": rng.choice([None, None, None if with_python else True, False]), "evaluates": rng.random() < 0.2,
            "reshards": rng.random() < 0.85, "input_grad": rng.random() < 0.3, "batch": rng.randint(1, 6)}


class FullyShard(unittest.TestCase):
    maxDiff = 3000

    def check(self, languages, share, seed, **variables):
        size = len(languages)
        rng = random.Random(SEED * 1000 + seed)
        programs = [draw(rng, size, "Python" in languages) for _ in range(max(1, PROGRAMS * share // 100))]
        with tempfile.TemporaryDirectory() as name:
            expected = run_job(pathlib.Path(name), {"programs": programs}, ["Python"] * size, PROGRAM, TWIN)
            results = run_job(pathlib.Path(name), {"programs": programs}, languages, PROGRAM, TWIN, **variables)
        for rank in range(size):
            for number, (program, ours, pythons) in enumerate(zip(programs, results[rank], expected[rank], strict=True)):
                with self.subTest(rank=rank, number=number):
                    self.assertEqual(ours, pythons, program)

    def test_one_rank(self):
        self.check(["C++"], 10, 1)

    def test_two_ranks_in_shared_memory(self):
        self.check(["C++"] * 2, 20, 2)

    def test_two_ranks_on_gloo(self):
        self.check(["C++"] * 2, 10, 3, DDPRUN_CPU_BACKEND="gloo")

    def test_three_ranks_in_shared_memory(self):
        self.check(["C++"] * 3, 15, 4)

    def test_four_ranks_in_shared_memory(self):
        self.check(["C++"] * 4, 20, 6)

    def test_four_ranks_on_gloo(self):
        self.check(["C++"] * 4, 10, 7, DDPRUN_CPU_BACKEND="gloo")

    def test_two_ranks_one_of_which_runs_python(self):
        self.check(["C++", "Python"], 10, 8, DDPRUN_CPU_BACKEND="gloo")

    def test_four_ranks_two_of_which_run_python(self):
        self.check(["C++", "Python", "Python", "C++"], 10, 9, DDPRUN_CPU_BACKEND="gloo")


if __name__ == "__main__":
    unittest.main()
