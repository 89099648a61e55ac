"""GradScaler against Python's over random programs of 1,000 calls: scales, skips, weights, gradients and exceptions.

    scaler_test.py PROGRAM golden    one program with the answers that Python's GradScaler gave; any Python
    scaler_test.py PROGRAM live      programs made up at random, with the answers of this Python's torch
    scaler_test.py PROGRAM write     makes the golden file
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import unittest
import warnings

PROGRAM, MODE = sys.argv.pop(1), sys.argv.pop(1)
GOLDEN = pathlib.Path(__file__).with_name("scaler_golden.json")
CALLS = 1000
LIVE_SEEDS = range(10)
OPTIMIZERS = ("plain", "other", "fused")


def make_program(seed):
    source = random.Random(seed)
    # Python's fused optimizers fail with an AttributeError when they are stepped without gradients: always have some.
    calls = ["new 65536 2 0.5 3 1", "gradient fused 1 1 1"]

    def gradient(name):
        values = [source.choice((1.0, -2.5, 0.0, 1e-3, source.uniform(-1e5, 1e5))) for _ in range(3)]
        if source.random() < 0.2:
            values[source.randrange(3)] = source.choice(("inf", "-inf", "nan"))
        kind = "sparse" if name != "fused" and source.random() < 0.15 else "gradient"
        return f"{kind} {name} {' '.join(map(str, values))}"

    def iteration():
        yield f"scale {source.uniform(-2, 2)}"
        names = source.sample(OPTIMIZERS, source.randint(1, 3))
        for name in names:
            yield gradient(name)
            if source.random() < 0.4:
                yield f"unscale {name}"
        for name in names:
            yield f"step {name}"
        yield "update"

    def oddity():
        name = source.choice(OPTIMIZERS)
        return source.choice((
            f"unscale {name}", f"step {name}", "update", f"step_closure {name}", f"clear {source.choice(('plain', 'other'))}", gradient(name),
            f"gradient half 1 2 {source.choice((3, 'inf'))}", "sparse half 40000 40000 1", "unscale half", "step half",
            f"scale_many {source.random()}", f"update_to {source.choice((1.0, 1024.5, 3e38))}",
            f"update_tensor {source.choice((2.0, 77.0))}", "update_vector 3", "update_tensor_of_two", "update_tensor_with_gradient 2",
            f"set_growth_factor {source.choice((2, 1.5, 3))}", f"set_backoff_factor {source.choice((0.5, 0.1))}",
            f"set_growth_interval {source.choice((1, 2, 3, 5))}", "remember", "restore", "restore_nothing", "get",
            f"new {source.choice((65536, 8, 1))} {source.choice((2, 2, 4, 1))} {source.choice((0.5, 0.5, 1))} 3 1",
            "new 128 2 0.5 2 0",
        ))  # fmt: skip

    while len(calls) < CALLS:
        if source.random() < 0.5:
            calls.extend(iteration())
        else:
            calls.append(oddity())
        if calls[-1].endswith(" 0") and calls[-1].startswith("new"):  # disabled: a few calls, then another one
            calls.extend(iteration())
            calls.extend(("get", "remember", "restore", "restore_nothing", "new 256 2 0.5 2 1"))
    return calls[:CALLS]


def answers_of_program(calls):
    variables = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    result = subprocess.run(
        [PROGRAM], input="\n".join(calls) + "\n", stdout=subprocess.PIPE, env=variables, universal_newlines=True, check=True)
    return result.stdout.split("\n")[:-1]


def format_number(value):
    return f"{value:.17g}"


class PythonMachine:
    def __init__(self):
        import torch

        self.torch = torch
        self.trained = {}
        for name in ("plain", "other", "half", "fused"):
            weight = torch.full((3,), 1.0, dtype=torch.half if name == "half" else torch.float, requires_grad=True)
            self.trained[name] = (weight, torch.optim.SGD([weight], 0.125, fused=name == "fused", foreach=False))
        self.remembered = {}

    def run(self, line):
        call, *words = line.split()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return "ok" + self.execute(call, words)
        except (ValueError, AssertionError, RuntimeError) as error:
            return f"{type(error).__name__} {error}"

    def numbers(self, values):
        return "".join(" " + format_number(value) for value in values)

    def numbers_of(self, name):
        weight = self.trained[name][0]
        text = self.numbers(weight.detach().double().tolist())
        gradient = weight.grad
        if gradient is None:
            return text + " none"
        return text + self.numbers((gradient.to_dense() if gradient.is_sparse else gradient).double().tolist())

    def numbers_of_scaler(self):
        state = self.scaler.state_dict()
        if not state:
            return " disabled"
        return self.numbers(state[key] for key in ("scale", "growth_factor", "backoff_factor")) + (
            f" {state['growth_interval']} {state['_growth_tracker']}"
        )

    def execute(self, call, words):
        torch = self.torch
        if call == "new":
            init, growth, backoff, interval, enabled = words
            self.scaler = torch.amp.GradScaler("cpu", float(init), float(growth), float(backoff), int(interval), enabled == "1")
            return self.numbers_of_scaler()
        if call == "scale":
            return self.numbers([self.scaler.scale(torch.full((), float(words[0]))).item()])
        if call == "scale_many":
            scaled = self.scaler.scale([torch.full((), float(words[0])), torch.full((), 1.0, dtype=torch.half)])
            return "".join(self.numbers([t.item()]) + ("h" if t.dtype == torch.half else "f") for t in scaled)
        if call in ("gradient", "sparse", "clear", "unscale", "step", "step_closure"):
            name = words[0]
            weight, optimizer = self.trained[name]
            if call == "clear":
                weight.grad = None
            elif call in ("gradient", "sparse"):
                values = torch.tensor([float(word) for word in words[1:]]).to(weight.dtype)
                if call == "sparse":
                    values = torch.sparse_coo_tensor(torch.tensor([[0, 0, 2]]), values, (3,))
                weight.grad = values
            elif call == "unscale":
                self.scaler.unscale_(optimizer)
            elif call == "step":
                self.scaler.step(optimizer)
            elif self.scaler.is_enabled():
                self.scaler.step(optimizer, closure=lambda: torch.zeros(()))
            else:
                optimizer.step(lambda: torch.zeros(()))
            return self.numbers_of(name)
        if call == "get":
            enabled = "on" if self.scaler.is_enabled() else "off"
            return f"{self.numbers([self.scaler.get_scale()])} {self.scaler._get_growth_tracker()} {enabled}"
        {
            "update": lambda: self.scaler.update(),
            "update_to": lambda: self.scaler.update(float(words[0])),
            "update_tensor": lambda: self.scaler.update(torch.full((), float(words[0]))),
            "update_vector": lambda: self.scaler.update(torch.full((1,), float(words[0]))),
            "update_tensor_of_two": lambda: self.scaler.update(torch.zeros(2)),
            "update_tensor_with_gradient": lambda: self.scaler.update(torch.full((), float(words[0]), requires_grad=True)),
            "set_growth_factor": lambda: self.scaler.set_growth_factor(float(words[0])),
            "set_backoff_factor": lambda: self.scaler.set_backoff_factor(float(words[0])),
            "set_growth_interval": lambda: self.scaler.set_growth_interval(int(words[0])),
            "remember": lambda: setattr(self, "remembered", self.scaler.state_dict()),
            "restore": lambda: self.scaler.load_state_dict(self.remembered),
            "restore_nothing": lambda: self.scaler.load_state_dict({}),
        }[call]()
        return self.numbers_of_scaler()


class Scaler(unittest.TestCase):
    maxDiff = None

    def compare(self, calls, expected):
        actual = answers_of_program(calls)
        self.assertEqual(len(actual), len(calls))
        for number, (call, ours, theirs) in enumerate(zip(calls, actual, expected)):
            self.assertEqual(ours, theirs, f"call {number}: {call}")
        return actual

    def test_golden(self):
        golden = json.loads(GOLDEN.read_text())
        self.assertEqual(len(golden), CALLS)
        self.compare([call for call, _ in golden], [answer for _, answer in golden])

    def test_live(self):
        try:
            import torch
        except ImportError:
            self.skipTest("this Python has no torch")
        errors, skips = set(), 0
        for seed in LIVE_SEEDS:
            calls = make_program(seed)
            machine = PythonMachine()
            for answer in self.compare(calls, [machine.run(call) for call in calls]):
                if not answer.startswith("ok"):
                    errors.add(answer)
        # A program that never met a check would prove little.
        for part in ("unscale_() has already", "unscale_() is being called", "step() has already", "FP16 gradients",
                     "Closure use", "No inf checks were recorded prior", "growth factor", "backoff factor",
                     "new_scale should be", "source state dict is empty", "_scale is None"):  # fmt: skip
            self.assertTrue(any(part in error for error in errors), f"no program led to {part!r}: {errors}")
        print(f"{len(LIVE_SEEDS)} programs of {CALLS} calls gave the answers of torch {torch.__version__}")

    def test_write(self):
        machine = PythonMachine()
        golden = [[call, machine.run(call)] for call in make_program(1000)]
        GOLDEN.write_text("[\n" + ",\n".join(json.dumps(item) for item in golden) + "\n]\n")


if __name__ == "__main__":
    unittest.main(defaultTest=f"Scaler.test_{MODE}")
