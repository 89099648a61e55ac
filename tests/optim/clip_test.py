"""clip_grad_norm_ gives the bits of Python's, norm and gradients, in 3,000 random cases: clip_test.py PROGRAM."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import torch

PROGRAM = sys.argv.pop(1)
CASES = 3000
DTYPES = ["float32", "float64", "float16", "bfloat16"]
NAMES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16"}


def draw(rng):
    mixed = rng.random() < 0.5
    dtype = rng.choice(DTYPES)
    gradients = []
    for _ in range(rng.randint(1, 7)):
        gradients.append({
            "dtype": rng.choice(DTYPES) if mixed else dtype, "seed": rng.randrange(1 << 30), "size": 10 ** rng.uniform(-4, 3),
            "shape": rng.choice([[], [1], [7], [3, 5], [33], [2, 3, 4], [300]]),
        })
    if rng.random() < 0.1:
        gradients[0]["first"] = rng.choice(["inf", "-inf", "nan"])
    return {
        "gradients": gradients,
        "max_norm": rng.choice([0.0, 1.0, 10 ** rng.uniform(-3, 4), 10 ** rng.uniform(-3, 4)]),
        "norm_type": rng.choice(["2", "2", "2", "1", "inf", "-inf", "0", "3", "0.5", "-1"]),
        "error_if_nonfinite": rng.random() < 0.3,
    }


def as_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def clip(case):
    parameters = []
    for each in case["gradients"]:
        dtype = getattr(torch, each["dtype"])
        gradient = torch.randn(each["shape"], generator=torch.Generator().manual_seed(each["seed"])) * each["size"]
        if "first" in each:
            gradient.view(-1)[0] = float(each["first"])
        parameters.append(torch.empty(each["shape"], dtype=dtype, requires_grad=True))
        parameters[-1].grad = gradient.to(dtype)
    try:
        norm = torch.nn.utils.clip_grad_norm_(
            parameters, case["max_norm"], float(case["norm_type"]), case["error_if_nonfinite"]
        )
    except RuntimeError:
        return b"refused\n"
    name = NAMES[str(norm.dtype).removeprefix("torch.")]
    return f"{name}\n".encode() + as_bytes(norm) + b"".join(as_bytes(p.grad) for p in parameters)


class Clip(unittest.TestCase):
    def test_every_bit_is_pythons(self):
        torch.set_num_threads(1)
        rng = random.Random(14)
        cases = [draw(rng) for _ in range(CASES)]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "cases.json").write_text(json.dumps(cases))
            subprocess.run([PROGRAM, folder / "cases.json", folder], check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
            actual = [(folder / f"{i}.bin").read_bytes() for i in range(CASES)]
        expected = [clip(case) for case in cases]
        different = [case for case, ours, pythons in zip(cases, actual, expected) if ours != pythons]
        self.assertEqual(len(different), 0, f"{len(different)} of {CASES} differ; the first: {different[:1]}")
        self.assertGreater(sum(content == b"refused\n" for content in expected), 20, "some are refused")


if __name__ == "__main__":
    unittest.main()
