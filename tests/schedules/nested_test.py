"""Random schedules of schedules have Python's values and states at every step, and resume at each: nested_test.py PROGRAM."""

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

PROGRAM = sys.argv.pop(1)
CASES = int(os.environ.get("CASES", "150"))
STEPS = 40


def draw_simple(rng):
    options = {
        "LinearLR": lambda: {
            "start_factor": rng.uniform(0.05, 1), "end_factor": rng.uniform(0, 1), "total_iters": rng.randint(1, 25)
        },
        "ConstantLR": lambda: {"factor": rng.uniform(0.1, 1), "total_iters": rng.randint(0, 15)},
        "ExponentialLR": lambda: {"gamma": rng.uniform(0.8, 1)},
        "PolynomialLR": lambda: {"total_iters": rng.randint(1, 30), "power": rng.choice([0.5, 1.0, 2.0])},
        "StepLR": lambda: {"step_size": rng.randint(1, 9), "gamma": rng.uniform(0.3, 1)},
        "MultiStepLR": lambda: {
            "milestones": sorted(rng.randint(0, 30) for _ in range(rng.randint(1, 4))), "gamma": rng.uniform(0.3, 1)
        },
        "CosineAnnealingLR": lambda: {"T_max": rng.randint(1, 40), "eta_min": rng.choice([0.0, 0.001])},
        "CosineAnnealingWarmRestarts": lambda: {
            "T_0": rng.randint(1, 12), "T_mult": rng.randint(1, 3), "eta_min": rng.choice([0.0, 0.001])
        },
        "CyclicLR": lambda: {
            "base_lr": rng.uniform(0.01, 0.1), "max_lr": rng.uniform(0.1, 1), "step_size_up": rng.randint(1, 20),
            "step_size_down": rng.randint(1, 20), "mode": rng.choice(["triangular", "triangular2"]),
        },
        "SWALR": lambda: {
            "swa_lr": rng.uniform(0.01, 0.5), "anneal_epochs": rng.randint(0, 25), "anneal_strategy": rng.choice(["cos", "linear"])
        },
        "OneCycleLR": lambda: {"max_lr": rng.uniform(0.1, 1), "total_steps": rng.randint(STEPS, 90)},
    }
    kind = rng.choice(sorted(options))
    return {"type": kind, "options": options[kind]()}


def draw(rng, depth):
    if depth == 0:
        return draw_simple(rng)
    count = rng.randint(1, 4)
    if rng.random() < 0.3:
        return {"type": "ChainedScheduler", "parts": [draw(rng, rng.randint(0, depth - 1)) for _ in range(count)]}
    # Only the first may be composed, in Python too.
    parts = [draw(rng, depth - 1)] + [draw_simple(rng) for _ in range(count - 1)]
    # Before 2.13 Python begins with the first one even where a milestone at 0 says that its time is over.
    first = 0 if int(torch.__version__.split(".")[1]) >= 13 else 1
    return {"type": "SequentialLR", "parts": parts, "milestones": sorted(rng.randint(first, 35) for _ in range(count - 1))}


def cases():
    rng = random.Random(15)
    drawn = []
    while len(drawn) < CASES:
        schedule = draw(rng, 1 + len(drawn) % 4)
        # Python's OneCycleLR and SWALR keep theirs in the optimizer's groups, where others, and for the first CyclicLR, overwrite it.
        text = json.dumps(schedule)
        if text.count("SWALR") > 1:
            continue
        if text.count("OneCycleLR") + ("CyclicLR" in text) <= 1 or "OneCycleLR" not in text:
            drawn.append({"schedule": schedule, "steps": STEPS})
    return drawn


def build(spec, optimizer):
    from torch.optim import lr_scheduler, swa_utils

    kind = getattr(swa_utils if spec["type"] == "SWALR" else lr_scheduler, spec["type"])
    if "options" in spec:
        return kind(optimizer, **spec["options"])
    parts = [build(part, optimizer) for part in spec["parts"]]
    return kind(optimizer, parts, spec["milestones"]) if "milestones" in spec else kind(parts, optimizer)


def pythons_steps(case):
    import torch

    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.02)]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    scheduler = build(case["schedule"], optimizer)
    for i in range(case["steps"] + 1):
        if i > 0:
            optimizer.step()
            scheduler.step()
        values = {kind: [group[kind] for group in optimizer.param_groups] for kind in ("lr", "momentum")}
        yield dict(values, state=json.loads(json.dumps(scheduler.state_dict(), default=str)))


def close(got, wanted):
    return math.isclose(got, wanted, rel_tol=1e-12, abs_tol=1e-15)


class Nested(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore")
        cls.cases = cases()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cases.json"
            path.write_text(json.dumps(cls.cases))
            cls.results = json.loads(subprocess.run([PROGRAM, path], check=True, capture_output=True, text=True).stdout)

    def check_state(self, ours, pythons, where):
        for name, value in ours.items():
            if name in ("type", "groups"):  # ours alone: Python keeps OneCycleLR's bounds in the optimizer
                continue
            self.assertIn(name, pythons, where)
            if name == "_schedulers":
                self.assertEqual(len(value), len(pythons[name]), where)
                for part, pythons_part in zip(value, pythons[name]):
                    self.check_state(part, pythons_part, where)
            else:
                self.assertEqual(value, pythons[name], f"{where}: {ours['type']}'s {name}")

    def test_every_step_resumes(self):
        for i, result in enumerate(self.results):
            self.assertEqual((result["error"], result["faults"]), (None, {}), f"case {i}: {self.cases[i]}")

    def test_every_value_and_state_is_pythons(self):
        self.assertEqual(len(self.results), CASES)
        for i, (case, result) in enumerate(zip(self.cases, self.results)):
            expected = list(pythons_steps(case))
            self.assertEqual(len(result["steps"]), len(expected))
            for step, (got, wanted) in enumerate(zip(result["steps"], expected)):
                where = f"case {i}, step {step}: {case}"
                for kind in ("lr", "momentum"):
                    for ours, pythons in zip(got[kind], wanted[kind]):
                        self.assertTrue(close(ours, pythons), f"{kind} {ours!r} instead of {pythons!r}, {where}")
                self.check_state(got["state"], wanted["state"], where)

    def test_the_cases_reach_what_resuming_has_to_survive(self):
        text = json.dumps(self.results)
        for count in (-1, -2, -3):
            self.assertIn(f'"last_epoch": {count}', text)


if __name__ == "__main__":
    unittest.main()
