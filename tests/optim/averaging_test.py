"""AveragedModel and update_bn give the names and bits of torch.optim.swa_utils: averaging_test.py PROGRAM."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.optim import swa_utils

PROGRAM = sys.argv.pop(1)
FUNCTIONS = {
    "default": lambda decay: {},
    "ema": lambda decay: {"avg_fn": swa_utils.get_ema_avg_fn(decay)},
    "ema_multi": lambda decay: {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(decay)},
    "swa": lambda decay: {"avg_fn": swa_utils.get_swa_avg_fn()},
    "swa_multi": lambda decay: {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
}
CASES = [
    {"function": function, "decay": decay, "dtype": dtype, "use_buffers": use_buffers, "update_bn": update_bn, "steps": steps,
     "seed": 7}
    for function, dtype, use_buffers, update_bn, (steps, decay) in itertools.product(
        FUNCTIONS, ("float32", "float64"), (False, True), (False, True), ((0, 0.9), (1, 0.5), (6, 0.999)))
    # Python's cannot average batch norm's counter so.
    if function != "swa_multi" or not use_buffers
]  # fmt: skip


def average(case):
    """[(name, bytes)] of the averaged model's state."""
    dtype = getattr(torch, case["dtype"])
    net = nn.Sequential(nn.Linear(3, 40), nn.BatchNorm1d(40), nn.Linear(40, 2)).to(dtype)
    averaged = swa_utils.AveragedModel(net, use_buffers=case["use_buffers"], **FUNCTIONS[case["function"]](case["decay"]))
    generator = torch.Generator().manual_seed(case["seed"])
    with torch.no_grad():
        for _ in range(case["steps"]):
            for parameter in net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
            net(torch.randn(8, 3, generator=generator).to(dtype))
            averaged.update_parameters(net)
        if case["update_bn"]:
            swa_utils.update_bn([torch.randn(rows, 3, generator=generator).to(dtype) for rows in range(5, 9)], averaged)
        averaged.eval()
        state = [*averaged.named_parameters(), *averaged.named_buffers()]
        state.append(("output", averaged(torch.randn(8, 3, generator=generator).to(dtype))))
    return [(name, tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()) for name, tensor in state]


class Averaging(unittest.TestCase):
    def test_every_name_and_bit_is_pythons(self):
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "cases.json").write_text(json.dumps(CASES))
            subprocess.run([PROGRAM, folder / "cases.json", folder], check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
            actual = [(folder / f"{i}.bin").read_bytes() for i in range(len(CASES))]
        for case, content in zip(CASES, actual):
            if case["steps"] == 0:
                # Each program's own initial weights: only names and the number of models are the same.
                self.assertIn(b"n_averaged\n" + bytes(8), content)
                continue
            with self.subTest(**case):
                expected = average(case)
                for tensor, content_of_tensor in expected:
                    wanted = tensor.encode() + b"\n" + content_of_tensor
                    self.assertEqual(content[: len(wanted)], wanted, tensor)
                    content = content[len(wanted) :]
                self.assertEqual(content, b"")

    def test_the_cases_differ(self):
        torch.set_num_threads(1)
        base = next(case for case in CASES if case["steps"] == 6 and case["function"] == "ema")
        results = [average({**base, **change}) for change in ({}, {"update_bn": True}, {"function": "swa"}, {"decay": 0.5})]
        for one, other in itertools.combinations(results, 2):
            self.assertNotEqual(one, other)


if __name__ == "__main__":
    unittest.main()
