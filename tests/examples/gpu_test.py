"""On a machine with a GPU: each program there, with what it learns on a CPU, and the CIFAR-10 program in every precision, under ddprun."""

import math
import os
import re
import unittest

from every_program import NAMES, command, make_data, weights
from support import DDPRUN, ExampleTest, write_cifar10

EPOCH = re.compile(r"epoch 1: loss (\S+), validation accuracy ")


class OnGpu(ExampleTest):
    def setUp(self):
        super().setUp()
        self.data = write_cifar10(self.path("data"), train=320, test=64)

    def train(self, *arguments, folder="run"):
        return self.succeed(os.environ.get("RANKS", "gpu"), "--data-dir", self.data, "--checkpoint-dir", self.path(folder), *arguments)

    def test_every_precision_trains_saves_and_ends(self):
        for precision in ((), ("--amp", "fp16"), ("--amp", "fp16", "--opt-level", "O2"), ("--amp", "bf16", "--opt-level", "O3")):
            with self.subTest(precision):
                lines = "\n".join(self.train("--epochs", "2", *precision, folder="_".join(("run", *precision))))
                self.assertIn("device cuda:0", lines)
                self.assertRegex(lines, EPOCH)

    def test_a_resumed_run_has_the_loss_of_an_undisturbed_one(self):
        def loss(lines):
            return float(EPOCH.search("\n".join(lines))[1])

        whole = loss(self.train("--epochs", "2", "--amp", "fp16", "--lr", "0.01"))
        self.train("--epochs", "1", "--amp", "fp16", "--lr", "0.01", folder="parts")
        resumed = loss(self.train("--epochs", "2", "--amp", "fp16", "--lr", "0.01", "--resume", folder="parts"))
        # cuDNN's sums are in no fixed order; checkpoint.gpu compares bits.
        self.assertAlmostEqual(resumed, whole, delta=2e-3)


class EveryProgram(ExampleTest):
    # How far weights may be from a CPU's: GPUs round otherwise, and batch norms of few samples enlarge that.
    TOLERANCE = {"cifar10": 1e-2, "horovod_style": 1e-3, "text": 1e-2, "toy_linear": 1e-3}

    def ranks(self):
        """Two at most: the data is little."""
        told = self.run_command([DDPRUN, "-n", "gpu", "echo", "rank"]).stdout if "RANKS" not in os.environ else ""
        return os.environ.get("RANKS") or str(min(2, told.count("rank")))

    def start(self, name, run, environment):
        os.makedirs(self.path(run))
        ranks = self.ranks()
        result = self.run_command([DDPRUN, "-n", ranks, *command(name, self.folder, run)], environment)
        self.assertEqual(result.returncode, 0, f"{name}, {run}: {result.stdout}{result.stderr}")
        return result.stdout

    def test_each_trains_there_as_on_a_cpu(self):
        make_data(self.folder)
        for name in NAMES:
            with self.subTest(program=name):
                said = self.start(name, f"{name}-gpu", {})
                if "device c" in said:  # those that tell
                    self.assertIn("device cuda:0", said)
                found = weights(name, self.folder, f"{name}-gpu")
                self.assertTrue(all(math.isfinite(value) for values in found.values() for value in values))
                if name not in self.TOLERANCE:
                    continue
                self.start(name, f"{name}-cpu", {"DDPRUN_CUDA": "0"})
                for tensor, values in weights(name, self.folder, f"{name}-cpu").items():
                    for ours, expected in zip(found[tensor], values, strict=True):
                        self.assertAlmostEqual(ours, expected, delta=self.TOLERANCE[name], msg=f"{name}: {tensor}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
