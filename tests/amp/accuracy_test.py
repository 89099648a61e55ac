"""cifar10 with bfloat16 autocast is as accurate as in single precision: means of five seeds on real images.

DDPRUN_TEST_CIFAR10_DIR names them: the full archive or a part of it. Skipped without. PROGRAM is cifar10.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

DATA = os.environ.get("DDPRUN_TEST_CIFAR10_DIR")
SEEDS = range(5)
EPOCHS = 10
POINTS = 2
ACCURACY = re.compile(r"validation accuracy (\d+\.\d) %")


def accuracy(seed, *options):
    """In percent, after the last epoch."""
    with tempfile.TemporaryDirectory() as folder:
        command = [os.environ["PROGRAM"], "--data-dir", DATA, "--checkpoint-dir", folder, "--seed", seed, "--epochs", EPOCHS]
        command += ["--lr", "0.01", "--momentum", "0.9", *options]
        result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return float(ACCURACY.findall(result.stdout)[-1])


class Accuracy(unittest.TestCase):
    def test_bfloat16_autocast_is_within_two_points_of_single_precision(self):
        mean = {}
        for name, options in (("fp32", ()), ("bf16", ("--amp", "bf16", "--opt-level", "O1"))):
            values = [accuracy(seed, *options) for seed in SEEDS]
            mean[name] = sum(values) / len(values)
            print(f"{name}: {values}, mean {mean[name]:.2f} %", flush=True)
        self.assertGreater(mean["fp32"], 30, "it learns")
        self.assertLess(abs(mean["bf16"] - mean["fp32"]), POINTS)


if not DATA:
    print("skipped: DDPRUN_TEST_CIFAR10_DIR is not set: no real CIFAR-10 images (scripts/get_cifar10 downloads them)")
    sys.exit(77)
unittest.main()
