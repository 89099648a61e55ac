"""Schedules with options at their edges have Python's values, or an error where Python has one: edge_test.py PROGRAM."""

import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

PROGRAM = sys.argv.pop(1)
STEPS = 9

HUGE = 2**63 - 1

# Every combination of these is tried.
EDGES = {
    "LinearLR": {"start_factor": [0, 1e-9, 0.5, 1, 1.5], "end_factor": [-0.1, 0, 0.3, 1, 2], "total_iters": [1, 2, 8, 9, 99, HUGE]},
    "ConstantLR": {"factor": [-0.5, 0, 1e-300, 0.5, 1, 1.1], "total_iters": [-1, 0, 1, 5, 9, 10, HUGE]},
    "ExponentialLR": {"gamma": [-1, 0, 1e-200, 0.5, 1, 2, 1e200]},
    "PolynomialLR": {"total_iters": [1, 2, 8, 9, 99, HUGE], "power": [-2, -0.5, 0, 0.5, 1, 3.7, 1e308]},
    "StepLR": {"step_size": [1, 2, 9, 10, HUGE], "gamma": [-1, 0, 0.5, 1, 2]},
    "MultiStepLR": {"milestones": [[], [0], [1], [1, 1, 1], [9], [3, 1], [-1, 4], [0, 0, 5, 99]], "gamma": [-1, 0, 0.5, 2, 1e200]},
    "CosineAnnealingLR": {"T_max": [1, 2, 3, 4, 9, 10, 99, 2**62, 2**62 + 1, HUGE], "eta_min": [-0.1, 0, 0.1, 1]},
    "CosineAnnealingWarmRestarts": {"T_0": [-1, 0, 1, 2, 9, 10, 2**62, HUGE], "T_mult": [-1, 0, 1, 2, 5, 2**61, 2**62, HUGE], "eta_min": [-0.1, 0, 0.1, 1]},
    "CyclicLR": {
        "base_lr": [0, 0.1], "max_lr": [0, 0.1, 1], "step_size_up": [1, 2, 4, HUGE], "step_size_down": [0, 1, 3],
        "mode": ["triangular", "triangular2", "exp_range"], "gamma": [-0.5, 0, 0.5, 1, 1e200],
    },
    "SWALR": {"swa_lr": [0, 0.05, 1], "anneal_epochs": [-1, 0, 1, 2, 8, 9, 99, HUGE], "anneal_strategy": ["cos", "linear"]},
    "OneCycleLR": {
        "max_lr": [0, 0.1, 1], "total_steps": [9, 10, 20, HUGE], "pct_start": [-0.1, 0.0, 0.1, 0.5, 1.0, 1.5],
        "anneal_strategy": ["cos", "linear"], "div_factor": [0, 1, 25], "final_div_factor": [0, 1, 1e4],
        "three_phase": [False, True],
    },
}


def cases():
    for kind, edges in EDGES.items():
        for values in itertools.product(*edges.values()):
            yield {"schedule": {"type": kind, "options": dict(zip(edges, values))}, "steps": STEPS}


def pythons(case):
    """Its values at every step up to an error, and the error."""
    import torch

    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.02)]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    steps = []
    try:
        spec = case["schedule"]
        place = torch.optim.swa_utils if spec["type"] == "SWALR" else torch.optim.lr_scheduler
        scheduler = getattr(place, spec["type"])(optimizer, **spec["options"])
        for i in range(case["steps"] + 1):
            if i > 0:
                optimizer.step()
                scheduler.step()
            steps.append({kind: [group[kind] for group in optimizer.param_groups] for kind in ("lr", "momentum")})
    except (ValueError, ArithmeticError) as error:
        return steps, error
    return steps, None


def close(got, wanted):
    if got is None or not math.isfinite(wanted):  # JSON has no other numbers
        return got is None and not math.isfinite(wanted)
    return math.isclose(got, wanted, rel_tol=1e-12, abs_tol=1e-15)


class Edges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore")
        cls.cases = list(cases())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cases.json"
            path.write_text(json.dumps(cls.cases))
            cls.results = json.loads(subprocess.run([PROGRAM, path], check=True, capture_output=True, text=True).stdout)

    def test_values_and_errors_are_pythons(self):
        for case, result in zip(self.cases, self.results):
            spec = case["schedule"]
            with self.subTest(**spec["options"], type=spec["type"]):
                wanted, error = pythons(case)
                if isinstance(error, ZeroDivisionError) and spec["type"] == "OneCycleLR":
                    # Phases without length, of which Python's end by a division, are not an error here.
                    if 0 not in (spec["options"]["div_factor"], spec["options"]["final_div_factor"]):
                        self.assertIsNone(result["error"])
                        continue
                self.assertEqual(result["error"] is None, error is None, f"{result['error']!r} instead of {error!r}")
                # What Python finds out in the middle of a run may be said at its beginning.
                if error is None:
                    self.assertEqual(len(result["steps"]), len(wanted))
                else:
                    self.assertLessEqual(len(result["steps"]), len(wanted))
                for step, (got, values) in enumerate(zip(result["steps"], wanted)):
                    for kind in ("lr", "momentum"):
                        for ours, theirs in zip(got[kind], values[kind]):
                            self.assertTrue(close(ours, theirs), f"step {step}: {kind} {ours!r} instead of {theirs!r}")

    def test_every_step_resumes(self):
        for case, result in zip(self.cases, self.results):
            if result["error"] is None and None not in [value for step in result["steps"] for value in step["lr"]]:
                self.assertEqual(result["faults"], {}, case)

    def test_errors_name_the_rank(self):
        errors = [result["error"] for result in self.results if result["error"] is not None]
        self.assertGreater(len(errors), 100)
        for error in errors:
            self.assertTrue(error.startswith("rank 0 of 1: "), error)


if __name__ == "__main__":
    unittest.main()
