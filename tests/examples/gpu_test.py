"""On a machine with a GPU: the CIFAR-10 program there, in every precision, under ddprun."""

import os
import re
import unittest

from support import ExampleTest, write_cifar10

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
