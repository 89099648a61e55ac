"""torchvision's weights load into the nets of examples/models and give torchvision's logits: torchvision_test.py PROGRAM.

Skipped where there is no torchvision. Weights are torchvision's own initial ones of a seed, with running statistics moved,
as no trained ones can be had everywhere; each goes through .pt and through safetensors."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    import torchvision
    from safetensors.torch import save_file
except ImportError as error:
    print(f"skipped: this Python has no torchvision (pip install torchvision): {error}")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
CLASSES, SEED = 30, 5
# Small pictures that exercise every layer; the auxiliary classifier of inception_v3 wants its 299.
NETS = {"alexnet": 95, "vgg16": 64, "googlenet": 96, "inception_v3": 299, "resnet18": 64, "resnet34": 64, "resnet50": 64}

# What trained weights of these want besides (transform_input), which their constructors set.
TRANSFORMING = ("googlenet", "inception_v3")


def make(name):
    torch.manual_seed(SEED)
    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    net = getattr(torchvision.models, name)(num_classes=CLASSES, **options)
    if name == "googlenet":
        # With its initial weights of 0.01 the logits would be next to nothing.
        for parameter in net.parameters():
            parameter.data.mul_(3)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    return net


def logits(net, size):
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(SEED))
    with torch.no_grad():
        evaluated = net.eval()(images)
        net.train()
        for module in net.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()
        trained = net(images)
    if isinstance(trained, tuple):
        trained = torch.stack(list(trained), 1)
    return numpy.concatenate([evaluated.numpy().ravel(), trained.numpy().ravel()])


class Torchvision(unittest.TestCase):
    def test_its_weights_give_its_logits(self):
        torch.set_num_threads(1)
        done = set()
        for name, size in [*NETS.items(), *((name, NETS[name]) for name in TRANSFORMING)]:
            net, is_transforming = make(name), name in done
            done.add(name)
            if is_transforming:
                net.transform_input = True
            with tempfile.TemporaryDirectory() as folder:
                weights = {"pt": pathlib.Path(folder) / "weights.pt"}
                torch.save(net.state_dict(), weights["pt"])
                if name == "resnet18":  # one reader for all nets: the other form of file is read once
                    weights["safetensors"] = pathlib.Path(folder) / "weights.safetensors"
                    save_file(net.state_dict(), weights["safetensors"])
                expected = logits(net, size)
                for kind, file in weights.items():
                    with self.subTest(net=name, file=kind, transform_input=is_transforming):
                        out = pathlib.Path(folder) / "logits"
                        command = [PROGRAM, name, str(CLASSES), str(size), file, str(SEED), out, *(["transform"] if is_transforming else [])]
                        subprocess.run([str(word) for word in command], check=True, timeout=300)
                        actual = numpy.fromfile(out, numpy.float32)
                        self.assertEqual(actual.shape, expected.shape)
                        self.assertGreater(abs(expected).max(), 1e-2)
                        # Relative to the largest: logits of untrained nets reach hundreds.
                        difference = abs(actual - expected).max() / max(1.0, abs(expected).max())
                        self.assertLess(difference, 1e-4, f"torchvision {torchvision.__version__}")


if __name__ == "__main__":
    unittest.main()
