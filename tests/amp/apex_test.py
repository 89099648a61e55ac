"""The levels train with the bits of apex's: apex_test.py PROGRAM.

apex itself needs CUDA and is no longer published. What its scale_loss and step do at each level without an overflow is a few
lines of Python (apex/amp/handle.py and _process_optimizer.py, until 2025), which run here on the CPU with torch.optim.SGD.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

PROGRAM = sys.argv.pop(1)
STEPS = 8

OPTIMIZERS = {
    "plain": {"lr": 0.3},
    "decay": {"lr": 0.3, "weight_decay": 0.03},
    "momentum": {"lr": 0.1, "momentum": 0.9},
    "dampening": {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
    "nesterov": {"lr": 0.1, "momentum": 0.7, "nesterov": True, "weight_decay": 0.01},
}


def cases(kind, levels):
    return [
        {"name": f"{level}_{dtype}_{name}_{scale}_{seed}", "class": kind, "level": level, "dtype": dtype,
         "optimizer": options, "loss_scale": scale, "seed": seed}
        for level in levels
        for dtype in ("float16", "bfloat16")
        for name, options in OPTIMIZERS.items()
        for scale in (1.0, 128.0)
        for seed in (1000, 2000, 3000)
    ]


class LibTorchsSgd:
    """torch::optim::SGD on the CPU: its buf.mul_(momentum), an operator with a number, rounds that to the tensor's dtype."""

    def __init__(self, parameters, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
        self.parameters, self.lr, self.momentum, self.dampening = parameters, lr, momentum, dampening
        self.weight_decay, self.nesterov, self.buffers = weight_decay, nesterov, {}

    @torch.no_grad()
    def step(self):
        for i, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if self.weight_decay:
                gradient = gradient.add(parameter, alpha=self.weight_decay)
            if self.momentum:
                if i in self.buffers:
                    rounded = torch.tensor(self.momentum, dtype=parameter.dtype)
                    self.buffers[i].mul_(rounded).add_(gradient, alpha=1 - self.dampening)
                else:
                    self.buffers[i] = gradient.clone()
                gradient = gradient.add(self.buffers[i], alpha=self.momentum) if self.nesterov else self.buffers[i]
            parameter.add_(gradient, alpha=-self.lr)


class RoundedOnce:
    """Python's fused SGD in float32, the results rounded to the parameters' dtype at the end of each step."""

    def __init__(self, parameters, **options):
        self.parameters = parameters
        self.wide = [p.detach().float().requires_grad_() for p in parameters]
        self.sgd = torch.optim.SGD(self.wide, fused=True, **options)

    @torch.no_grad()
    def step(self):
        for parameter, wide in zip(self.parameters, self.wide):
            wide.copy_(parameter)
            wide.grad = parameter.grad.float()
        self.sgd.step()
        for parameter, wide in zip(self.parameters, self.wide):
            parameter.copy_(wide)
            momentum = self.sgd.state[wide].get("momentum_buffer")
            if momentum is not None:
                momentum.copy_(momentum.to(parameter.dtype))


def numbers(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def train(case, make_optimizer):
    """What the optimizer steps, after each step, as bytes."""
    seed, scale, narrow = case["seed"], case["loss_scale"], getattr(torch, case["dtype"])
    net = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3))
    with torch.no_grad():
        for i, parameter in enumerate(net.parameters()):
            parameter.copy_(numbers(parameter.shape, seed + i) * 0.3)
    inputs = torch.float32
    if case["level"] != "O0":
        net.to(narrow)
        inputs = narrow
    stepped = model = list(net.parameters())
    if case["level"] == "O2":
        stepped = [p.detach().clone().float().requires_grad_() for p in model]
    optimizer = make_optimizer(stepped, **case["optimizer"])
    result = []
    for step in range(STEPS):
        for parameter in model:
            parameter.grad = None
        output = net(numbers((16, 12), seed + 100 + step).to(inputs)).float()
        loss = torch.nn.functional.mse_loss(output, numbers((16, 3), seed + 200 + step))
        (loss.float() * scale).backward()
        for parameter, own in zip(stepped, model):
            if parameter is not own:
                parameter.grad = own.grad.float()
            if scale != 1:
                parameter.grad.mul_(1 / scale)
        optimizer.step()
        with torch.no_grad():
            for parameter, own in zip(stepped, model):
                if parameter is not own:
                    own.copy_(parameter)
        result.append(b"".join(p.detach().double().numpy().tobytes() for p in stepped))
    return result


class Levels(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        torch.set_num_threads(1)

    def differing(self, drawn, make_optimizer):
        """The first step that differs, of each case that does."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "cases.json").write_text(json.dumps(drawn))
            subprocess.run([PROGRAM, folder / "cases.json", folder], check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
            result = {}
            for case in drawn:
                content = (folder / f"{case['name']}.bin").read_bytes()
                expected = train(case, make_optimizer)
                size = len(expected[0])
                self.assertEqual(len(content), STEPS * size)
                steps = [content[i * size : (i + 1) * size] for i in range(STEPS)]
                if steps != expected:
                    result[case["name"]] = next(i + 1 for i in range(STEPS) if steps[i] != expected[i])
            return result

    def test_o0_and_o2_have_every_bit_of_apexs(self):
        self.assertEqual(self.differing(cases("torch::optim::SGD", ["O0", "O2"]), torch.optim.SGD), {})

    def test_o3_has_every_bit_of_apexs_but_where_libtorchs_sgd_rounds_the_momentum(self):
        drawn = cases("torch::optim::SGD", ["O3"])
        differing = self.differing(drawn, torch.optim.SGD)
        self.assertEqual(differing.keys(), {c["name"] for c in drawn if "momentum" in c["optimizer"]})
        self.assertGreaterEqual(min(differing.values()), 2, "the first step has no momentum yet")
        self.assertEqual(self.differing(drawn, LibTorchsSgd), {}, "nothing else differs")

    def test_o3_with_our_sgd_is_computed_in_float32_and_rounded_once_a_step(self):
        self.assertEqual(self.differing(cases("ddp::optim::SGD", ["O3"]), RoundedOnce), {})


if __name__ == "__main__":
    unittest.main()
