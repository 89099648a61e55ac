"""Whole runs that move between Python and C++: `exchange_test.py PROGRAM TOOL`. Exit status 77 (skipped) without torch.

Python trains 3 steps, C++ the next 4, Python 3 more, with scaler, schedule, sampler and random numbers: the bits must be those
of a run that never left Python.
"""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import safetensors.torch
except ImportError:
    print("skipped: this Python has no torch or no safetensors")
    sys.exit(77)

import pt_python

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import ddprun.checkpoint  # noqa: E402

TOOL = sys.argv.pop(2)
PROGRAM = sys.argv.pop(1)
torch.set_num_threads(1)
lr_scheduler = torch.optim.lr_scheduler

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "fused_sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "fused_adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, fused=True),
    "fused_adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
}
SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.7),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4, 4, 7], 0.7),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 20, 1e-4),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 5),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.5, total_iters=8),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 12, 0.9),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.05, 12),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 8)], [4]),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)]),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=1, threshold=0.5),
}

PASSED_ON = ("step", "values", "model", "optimizer", "scheduler", "scaler", "sampler")


class Run:
    def __init__(self, optimizer, schedule):
        self.net = pt_python.Net()
        self.optimizer = OPTIMIZERS[optimizer](self.net.parameters())
        self.scheduler = SCHEDULES[schedule](self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
        self.sampler = ddprun.checkpoint.DistributedSampler(range(40), num_replicas=1, rank=0, seed=5)
        self.step = 0

    def train(self, steps):
        self.net.train()
        indices = list(self.sampler)
        for used in range(steps):
            batch = indices[4 * used:4 * used + 4]
            x = torch.randn(4, 4)
            for i, index in enumerate(batch):
                x[i] += index / 40
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.net(x), x[:, :3].cos())
            self.scaler.scale(loss * float("inf") if self.step in (1, 5) else loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step(loss.item())
            else:
                self.scheduler.step()
            self.step += 1
        self.sampler.load_state_dict(self.sampler.state_dict(4 * steps))

    def parts(self):
        return {"model": self.net, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler,
                "sampler": self.sampler}

    def save(self, path):
        return ddprun.checkpoint.save(path, step=self.step, values={"best": 0.25}, **self.parts())

    def load(self, path):
        run = ddprun.checkpoint.load(path)
        for name, part in self.parts().items():
            part.load_state_dict(run[name])
        ddprun.checkpoint.set_rng_state(run["rng"][0])
        self.step = run["step"]
        return run

    def state(self):
        parts = {name: copy.deepcopy(part.state_dict()) for name, part in self.parts().items()}
        parts["model"] = dict(parts["model"])
        return {**parts, "rng": torch.get_rng_state(), "step": self.step}


def plain(state, depth=0):
    """What decides how a run goes on: 0 and 0.0 are one, parts of a composed schedule report no rates themselves, and only C++ reads
    what class a schedule was saved of."""
    if isinstance(state, dict):
        passed = {"type"} if "last_epoch" in state or "_schedulers" in state else set()
        passed |= {"_last_lr"} if depth else set()
        return {key: plain(value, depth + (key == "_schedulers")) for key, value in state.items() if key not in passed}
    if isinstance(state, (list, tuple)):
        return [plain(value, depth) for value in state]
    return float(state) if type(state) is int else state


def call(*command):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, timeout=600)
    if result.returncode != 0:
        raise AssertionError(result.stderr)


class ExchangeTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def check(self, optimizer, schedule, begin, end):
        torch.manual_seed(1)
        whole = Run(optimizer, schedule)
        whole.train(3)
        source = whole.save(self.folder / ("python.pt" if begin == "file" else "python"))
        whole.train(4)
        whole.train(3)
        expected = whole.state()

        call(PROGRAM, source, self.folder / "cpp", optimizer, schedule, 4)
        back = self.folder / "cpp"
        if end == "file":
            back = self.folder / "back.pt"
            call(TOOL, "convert", self.folder / "cpp" / "step-00000007", back)
        torch.manual_seed(2)
        returned = Run(optimizer, schedule)
        run = returned.load(back)
        self.assertEqual((run["step"], run["values"]), (7, {"best": 0.25}))
        if end == "folder":  # as a program passes on what it has loaded
            back = ddprun.checkpoint.save(self.folder / "passed_on", **{key: value for key, value in run.items() if key in PASSED_ON})
        returned.train(3)
        pt_python.same(plain(returned.state()), plain(expected))

        call(PROGRAM, back, self.folder / "cpp_again", optimizer, schedule, 3)
        returned = Run(optimizer, schedule)
        returned.load(self.folder / "cpp_again")
        pt_python.same(plain(returned.state()), plain(expected))

    def test_every_schedule_goes_to_cpp_and_comes_back_and_goes_on_in_cpp_with_the_same_bits(self):
        for number, schedule in enumerate(SCHEDULES):
            optimizer = list(OPTIMIZERS)[number % len(OPTIMIZERS)]
            begin, end = ("folder", "file") if number % 2 else ("file", "folder")
            with self.subTest(f"{schedule} {optimizer} {begin} {end}"):
                for leftover in self.folder.iterdir():
                    call("rm", "-r", leftover)
                self.check(optimizer, schedule, begin, end)

    def test_dict_saved_by_hand_goes_on_in_cpp(self):
        torch.manual_seed(1)
        whole = Run("sgd", "CosineAnnealingLR")
        whole.train(3)
        torch.save({"epoch": 3, "best": 0.25, "state_dict": whole.net.state_dict(), "optimizer_state_dict": whole.optimizer.state_dict(),
                    "lr_scheduler": whole.scheduler.state_dict(), "scaler": whole.scaler.state_dict(),
                    "sampler": whole.sampler.state_dict(), "rng_state": torch.get_rng_state()}, self.folder / "by_hand.pt")
        whole.train(4)
        expected = whole.state()
        call(PROGRAM, self.folder / "by_hand.pt", self.folder / "cpp", "sgd", "CosineAnnealingLR", 4)
        returned = Run("sgd", "CosineAnnealingLR")
        returned.load(self.folder / "cpp")
        pt_python.same(plain(returned.state()), plain(expected))

    def weights(self, source, key=""):
        call(PROGRAM, source, self.folder / "weights.safetensors", key)
        return safetensors.torch.load_file(self.folder / "weights.safetensors")

    def test_entries_half_weights_compiled_and_sharded_models_are_loaded(self):
        nets = [pt_python.Net() for _ in range(3)]
        states = [{name: tensor.clone() for name, tensor in net.state_dict().items()} for net in nets]
        half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in states[1].items()}
        torch.save({"model": states[0], "ema": {"module." + name: tensor for name, tensor in half.items()},
                    "extra": {"best": torch.compile(nets[2]).state_dict()}}, self.folder / "several.pt")
        rounded = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in half.items()}
        for key, expected in (("", states[0]), ("ema", rounded), ("extra.best", states[2])):
            pt_python.same(self.weights(self.folder / "several.pt", key), expected)
        with self.assertRaisesRegex(AssertionError, "no entry 'ema2'; its entries: 'model', 'ema', 'extra'"):
            self.weights(self.folder / "several.pt", "ema2")

        folder = self.folder / "hub"
        folder.mkdir()
        (self.folder / "blobs").mkdir()
        weight_map = {}
        for number, part in enumerate((list(half)[:3], list(half)[3:])):
            name = f"model-{number + 1:05d}-of-00002.safetensors"
            # As in a download cache: files are links.
            safetensors.torch.save_file({key: half[key] for key in part}, self.folder / "blobs" / name, {"format": "pt"})
            (folder / name).symlink_to(f"../blobs/{name}")
            weight_map.update(dict.fromkeys(part, name))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        pt_python.same(self.weights(folder), rounded)

    def test_lbfgs_s_state_passes_through_folders_files_and_the_tool(self):
        net, copy_of_net = pt_python.Net(), pt_python.Net()
        make = lambda net: torch.optim.LBFGS(net.parameters(), lr=0.05, max_iter=3, history_size=12)  # noqa: E731
        optimizer, loaded = make(net), make(copy_of_net)
        x = torch.arange(24, dtype=torch.float32).view(6, 4).sin()

        def step(net, optimizer):
            def closure():
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(net(x), x[:, :3].cos())
                loss.backward()
                return loss

            optimizer.step(closure)

        for _ in range(5):  # more than ten directions
            step(net, optimizer)
        expected = copy.deepcopy(optimizer.state_dict())
        ddprun.checkpoint.save(self.folder / "run", step=5, model=net, optimizer=optimizer)
        call(TOOL, "convert", self.folder / "run" / "step-00000005", self.folder / "a.pt")
        call(TOOL, "convert", self.folder / "a.pt", self.folder / "b.safetensors")
        call(TOOL, "convert", self.folder / "b.safetensors", self.folder / "c.pt")
        step(net, optimizer)
        for source in (self.folder / "run", self.folder / "a.pt", self.folder / "c.pt"):
            with self.subTest(source.name):
                run = ddprun.checkpoint.load(source)
                loaded.load_state_dict(run["optimizer"])
                copy_of_net.load_state_dict(run["model"])
                state = loaded.state_dict()["state"][0]
                self.assertEqual([type(state[key]) for key in ("func_evals", "n_iter", "t", "prev_loss")], [int, int, float, float])
                wanted = {key: value for key, value in expected["state"][0].items() if key != "al"}
                pt_python.same(state, wanted)
                step(copy_of_net, loaded)
                pt_python.same(dict(copy_of_net.state_dict()), dict(net.state_dict()))

    def test_another_scheduler_s_state_is_refused_by_cpp(self):
        run = Run("sgd", "StepLR")
        run.save(self.folder / "python")
        with self.assertRaisesRegex(AssertionError, "the state is of StepLR, the schedule is CosineAnnealingLR"):
            call(PROGRAM, self.folder / "python", self.folder / "cpp", "sgd", "CosineAnnealingLR", 1)

    def hand_over(self, optimizer, into):
        """Python's optimizer, after a step, goes on in C++ as `into`; what C++ saves of it."""
        net, run = pt_python.Net(), Run("sgd", "StepLR")
        optimizer = optimizer(net.parameters())
        pt_python.train(net, optimizer, 0, 1)
        run.net, run.optimizer = net, optimizer
        torch.save({**{key: part.state_dict() for key, part in run.parts().items()}, "best": 0.25,
                    "rng": ddprun.checkpoint.rng_state()}, self.folder / "a.pt")
        call(PROGRAM, self.folder / "a.pt", self.folder / "cpp", into, "StepLR", 0)
        return ddprun.checkpoint.load(self.folder / "cpp")["optimizer"]

    def test_optimizers_that_compute_otherwise_are_refused(self):
        optim = torch.optim
        for optimizer, into, reason in [
            (lambda p: optim.AdamW(p), "fused_adam", "decoupled_weight_decay is True.*load it into AdamW"),
            (lambda p: optim.Adam(p, weight_decay=0.1), "fused_adamw", "decoupled_weight_decay is False"),
            (lambda p: optim.RAdam(p), "fused_adam", "hyper-parameters lack amsgrad"),
            (lambda p: optim.NAdam(p), "fused_adamw", "hyper-parameters lack amsgrad"),
            (lambda p: optim.Adamax(p), "fused_adam", "hyper-parameters lack amsgrad"),
            (lambda p: optim.SGD(p), "fused_adam", "hyper-parameters lack betas"),
            (lambda p: optim.RMSprop(p), "fused_sgd", "hyper-parameters lack dampening"),
            (lambda p: optim.SGD(p, maximize=True), "sgd", "maximizes"),
        ]:
            with self.subTest(f"{reason} {into}"), self.assertRaisesRegex(AssertionError, reason):
                self.hand_over(optimizer, into)

    def test_hyper_parameters_that_say_the_same_are_honoured(self):
        optim = torch.optim
        group = self.hand_over(lambda p: optim.AdamW(p, weight_decay=0), "fused_adam")["param_groups"][0]
        self.assertFalse(group["decoupled_weight_decay"])
        rate = torch.tensor(0.015625)
        group = self.hand_over(lambda p: optim.Adam(p, lr=rate, foreach=False), "fused_adam")["param_groups"][0]
        self.assertEqual(group["lr"], 0.015625)
        group = self.hand_over(lambda p: optim.SGD(p, maximize=True, nesterov=True, momentum=0.5), "fused_sgd")["param_groups"][0]
        self.assertEqual((group["maximize"], group["nesterov"], group["momentum"]), (True, True, 0.5))

    def test_convert_keeps_optimizers_by_name_and_a_module_called_state(self):
        net = torch.nn.Module()
        net.fc, net.state = torch.nn.Linear(2, 2), torch.nn.Module()
        net.state.fc = torch.nn.Linear(2, 2)
        optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.1, momentum=rate)
                      for name, part, rate in (("", net.fc, 0.5), ("g", net.fc, 0.6), ("d", net.state, 0.7))}
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        for each in optimizers.values():
            each.step()
        named = {name: each for name, each in optimizers.items() if name}
        folder = ddprun.checkpoint.save(self.folder / "run", step=2, model=net, optimizer=optimizers[""], optimizers=named,
                                        values={"epoch": 1})
        call(TOOL, "convert", folder, self.folder / "run.pt")
        # The same by hand: names of optimizers are in the keys.
        torch.save({"model": net.state_dict(), "optimizer": optimizers[""].state_dict(), "optimizer_g": named["g"].state_dict(),
                    "d_optimizer": named["d"].state_dict()}, self.folder / "hand.pt")
        call(TOOL, "convert", self.folder / "hand.pt", self.folder / "through.pt")
        for name in ("run.pt", "through.pt"):
            run = ddprun.checkpoint.load(self.folder / name)
            pt_python.same(dict(run["model"]), dict(net.state_dict()))
            pt_python.same(plain(run["optimizer"]), plain(optimizers[""].state_dict()))
            pt_python.same(plain(run["optimizers"]), plain({key: each.state_dict() for key, each in named.items()}))
        # One optimizer fits into a .safetensors file, and the module is still no part of it.
        torch.save({"model": net.state_dict(), "optimizer": optimizers[""].state_dict()}, self.folder / "one.pt")
        call(TOOL, "convert", self.folder / "one.pt", self.folder / "one.safetensors")
        call(TOOL, "convert", self.folder / "one.safetensors", self.folder / "back.pt")
        run = ddprun.checkpoint.load(self.folder / "back.pt")
        pt_python.same(dict(run["model"]), dict(net.state_dict()))
        pt_python.same(plain(run["optimizer"]), plain(optimizers[""].state_dict()))
        with self.assertRaisesRegex(AssertionError, "holds one optimizer"):
            call(TOOL, "convert", folder, self.folder / "all.safetensors")
        call(TOOL, "convert", folder, self.folder / "all.safetensors", "--weights-only")

    def test_python_reads_what_python_saved(self):
        for name in ("run", "run.pt"):
            with self.subTest(name):
                torch.manual_seed(1)
                whole = Run("fused_adam", "MultiStepLR")
                whole.train(3)
                whole.save(self.folder / name)
                before = whole.state()
                returned = Run("fused_adam", "MultiStepLR")
                returned.load(self.folder / name)
                pt_python.same(plain(returned.state()), plain(before))

    def test_dcp_takes_the_flat_state_and_goes_on_with_the_same_bits(self):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        torch.manual_seed(1)
        whole = Run("fused_adam", "StepLR")
        whole.train(3)
        source = whole.save(self.folder / "python")
        call(PROGRAM, source, self.folder / "cpp", "fused_adam", "StepLR", 4)
        whole.train(7)
        returned = Run("fused_adam", "StepLR")
        run = returned.load(self.folder / "cpp")
        # Everything but the optimizer came as before; that comes through DCP, into a fresh one.
        returned.optimizer = OPTIMIZERS["fused_adam"](returned.net.parameters())
        returned.scheduler = SCHEDULES["StepLR"](returned.optimizer)
        returned.scheduler.load_state_dict(run["scheduler"])
        flat = ddprun.checkpoint.flat_optimizer_state(self.folder / "cpp")
        set_optimizer_state_dict(returned.net, returned.optimizer, flat,
                                 options=StateDictOptions(flatten_optimizer_state_dict=True))
        returned.train(3)
        whole_again = Run("fused_adam", "StepLR")
        whole_again.load(self.folder / "cpp")
        whole_again.train(3)
        self.assertEqual(returned.optimizer.state_dict()["param_groups"], whole_again.optimizer.state_dict()["param_groups"])
        pt_python.same(returned.optimizer.state_dict()["state"], whole_again.optimizer.state_dict()["state"])
        pt_python.same(dict(returned.net.state_dict()), dict(whole_again.net.state_dict()))

    def test_tied_weights_optimizers_by_name_and_objects_come_back(self):
        shared = torch.arange(5.0)
        run = {"model": {"a": shared, "b": shared, "c": torch.ones(3, dtype=torch.bfloat16)},
               "optimizers": {"g": Run("sgd", "StepLR").optimizer}, "shared": {"mine": b"\x00\xff"},
               "per_rank": [{"own": b"zero"}, {"own": b"one"}], "rng": [ddprun.checkpoint.rng_state()] * 2}
        for name in ("run", "run.pt"):
            loaded = ddprun.checkpoint.load(ddprun.checkpoint.save(self.folder / name, step=4, **run))
            pt_python.same(dict(loaded["model"]), run["model"])
            pt_python.same({key: loaded[key] for key in ("shared", "per_rank", "rng", "world_size")},
                           {**{key: run[key] for key in ("shared", "per_rank", "rng")}, "world_size": 2})
            self.assertEqual(loaded["optimizers"]["g"]["param_groups"][0]["momentum"], 0.9)


if __name__ == "__main__":
    unittest.main()
