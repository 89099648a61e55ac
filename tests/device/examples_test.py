"""The example programs on two simulated devices: the losses of the CPU, nothing wrong on the devices and nothing left there."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
PROGRAMS = pathlib.Path(sys.argv.pop(1))
os.environ["PROGRAM"] = ""  # each test has its own

from programs import EXAMPLES, losses  # noqa: E402
from support import DDPRUN, ExampleTest, write_cifar10  # noqa: E402

# A program that did something wrong on a device, or keeps its memory, ends with a status of its own.
PLACES = {"devices": {"DDPRUN_TEST_DEVICE_STRICT": "1"}, "cpu": {"DDPRUN_CUDA": "0"}}


class OnDevices(ExampleTest):
    def train(self, place, program, *arguments, ranks=2):
        result = self.run_command([DDPRUN, "-n", str(ranks), PROGRAMS / program, *arguments], PLACES[place])
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def check_losses(self, program, *arguments, least, tolerance=1e-4, name="", **how):
        found = {}
        for place in PLACES:
            folders = ("--checkpoint-dir", self.path(name + place), "--tensorboard", self.path(name + place, "board"))
            file = self.path(f"{name}{place}.csv")
            text = self.train(place, program, *arguments, *folders, "--step-losses", file, **how)
            found[place] = losses(file)
            if program not in ("image_folder", "imagenet"):  # which do not say
                self.assertIn("device cuda:0" if place == "devices" else "device cpu", text)
        self.assertGreaterEqual(len(found["cpu"]), least)
        self.assertEqual(len(found["devices"]), len(found["cpu"]))
        for ours, expected in zip(found["devices"], found["cpu"]):
            self.assertAlmostEqual(ours, expected, delta=tolerance * max(1, abs(expected)))

    def test_toy_linear(self):
        lines = self.train("devices", "toy_linear").splitlines()
        for rank in range(2):
            self.assertIn(f"rank {rank}: loaded weight 0.5870, bias 0.7373 on cuda:{rank}", lines)

    def test_horovod_style(self):
        for option in ((), ("--fp16-allreduce",), ("--op", "adasum")):
            with self.subTest(option):
                lines = self.train("devices", "horovod_style", *option).splitlines()
                found = set(re.findall(r"weight (\S+) (\S+), bias (\S+)", "\n".join(lines)))
                self.assertEqual(len(found), 1, lines)
                for value, expected in zip(found.pop(), (2, -1, 0.5)):
                    self.assertAlmostEqual(float(value), expected, delta=0.02)

    def test_text(self):
        with open(self.path("tale.txt"), "w") as file:
            file.write("".join(f"The quick brown fox jumps over the lazy dog; {i} dogs and {7 * i % 11} foxes. " for i in range(40)))
        size = ("--context", "32", "--width", "32", "--heads", "2", "--layers", "2", "--warmup-steps", "5", "--sample", "8")
        self.check_losses("text", "--text", self.path("tale.txt"), *size, "--epochs", "1", "--batch-size", "8", least=5)

    def test_contrastive(self):
        write_cifar10(self.path("data"), 64, 20)
        self.check_losses("contrastive", "--data-dir", self.path("data"), "--epochs", "1", "--batch-size", "8", "--lr", "0.02", least=4)

    def test_unet3d(self):
        self.make("unet3d/make_volumes.py", "--train", "8", "--validation", "3", "--side", "16")
        self.check_losses("unet3d", "--data-dir", self.path("data"), "--width", "4", "--batch-size", "2", "--epochs", "1", "--no-augment", least=2)

    def test_image_folder(self):
        self.make("image_folder/make_images.py", "--per-class", "10", "--classes", "2")
        size = ("--net", "resnet18", "--image-size", "28", "--batch-size", "4", "--workers", "1", "--weights-dir", self.path("weights"))
        self.check_losses("image_folder", "--data-path", self.path("data"), *size, "--syncBN", "--epochs", "1", least=2, tolerance=1e-3)

    IMAGENET = ("--synthetic", "16", "--classes", "6", "--net", "resnet18", "--image-size", "48", "--batch-size", "4", "--lr", "0.01",
                "--workers", "1", "--epochs", "1")

    def test_imagenet_with_two_ranks(self):
        for parallel in ("ddp", "horovod"):
            with self.subTest(parallel):
                self.check_losses("imagenet", *self.IMAGENET, "--parallel", parallel, least=2, tolerance=1e-3, name=parallel)

    def test_imagenet_with_all_devices_of_one_process(self):
        options = ("--parallel", "dp", "--replicas", "4")  # as many on the CPU as there are devices
        self.check_losses("imagenet", *self.IMAGENET, *options, least=4, tolerance=1e-3, ranks=1)

    def test_imagenet_in_mixed_precision(self):
        for parallel, level in (("ddp", "O1"), ("horovod", "O2")):
            with self.subTest(parallel=parallel, level=level):
                precision = ("--parallel", parallel, "--amp", "bf16", "--opt-level", level)
                self.check_losses("imagenet", *self.IMAGENET, *precision, least=2, tolerance=0.1, name=parallel + level)

    def make(self, script, *arguments):
        subprocess.run([sys.executable, EXAMPLES / script, self.path("data"), *arguments], check=True, stdout=subprocess.PIPE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
