"""The functions that clip gradients give the bits of Python's, norm and gradients, in random cases: clip_test.py PROGRAM."""

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
CASES = 6000
DTYPES = ["float32", "float64", "float16", "bfloat16"]
NAMES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16"}


def draw(rng):
    mixed = rng.random() < 0.5
    dtype = rng.choice(DTYPES)
    gradients = []
    for _ in range(rng.randint(0, 7)):
        gradients.append({
            "dtype": rng.choice(DTYPES) if mixed else dtype, "seed": rng.randrange(1 << 30), "size": 10 ** rng.uniform(-4, 3),
            "shape": rng.choice([[], [1], [7], [3, 5], [33], [2, 3, 4], [300]]),
            "memory": rng.choice(["own", "own", "part", "transposed"]), "missing": rng.random() < 0.1,
        })
    if gradients and rng.random() < 0.1:
        gradients[0]["first"] = rng.choice(["inf", "-inf", "nan"])
    return {
        "function": rng.choice(["clip_grad_norm_", "clip_grad_norm_", "get_total_norm", "clip_grads_with_norm_", "clip_grad_value_"]),
        "foreach": rng.choice([None, True, False]),  # the same bits on the CPU, so that the library has no such argument
        "gradients": gradients,
        "repeated": [rng.randrange(len(gradients))] if gradients and rng.random() < 0.3 else [],
        "limit": rng.choice([0.0, 1.0, 10 ** rng.uniform(-3, 4), 10 ** rng.uniform(-3, 4)]),
        "norm_type": rng.choice(["2", "2", "2", "1", "inf", "-inf", "0", "3", "0.5", "-1"]),
        "error_if_nonfinite": rng.random() < 0.3,
        "total_norm": rng.choice(["0", "inf", "nan", *[str(10 ** rng.uniform(-3, 4)) for _ in range(5)]]),
        "total_norm_dtype": rng.choice(["float32", "float32", "float64", "bfloat16"]),
    }


def as_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def gradient_of(each, dtype):
    gradient = torch.randn(each["shape"], generator=torch.Generator().manual_seed(each["seed"])) * each["size"]
    if "first" in each:
        gradient.view(-1)[0] = float(each["first"])
    gradient = gradient.to(dtype)
    if each["memory"] == "part":
        return torch.zeros(gradient.numel() + 5, dtype=dtype).narrow(0, 3, gradient.numel()).view(each["shape"]).copy_(gradient)
    return gradient.t().contiguous().t() if each["memory"] == "transposed" and gradient.dim() == 2 else gradient


def call(case, parameters):
    utils, foreach = torch.nn.utils, case["foreach"]
    norm_type, error_if_nonfinite = float(case["norm_type"]), case["error_if_nonfinite"]
    if case["function"] == "clip_grad_norm_":
        return utils.clip_grad_norm_(parameters, case["limit"], norm_type, error_if_nonfinite, foreach)
    if case["function"] == "get_total_norm":
        return utils.get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    if case["function"] == "clip_grad_value_":
        if all(p.grad is None for p in parameters):
            return None  # an internal error of Python's; the library changes nothing
        return utils.clip_grad_value_(parameters, case["limit"], foreach)
    total_norm = torch.tensor(float(case["total_norm"]), dtype=getattr(torch, case["total_norm_dtype"]))
    return utils.clip_grads_with_norm_(parameters, case["limit"], total_norm, foreach)


def clip(case):
    parameters = []
    for each in case["gradients"]:
        dtype = getattr(torch, each["dtype"])
        parameters.append(torch.empty(each["shape"], dtype=dtype, requires_grad=True))
        if not each["missing"]:
            parameters[-1].grad = gradient_of(each, dtype)
    try:
        norm = call(case, parameters)
    except RuntimeError:
        return b"refused\n"
    result = b"" if norm is None else f"{NAMES[str(norm.dtype).removeprefix('torch.')]}\n".encode() + as_bytes(norm)
    return result + b"".join(as_bytes(p.grad) for p in parameters if p.grad is not None)


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
        for function in ("clip_grad_norm_", "get_total_norm"):
            refused = sum(content == b"refused\n" for case, content in zip(cases, expected) if case["function"] == function)
            self.assertGreater(refused, 10, f"some calls of {function} are refused")


if __name__ == "__main__":
    unittest.main()
