"""Runs that move between Python and C++: `interop_test.py PROGRAM`. Exit status 77 (skipped) without torch.

A run of 6 steps is interrupted after 3. Whoever writes, whoever goes on: the bits must be those of a run that never changed
hands. For SGD both sides compute the same bits, so Python alone is the judge; LibTorch's own Adam rounds differently
from Python's (lerp against mul and add), so there a visit to the other side must leave no trace.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(77)

import pt_python

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "ddp"))
import parity_program  # noqa: E402

PROGRAM = sys.argv.pop(1)
torch.set_num_threads(1)

FUSED = {
    "fused_sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}),
    "fused_adam": (torch.optim.Adam, {"lr": 1e-3, "amsgrad": True}),
    "fused_adamw": (torch.optim.AdamW, {"lr": 1e-3, "maximize": True}),
    "fused_adagrad": (torch.optim.Adagrad, {"lr": 1e-2, "lr_decay": 0.1}),
}
OWN = {
    "own_rmsprop": (torch.optim.RMSprop, {"lr": 1e-3, "momentum": 0.9, "centered": True, "foreach": False}),
    "torch_rmsprop": (torch.optim.RMSprop, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.1, "foreach": False}),
    "torch_lbfgs": (torch.optim.LBFGS, {"lr": 0.05, "max_iter": 4, "history_size": 5}),
    "own_adadelta": (torch.optim.Adadelta, {"lr": 0.5, "rho": 0.8, "foreach": False}),
    "own_adamax": (torch.optim.Adamax, {"lr": 1e-3, "weight_decay": 0.1, "foreach": False}),
    "own_nadam": (torch.optim.NAdam, {"lr": 1e-3, "decoupled_weight_decay": True, "weight_decay": 0.1, "foreach": False}),
    "own_radam": (torch.optim.RAdam, {"lr": 1e-3, "betas": (0.9, 0.5), "foreach": False}),
    "own_asgd": (torch.optim.ASGD, {"lr": 1e-2, "t0": 2, "foreach": False}),
    "own_rprop": (torch.optim.Rprop, {"lr": 1e-3, "etas": (0.4, 1.3), "foreach": False}),
    "own_adafactor": (torch.optim.Adafactor, {"lr": 1e-2, "eps": (None, 1e-2), "foreach": False}),
}


def make(model, optimizer):
    torch.manual_seed(0)
    net = parity_program.LeNet() if model == "lenet" else parity_program.ResNet18()
    if optimizer == "sgd":
        return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    if optimizer in OWN:
        kind, options = OWN[optimizer]
        return net, kind(net.parameters(), **options)
    if optimizer in FUSED:
        kind, options = FUSED[optimizer]
        return net, kind(net.parameters(), fused=True, **options)
    return net, torch.optim.Adam(net.parameters(), lr=1e-3)


def train(net, optimizer, first, steps):
    net.train()
    for step in range(first, first + steps):
        x = (torch.arange(2 * 3 * 32 * 32, dtype=torch.float32).view(2, 3, 32, 32) * (0.001 * (step + 1))).sin()
        y = torch.arange(2) + step % 3

        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def save(path, net, optimizer):
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)


def load(path, net, optimizer):
    run = torch.load(path)  # weights_only, its default
    net.load_state_dict(run["model"])
    optimizer.load_state_dict(run["optimizer"])


def cpp(*arguments):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=100)
    if result.returncode != 0:
        raise AssertionError(result.stderr)


class InteropTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def path(self, name):
        return self.folder / name

    def models(self):
        return ["lenet", "resnet18"]

    def test_sgd_begun_in_python_goes_on_in_cpp_and_comes_back(self):
        for model in self.models():
            with self.subTest(model):
                net, optimizer = make(model, "sgd")
                train(net, optimizer, 0, 2)
                save(self.path("a.pt"), net, optimizer)
                train(net, optimizer, 2, 4)
                cpp(model, "sgd", self.path("a.pt"), self.path("b.pt"), 2, 2)
                other, its_optimizer = make(model, "sgd")
                load(self.path("b.pt"), other, its_optimizer)
                train(other, its_optimizer, 4, 2)
                pt_python.same(dict(other.state_dict()), dict(net.state_dict()))
                pt_python.same(its_optimizer.state_dict()["state"], optimizer.state_dict()["state"])

    def test_our_optimizers_continue_runs_of_python_and_python_continues_theirs(self):
        for model, name in [("resnet18", "fused_adam"), *(("lenet", name) for name in [*FUSED, *OWN])]:
            with self.subTest(f"{model} {name}"):
                net, optimizer = make(model, name)
                train(net, optimizer, 0, 2)
                save(self.path("a.pt"), net, optimizer)
                train(net, optimizer, 2, 4)
                cpp(model, name, self.path("a.pt"), self.path("b.pt"), 2, 2)
                other, its_optimizer = make(model, name)
                load(self.path("b.pt"), other, its_optimizer)
                train(other, its_optimizer, 4, 2)
                pt_python.same(dict(other.state_dict()), dict(net.state_dict()))
                pt_python.same(its_optimizer.state_dict()["state"], optimizer.state_dict()["state"])

    def test_adam_s_state_comes_through_python_unchanged(self):
        for model in self.models():
            with self.subTest(model):
                cpp(model, "adam", "-", self.path("a.pt"), 0, 2)
                cpp(model, "adam", self.path("a.pt"), self.path("whole.pt"), 2, 2)
                net, optimizer = make(model, "adam")
                load(self.path("a.pt"), net, optimizer)
                save(self.path("through.pt"), net, optimizer)
                cpp(model, "adam", self.path("through.pt"), self.path("visited.pt"), 2, 2)
                pt_python.same(torch.load(self.path("visited.pt")), torch.load(self.path("whole.pt")))

    def test_adam_s_state_comes_through_cpp_unchanged(self):
        for model in self.models():
            with self.subTest(model):
                net, optimizer = make(model, "adam")
                train(net, optimizer, 0, 2)
                save(self.path("a.pt"), net, optimizer)
                cpp(model, "adam", self.path("a.pt"), self.path("through.pt"), 2, 0)
                other, its_optimizer = make(model, "adam")
                load(self.path("through.pt"), other, its_optimizer)
                for pair in ((net, optimizer), (other, its_optimizer)):
                    train(*pair, 2, 2)
                pt_python.same(dict(other.state_dict()), dict(net.state_dict()))
                pt_python.same(its_optimizer.state_dict()["state"], optimizer.state_dict()["state"])

    def test_safetensors_serve_both_sides(self):
        try:
            from safetensors.torch import load_file
        except ImportError:
            self.skipTest("no safetensors in this Python")
        net, optimizer = make("lenet", "sgd")
        train(net, optimizer, 0, 2)
        save(self.path("a.pt"), net, optimizer)
        cpp("lenet", "sgd", self.path("a.pt"), self.path("a.safetensors"), 2, 0)
        tensors = load_file(self.path("a.safetensors"))
        model = {name: tensor for name, tensor in tensors.items() if not name.startswith("state.")}
        pt_python.same(model, dict(net.state_dict()))
        buffers = [state["momentum_buffer"] for state in optimizer.state_dict()["state"].values()]
        names = [name for name, _ in net.named_parameters()]
        for name, buffer in zip(names, buffers):
            pt_python.same(tensors[f"state.{name}.momentum_buffer"], buffer)

    def test_dcp_reads_our_safetensors(self):
        try:
            import torch.distributed.checkpoint as dcp
            from torch.distributed.checkpoint import HuggingFaceStorageReader
            import safetensors  # noqa: F401
        except ImportError:
            self.skipTest("no safetensors in this Python")
        (self.folder / "hf").mkdir()
        net, optimizer = make("lenet", "sgd")
        save(self.path("a.pt"), net, optimizer)
        cpp("lenet", "sgd", self.path("a.pt"), self.path("hf") / "model.safetensors", 0, 0)
        torch.manual_seed(1)
        other = parity_program.LeNet()
        state = other.state_dict()
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(self.path("hf"))), no_dist=True)
        pt_python.same(dict(state), dict(net.state_dict()))

    def test_libtorch_s_own_archives_are_read(self):
        for optimizer in ("sgd", "adam"):
            with self.subTest(optimizer):
                cpp("lenet", optimizer, "-", self.path("a.pt"), 0, 2)
                cpp("lenet", optimizer, self.path("a.pt"), self.path("a.libtorch"), 2, 0)
                # Module and optimizer are two archives; the weights of the first are those of a.pt.
                tool = pathlib.Path(PROGRAM).parent / "ddprun-checkpoint"
                for source, target in (("a.libtorch", "m.pt"), ("a.libtorch.optimizer", "o.pt")):
                    subprocess.run([tool, "convert", self.path(source), self.path(target)], check=True, timeout=60)
                expected = torch.load(self.path("a.pt"))
                pt_python.same(torch.load(self.path("m.pt")), expected["model"])
                ours = torch.load(self.path("o.pt"))["optimizer"]["state"]
                pt_python.same(ours, expected["optimizer"]["state"])


if __name__ == "__main__":
    unittest.main()
