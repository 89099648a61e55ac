"""dcgan from outside: two nets and two optimizers in one checkpoint, from which a run continues with the same bits; the nets alone, by
their names; and it learns."""

import os
import re
import shutil
import unittest

from programs import PYTHON, ProgramTest
from support import DDPRUN, PROGRAM, read_safetensors, write_cifar10


class Dcgan(ProgramTest):
    SIZE = ("--width", "4", "--noise", "8", "--batch-size", "8")

    def setUp(self):
        super().setUp()
        self.data = write_cifar10(self.path("data"), 96, 10)

    def arguments(self, *more, folder="run"):
        return ("--data-dir", self.data, "--checkpoint-dir", self.path(folder), *self.SIZE, *more)

    def newest(self, folder, file="model.safetensors"):
        with open(self.path(folder, "latest")) as latest:
            return self.path(folder, latest.read().strip(), file)

    def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(self):
        for ranks in (0, 2, 3):
            with self.subTest(ranks=ranks):
                whole, part = f"whole{ranks}", f"part{ranks}"
                command = [PROGRAM] if ranks == 0 else [DDPRUN, "-n", ranks, PROGRAM]
                for folder, epochs in ((whole, 4), (part, 2), (part, 4)):
                    resume = ("--resume",) if epochs == 4 and folder == part else ()
                    result = self.run_command([*command, *self.arguments("--epochs", str(epochs), *resume, folder=folder)])
                    self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("continuing with epoch 2", result.stdout)
                for file in ("model", "optim-generator", "optim-discriminator"):
                    self.check_same_weights(self.newest(part, f"{file}.safetensors"), self.newest(whole, f"{file}.safetensors"))

    def test_both_nets_are_in_the_checkpoint_under_their_names(self):
        self.succeed(2, *self.arguments("--epochs", "1", "--samples", self.path("samples.safetensors")))
        names = {name.split(".")[0] for name in read_safetensors(self.newest("run"))}
        self.assertEqual(names, {"generator", "discriminator"})
        pictures = read_safetensors(self.path("samples.safetensors"))["pictures"]
        self.assertEqual(len(pictures), 16 * 3 * 32 * 32)
        self.assertTrue(all(0 <= value <= 1 for value in pictures))
        tool = os.path.join(os.path.dirname(DDPRUN), "ddprun-checkpoint")
        folder = os.path.dirname(self.newest("run"))
        target = self.path("generator.safetensors")
        result = self.run_command([tool, "convert", folder, target, "--weights-only", "--key", "generator"])
        self.assertEqual(result.returncode, 0, result.stderr)
        whole = read_safetensors(self.newest("run"))
        self.assertEqual(read_safetensors(target), {name[len("generator."):]: values for name, values in whole.items()
                                                    if name.startswith("generator.")})  # fmt: skip

    def test_all_ranks_go_on_from_a_checkpoint_of_another_number_of_ranks(self):
        self.succeed(2, *self.arguments("--epochs", "1"))
        shutil.copytree(self.path("run"), self.path("alone"))
        lines = self.succeed(0, *self.arguments("--epochs", "2", "--resume", folder="alone"))
        self.assertRegex("\n".join(lines), r"resumed from .*: continuing with epoch 1")

    def test_the_discriminator_learns(self):
        lines = self.succeed(2, *self.arguments("--epochs", "8", "--lr", "0.002"))
        losses = [float(loss) for loss in re.findall(r"epoch \d+: loss (\S+),", "\n".join(lines))]
        self.assertEqual(len(losses), 8, lines)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
