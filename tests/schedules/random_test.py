"""Schedules with random options, groups and rates set by hand have Python's values, and go on with Python's states as
Python's do with theirs: random_test.py PROGRAM."""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
from torch.optim import lr_scheduler, swa_utils

PROGRAM = sys.argv.pop(1)
CASES = int(os.environ.get("CASES", "30"))  # of each kind
STEPS = 45


def each(rng, groups, draw):
    """One number for all groups, or one for each."""
    return [draw() for _ in range(groups)] if rng.random() < 0.5 else draw()


def draw_lambdas(rng, groups):
    count = 1 if rng.random() < 0.3 else groups
    return {"lr_lambda": [{"base": rng.uniform(-1.05, 1.05), "slope": rng.choice([0.0, 0.5, 3.0])} for _ in range(count)]}


def draw_momenta(rng, groups, has_momentum):
    if not has_momentum or rng.random() < 0.2:
        return {"cycle_momentum": False}
    return {
        "base_momentum": each(rng, groups, lambda: rng.uniform(0.0, 0.9)),
        "max_momentum": each(rng, groups, lambda: rng.uniform(0.8, 0.999)),
    }


# What each schedule is drawn from: the generator, the number of groups, whether the optimizer has momentum.
DRAWS = {
    "LambdaLR": lambda rng, groups, _: draw_lambdas(rng, groups),
    "MultiplicativeLR": lambda rng, groups, _: draw_lambdas(rng, groups),
    "StepLR": lambda rng, *_: {"step_size": rng.randint(1, 20), "gamma": rng.uniform(-1.5, 1.5)},
    "MultiStepLR": lambda rng, *_: {
        "milestones": [rng.randint(-3, 50) for _ in range(rng.randint(0, 6))], "gamma": rng.uniform(-1.5, 1.5)
    },
    "ConstantLR": lambda rng, *_: {"factor": rng.uniform(0.001, 1), "total_iters": rng.randint(-2, 60)},
    "LinearLR": lambda rng, *_: {
        "start_factor": 1 - rng.random(), "end_factor": rng.random(), "total_iters": rng.randint(1, 60)
    },
    "ExponentialLR": lambda rng, *_: {"gamma": rng.choice([rng.uniform(-1.2, 1.2), math.exp(rng.uniform(-50, 5))])},
    "PolynomialLR": lambda rng, *_: {"total_iters": rng.randint(1, 60), "power": math.exp(rng.uniform(-3, 3))},
    "CosineAnnealingLR": lambda rng, *_: {"T_max": rng.randint(1, 60), "eta_min": rng.uniform(-0.1, 0.3)},
    "CosineAnnealingWarmRestarts": lambda rng, *_: {
        "T_0": rng.randint(1, 20), "T_mult": rng.randint(1, 4), "eta_min": rng.uniform(-0.1, 0.3)
    },
    "CyclicLR": lambda rng, groups, has_momentum: {
        "base_lr": each(rng, groups, lambda: rng.uniform(0, 0.5)),
        "max_lr": each(rng, groups, lambda: rng.uniform(0, 2)),
        "step_size_up": rng.randint(1, 20), **rng.choice([{}, {"step_size_down": rng.randint(0, 20)}]),
        "mode": rng.choice(["triangular", "triangular2", "exp_range"]), "gamma": rng.uniform(-1.02, 1.02),
        **draw_momenta(rng, groups, has_momentum),
    },
    "SWALR": lambda rng, groups, _: {
        "swa_lr": each(rng, groups, lambda: rng.uniform(0, 1)), "anneal_epochs": rng.randint(0, 60),
        "anneal_strategy": rng.choice(["cos", "linear"]),
    },
    "OneCycleLR": lambda rng, groups, has_momentum: {
        "max_lr": each(rng, groups, lambda: rng.uniform(0, 2)), "total_steps": rng.randint(STEPS, 3 * STEPS),
        "pct_start": rng.uniform(0.1, 0.45), "anneal_strategy": rng.choice(["cos", "linear"]),
        "three_phase": rng.random() < 0.5, "div_factor": math.exp(rng.uniform(-3, 8)),
        "final_div_factor": math.exp(rng.uniform(-3, 12)), **draw_momenta(rng, groups, has_momentum),
    },
}


def draw(rng, kind):
    count = rng.randint(1, 4)
    optimizer = rng.choice(["plain", "SGD", "Adam"])
    groups = [{"lr": math.exp(rng.uniform(-9, 1))} for _ in range(count)]
    if optimizer != "plain":
        for group in groups:
            group["momentum"] = rng.uniform(0.1, 0.99)
    edits = {}
    if rng.random() < 0.4:
        edits = {str(rng.randint(1, STEPS)): [rng.uniform(0, 1) for _ in groups] for _ in range(3)}
    options = DRAWS[kind](rng, count, optimizer != "plain")
    return {
        "schedule": {"type": kind, "options": options}, "steps": STEPS, "optimizer": optimizer, "groups": groups, "edits": edits
    }


class Plain(torch.optim.Optimizer):
    """One without momentum."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": 0.1})

    def step(self):
        pass


class Pythons:
    """A case with Python's scheduler."""

    def __init__(self, case):
        self.case = case
        parameter = lambda group: {"params": [torch.zeros(1, requires_grad=True)], "lr": group["lr"]}
        kind = case["optimizer"]
        if kind == "plain":
            self.optimizer = Plain([parameter(group) for group in case["groups"]])
        elif kind == "SGD":
            groups = [dict(parameter(group), momentum=group["momentum"]) for group in case["groups"]]
            self.optimizer = torch.optim.SGD(groups, lr=0.1)
        else:
            groups = [dict(parameter(group), betas=(group["momentum"], 0.99)) for group in case["groups"]]
            self.optimizer = torch.optim.Adam(groups, lr=0.1)
        spec = case["schedule"]
        options = dict(spec["options"])
        if "lr_lambda" in options:
            functions = [
                lambda step, base=each["base"], slope=each["slope"]: math.pow(base, step) / (1.0 + slope * step)
                for each in options["lr_lambda"]
            ]
            options["lr_lambda"] = functions if len(functions) > 1 or len(groups_of(self.optimizer)) == 1 else functions[0]
        self.scheduler = getattr(swa_utils if spec["type"] == "SWALR" else lr_scheduler, spec["type"])(self.optimizer, **options)

    def step(self, i):
        for group, lr in zip(groups_of(self.optimizer), self.case["edits"].get(str(i), [])):
            group["lr"] = lr
        self.optimizer.step()
        self.scheduler.step()

    def groups(self):
        kind = self.case["optimizer"]
        momentum = {"plain": lambda _: {}, "SGD": lambda g: {"momentum": g["momentum"]}, "Adam": lambda g: {"momentum": g["betas"][0]}}
        return [dict(momentum[kind](group), lr=group["lr"]) for group in groups_of(self.optimizer)]

    def set_groups(self, got):
        for i, group in enumerate(groups_of(self.optimizer)):
            group["lr"] = got["lr"][i]
            if self.case["optimizer"] == "SGD":
                group["momentum"] = got["momentum"][i]
            elif self.case["optimizer"] == "Adam":
                group["betas"] = (got["momentum"][i], group["betas"][1])


def groups_of(optimizer):
    return optimizer.param_groups


def pythons_run(case):
    """[(groups, state)] of every step."""
    program = Pythons(case)
    steps = []
    for i in range(case["steps"] + 1):
        if i > 0:
            program.step(i)
        steps.append((program.groups(), json.loads(json.dumps(program.scheduler.state_dict(), default=str))))
    return steps


def close(got, wanted):
    if got is None or wanted is None:
        return got is wanted
    return math.isclose(got, wanted, rel_tol=1e-11, abs_tol=1e-15)


def ours(cases):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cases.json"
        path.write_text(json.dumps(cases))
        return json.loads(subprocess.run([PROGRAM, path], check=True, capture_output=True, text=True).stdout)


class Random(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore")
        rng = random.Random(318)
        cls.cases = [draw(rng, kind) for kind in DRAWS for _ in range(CASES)]
        cls.expected = [pythons_run(case) for case in cls.cases]
        cls.interruptions = [rng.randint(0, STEPS - 1) for _ in cls.cases]
        cls.results = ours(cls.cases)

    def check_groups(self, got, wanted, where):
        for i, group in enumerate(wanted):
            for kind in ("lr", "momentum"):
                value, expected = got[kind][i], group.get(kind)
                self.assertTrue(close(value, expected), f"{kind} {i} is {value!r} instead of {expected!r}, {where}")

    def test_every_value_is_pythons(self):
        moved = 0
        for case, result, expected in zip(self.cases, self.results, self.expected):
            self.assertIsNone(result["error"], case)
            self.assertEqual(len(result["steps"]), STEPS + 1)
            for step, (got, (groups, _)) in enumerate(zip(result["steps"], expected)):
                self.check_groups(got, groups, f"step {step}: {case}")
            moved += len({json.dumps(groups) for groups, _ in expected}) > 1
        self.assertGreater(moved, 0.9 * len(self.cases))

    def test_every_step_resumes(self):
        for case, result in zip(self.cases, self.results):
            self.assertEqual(result["faults"], {}, case)

    def test_what_python_saved_goes_on_here(self):
        resumed = []
        for case, expected, at in zip(self.cases, self.expected, self.interruptions):
            groups, state = expected[at]
            resumed.append(dict(case, resume={"at": at, "state": state, "groups": groups}))
        for case, result, expected, at in zip(resumed, ours(resumed), self.expected, self.interruptions):
            self.assertIsNone(result["error"], case)
            self.assertEqual(len(result["steps"]), STEPS + 1 - at)
            for step, (got, (groups, _)) in enumerate(zip(result["steps"], expected[at:]), at):
                self.check_groups(got, groups, f"step {step}, Python's until {at}: {case}")

    def test_what_is_saved_here_goes_on_in_python(self):
        for case, result, expected, at in zip(self.cases, self.results, self.expected, self.interruptions):
            saved = result["steps"][at]
            state = {name: value for name, value in saved["state"].items() if name not in ("type", "groups")}
            if "lr_lambda" in case["schedule"]["options"]:
                state["lr_lambdas"] = [None] * len(case["groups"])
            program = Pythons(case)
            program.scheduler.load_state_dict(state)
            program.set_groups(saved)
            for step in range(at + 1, STEPS + 1):
                program.step(step)
                got = {"lr": [], "momentum": []}
                for group in program.groups():
                    got["lr"].append(group["lr"])
                    got["momentum"].append(group.get("momentum"))
                self.check_groups(got, expected[step][0], f"step {step}, ours until {at}: {case}")


if __name__ == "__main__":
    unittest.main()
