"""unet3d from outside: Python's losses, one process or two, mixed precision, kill and resume, what TensorBoard gets."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from programs import EXAMPLES, ProgramTest, losses
from support import read_bytes, slow

EPOCH = re.compile(r"epoch (\d+): loss (\S+), validation loss (\S+), validation dice (\S+), validation iou (\S+)")


class UNet3d(ProgramTest):
    SIZE = ("--width", "4", "--batch-size", "2")

    def setUp(self):
        super().setUp()
        self.data = self.path("volumes")
        self.make_volumes(16)

    def make_volumes(self, side):
        make = [sys.executable, EXAMPLES / "unet3d/make_volumes.py", self.data]
        subprocess.run([*make, "--train", "8", "--validation", "3", "--side", str(side)], check=True, stdout=subprocess.PIPE)

    def make_volumes_for_bf16(self):
        """Of which 3 x 3 x 3 voxels are left below: from 2 x 2 x 2 LibTorch's weight gradients in bf16 hold uninitialised memory on
        some processors (2.15, AVX-512 BF16; in Python too)."""
        shutil.rmtree(self.data)
        self.make_volumes(24)

    def outputs(self, folder):
        folders = ("--checkpoint-dir", self.path(folder), "--tensorboard", self.path(folder, "board"))
        return (*folders, "--step-losses", self.path(f"{folder}.csv"))

    def arguments(self, *more, folder="run"):
        return ("--data-dir", self.data, *self.outputs(folder), *self.SIZE, *more)

    def epochs(self, lines):
        return [tuple(map(float, match.groups())) for match in map(EPOCH.fullmatch, lines) if match]

    def test_its_losses_and_dice_are_pythons(self):
        # The initial weights are the program's own: those of a run without a step forward.
        self.succeed(0, *self.arguments("--epochs", "0", folder="initial"))
        # Adam's first steps are all of one length, so that at a high rate what rounding leaves grows fast.
        for ranks, rate in ((0, "0.003"), (2, "0.0005")):
            with self.subTest(ranks=ranks):
                ours, theirs = self.path(f"run{ranks}.csv"), self.path(f"theirs{ranks}.csv")
                options = ("--epochs", "10", "--milestones", "4,8", "--lr", rate)
                lines = self.succeed(ranks, *self.arguments(*options, "--no-augment", "--no-syncBN", folder=f"run{ranks}"))
                weights = self.path("initial", "unet3d.safetensors")
                expected = self.twin(ranks, "unet3d", "--data-dir", self.data, *self.SIZE, *options,
                                     "--weights", weights, "--step-losses", theirs)  # fmt: skip
                self.check_close(losses(ours)[:20], losses(theirs)[:20], 1e-5)
                dice = float(re.search(r"epoch 9: dice (\S+)", "\n".join(expected))[1])
                self.assertGreaterEqual(self.epochs(lines)[-1][3], 0.95 * dice)

    def test_with_blocks_that_are_computed_again_the_losses_keep_every_digit(self):
        for more in ((), ("--recompute",)):
            self.succeed(2, *self.arguments("--epochs", "2", "--seed", "3", *more, folder=f"again{len(more)}"))
        self.assertEqual(losses(self.path("again1.csv")), losses(self.path("again0.csv")))

    def test_two_ranks_are_one_process_with_twice_the_batch(self):
        options = ("--epochs", "4", "--no-augment", "--warmup-epochs", "0", "--data-dir", self.data, "--width", "4")
        self.succeed(2, *options, "--batch-size", "2", "--lr", "0.001", *self.outputs("two"))
        self.succeed(0, *options, "--batch-size", "4", "--lr", "0.002", *self.outputs("one"))
        self.check_close(losses(self.path("two.csv")), losses(self.path("one.csv")), 1e-4, least=8)

    @slow
    def test_mixed_precision_trains_in_every_level(self):
        self.make_volumes_for_bf16()
        plain = self.epochs(self.succeed(2, *self.arguments("--epochs", "4", "--lr", "0.003", folder="plain")))
        for level in ("O1", "O2"):
            more = ("--epochs", "4", "--lr", "0.003", "--amp", "bf16", "--opt-level", level)
            lines = self.succeed(2, *self.arguments(*more, folder=level))
            epochs = self.epochs(lines)
            self.assertLess(epochs[-1][1], epochs[0][1], level)
            self.assertAlmostEqual(epochs[-1][1], plain[-1][1], delta=0.2)

    def test_tensorboard_has_scalars_of_both_parts_and_slices(self):
        self.succeed(2, *self.arguments("--epochs", "1"))
        names = os.listdir(self.path("run", "board"))
        self.assertEqual(len(names), 1)
        content = read_bytes(self.path("run", "board", names[0]))
        for tag in (b"loss/train", b"loss/validation", b"dice/validation", b"iou/validation", b"validation/image, label, found"):
            self.assertIn(tag, content)

    @slow
    def test_killed_at_a_random_moment_and_started_again_it_ends_with_the_same_weights(self):
        self.make_volumes_for_bf16()
        for name, precision in (("float", ()), ("O2", ("--amp", "bf16", "--opt-level", "O2"))):
            with self.subTest(name):
                options = ("--epochs", "6", "--lr", "0.003", *precision)
                whole, parts = f"whole-{name}", f"parts-{name}"
                self.succeed(2, *self.arguments(*options, *self.recorded(whole), folder=whole))
                self.kill_at_random(2, parts, *self.arguments(*options, *self.recorded(parts), folder=parts))
                self.wait_for_free(parts)
                self.succeed(2, *self.arguments(*options, *self.recorded(parts, seed=False), "--resume", folder=parts))
                self.check_same_losses(parts, whole)
                self.check_same_weights(self.path(parts, "unet3d.safetensors"), self.path(whole, "unet3d.safetensors"))

    def test_sides_that_cannot_be_halved_are_refused(self):
        self.fail_with(2, "multiples of 8, got 12", *self.arguments("--size", "12"))

    def test_a_side_below_one_is_refused_by_the_command_line(self):
        result = self.run_ranks(0, *self.arguments("--size", "-8"))
        self.assertEqual(result.returncode, 105, result.stdout)
        self.assertTrue(result.stderr.startswith("--size: "), result.stderr)


if __name__ == "__main__":
    unittest.main()
