"""Each program with little data and a short run, for tests of what they have in common."""

import os
import pathlib
import subprocess
import sys

from support import read_safetensors, write_cifar10

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples"
PROGRAMS = pathlib.Path(os.environ["PROGRAM"]).parent
NAMES = ("cifar10", "contrastive", "dcgan", "horovod_style", "image_folder", "imagenet", "text", "toy_linear", "unet3d")


def make_data(folder):
    """What the programs read: folder/data."""
    data = pathlib.Path(folder, "data")
    for script, arguments in (("image_folder/make_images.py", ("pictures", "--per-class", "10", "--classes", "3")),
                              ("unet3d/make_volumes.py", ("volumes", "--train", "4", "--validation", "2", "--side", "16"))):  # fmt: skip
        name, *more = arguments
        subprocess.run([sys.executable, EXAMPLES / script, data / name, *more], check=True, stdout=subprocess.DEVNULL)
    write_cifar10(data / "cifar10", 64, 20)
    (data / "tale.txt").write_text("".join(f"Once {i} foxes met {7 * i % 11} dogs. " for i in range(150)))


def command(name, folder, run):
    """The words that start a program in `folder`, whose outputs go to folder/run."""
    data, out = pathlib.Path(folder, "data"), pathlib.Path(folder, run)
    own = {
        "cifar10": ("--data-dir", data / "cifar10", "--epochs", "2", "--batch-size", "8"),
        "contrastive": ("--data-dir", data / "cifar10", "--epochs", "2", "--batch-size", "8"),
        "dcgan": ("--data-dir", data / "cifar10", "--epochs", "2", "--batch-size", "8", "--width", "4", "--noise", "8"),
        "horovod_style": ("--steps", "20", "--save-every", "10"),
        "image_folder": ("--data-path", data / "pictures", "--net", "resnet18", "--image-size", "28", "--batch-size", "4", "--workers", "1",
                         "--epochs", "1", "--weights-dir", out / "weights", "--tensorboard", out / "board"),
        "imagenet": ("--synthetic", "16", "--classes", "4", "--image-size", "32", "--batch-size", "4", "--net", "resnet18", "--lr", "0.01",
                     "--workers", "1", "--epochs", "1"),
        "text": ("--text", data / "tale.txt", "--context", "32", "--width", "16", "--heads", "2", "--layers", "1", "--batch-size", "4",
                 "--epochs", "1", "--sample", "5"),
        "toy_linear": (),
        "unet3d": ("--data-dir", data / "volumes", "--width", "4", "--batch-size", "1", "--epochs", "1", "--tensorboard", out / "board"),
    }[name]  # fmt: skip
    place = ("--checkpoint", out / "line.safetensors") if name == "toy_linear" else ("--checkpoint-dir", out)
    return [str(word) for word in (PROGRAMS / name, *own, *place)]


def weights(name, folder, run):
    """{name: values} of what a run has learnt."""
    out = pathlib.Path(folder, run)
    if name == "toy_linear":
        return read_safetensors(out / "line.safetensors")
    return read_safetensors(out / (out / "latest").read_text().strip() / "model.safetensors")
