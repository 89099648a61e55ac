"""ReduceLROnPlateau makes of random metrics, NaN and infinity among them, what Python's does: plateau_test.py PROGRAM."""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
CASES = 500
METRICS = 40


def draw_metrics(rng):
    """A walk with levels, jumps and what is no number."""
    special = ["nan", "inf", "-inf", "0.0", "-0.0"]
    level = rng.choice([-1.0, 0.0, 1e-300, 1.0, 1e300])
    metrics = []
    for _ in range(METRICS):
        level += rng.choice([0.0, 0.0, -1e-5, 1e-5, -0.1, 0.1, -0.3]) * (abs(level) or 1.0)
        metrics.append(rng.choice(special) if rng.random() < 0.08 else repr(level))
    return metrics


def cases():
    rng = random.Random(23)
    for _ in range(CASES):
        yield {
            "options": {
                "mode": rng.choice(["min", "max"]), "factor": rng.choice([-0.5, 0.0, 0.1, 0.5, 0.999]),
                "patience": rng.choice([-1, 0, 1, 2, 5]), "threshold": rng.choice([0.0, 1e-4, 0.1, 2.0, -0.1]),
                "threshold_mode": rng.choice(["rel", "abs"]), "cooldown": rng.choice([-1, 0, 1, 4]),
                "min_lr": rng.choice([[0.0, 0.0], [0.03, 0.001], [1.0, 0.0]]), "eps": rng.choice([0.0, 1e-8, 0.01]),
            },
            "metrics": draw_metrics(rng)
        }


def pythons_steps(case):
    import torch

    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.02)]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **case["options"])
    for metric in case["metrics"]:
        scheduler.step(float(metric))
        yield [group["lr"] for group in optimizer.param_groups], scheduler.state_dict()


def same(ours, pythons):
    if isinstance(ours, dict):  # as JSON has no such number
        ours = float(next(iter(ours.values())))
    if math.isnan(pythons):
        return math.isnan(ours)
    return ours == pythons or math.isclose(ours, pythons, rel_tol=1e-12)


class Plateau(unittest.TestCase):
    def test_rates_and_states_are_pythons(self):
        drawn = list(cases())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cases.json"
            path.write_text(json.dumps(drawn))
            results = json.loads(subprocess.run([PROGRAM, path], check=True, capture_output=True, text=True).stdout)
        self.assertEqual(len(results), CASES)
        reductions = 0
        for case, result in zip(drawn, results):
            for step, (got, (rates, state)) in enumerate(zip(result, pythons_steps(case), strict=True)):
                with self.subTest(step=step, **case):
                    self.assertTrue(all(map(same, got["lr"], rates)), f"{got['lr']} instead of {rates}")
                    for name, value in got["state"].items():
                        if name != "type":
                            self.assertTrue(same(value, state[name]), f"{name}: {value!r} instead of {state[name]!r}")
            reductions += result[-1]["lr"] != [0.1, 0.02]
        self.assertGreater(reductions, CASES / 4)


if __name__ == "__main__":
    unittest.main()
