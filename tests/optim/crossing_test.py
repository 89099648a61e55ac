"""Training moves from Python to C++ and back, or from C++ to Python and back, by files: parameters and the optimizer's state have the bits of
a run in Python without files. crossing_test.py PROGRAM [SEEDS [FIRST]]. Configurations are those of random_steps_test.py."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import torch

from draw_steps import NAMES, draw_case, make, results, take_step

PROGRAM = sys.argv.pop(1)
SEEDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 12
FIRST = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 1


def save(path, parameters, optimizer):
    model = {f"p{i}": parameter.detach() for i, parameter in enumerate(parameters)}
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, path)


def load(path, case, parameters, optimizer):
    content = torch.load(path)  # weights_only, its default
    with torch.no_grad():
        for i, parameter in enumerate(parameters):
            parameter.copy_(content["model"][f"p{i}"])
    optimizer.load_state_dict(content["optimizer"])
    # PyTorch has cast all of the state to the parameter's dtype: NAdam's mu_product, ASGD's eta and mu lose digits. Files of
    # C++ have no strides, and norms add in the order of memory.
    for i, parameter in enumerate(parameters):
        for name, value in content["optimizer"]["state"].get(i, {}).items():
            if isinstance(value, torch.Tensor):
                same_shape = value.shape == parameter.shape
                optimizer.state[parameter][name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value) if same_shape else value.clone()
    for group, drawn in zip(optimizer.param_groups, case["groups"]):
        if "lr_tensor" in drawn["options"] and not isinstance(group["lr"], torch.Tensor):  # files of C++ have the number
            group["lr"] = torch.tensor(group["lr"], dtype=getattr(torch, drawn["options"]["lr_tensor"]))


class Crossing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def in_cpp(self, source, target, parts):
        subprocess.run([PROGRAM, self.folder / "cases.json", self.folder, source, target, json.dumps(parts)], check=True,
                       env=dict(os.environ, OMP_NUM_THREADS="2"))

    def in_python(self, cases, source, target, parts):
        for i, (case, part) in enumerate(zip(cases, parts)):
            parameters, optimizer = make(case)
            if source != "-":
                load(self.folder / f"{i}.{source}", case, parameters, optimizer)
            for number in range(*part):
                take_step(case, number, parameters, optimizer)
            save(self.folder / f"{i}.{target}", parameters, optimizer)

    def final(self, case, path):
        parameters, optimizer = make(case)
        load(path, case, parameters, optimizer)
        rates = [torch.as_tensor(group["lr"], dtype=torch.float64) for group in optimizer.param_groups]
        return [*results(parameters, optimizer), *rates]

    def compare(self, name):
        torch.set_num_threads(2)
        cases = [draw_case(name, seed) for seed in range(FIRST, FIRST + SEEDS)]
        (self.folder / "cases.json").write_text(json.dumps(cases))
        whole, first, second, third = [], [], [], []
        for seed, case in enumerate(cases, FIRST):
            last = len(case["steps"])
            begin, end = sorted(random.Random(f"cut {name} {seed}").sample(range(last + 1), 2))
            for parts, part in ((whole, (0, last)), (first, (0, begin)), (second, (begin, end)), (third, (end, last))):
                parts.append(part)
        self.in_python(cases, "-", "whole.pt", whole)
        self.in_python(cases, "-", "a.pt", first)
        self.in_cpp("a.pt", "b.pt", second)
        self.in_python(cases, "b.pt", "from_python.pt", third)
        self.in_cpp("-", "c.pt", first)
        self.in_python(cases, "c.pt", "d.pt", second)
        self.in_cpp("d.pt", "from_cpp.pt", third)
        different = []
        for i, case in enumerate(cases):
            expected = self.final(case, self.folder / f"{i}.whole.pt")
            for way in ("from_python", "from_cpp"):
                got = self.final(case, self.folder / f"{i}.{way}.pt")
                if len(got) != len(expected):
                    different.append(f"seed {FIRST + i} {way}: {len(got)} tensors, expected {len(expected)}")
                for number, (a, b) in enumerate(zip(expected, got)):
                    same = (a == b) | (a.isnan() & b.isnan()) if a.shape == b.shape and a.dtype == b.dtype else torch.tensor(False)
                    if not same.all():
                        different.append(f"seed {FIRST + i} {way}, tensor {number}: {(~same).sum().item()} of {a.numel()} numbers differ")
        if different:
            self.fail("\n".join(different))


for each in NAMES:
    setattr(Crossing, f"test_{each}", lambda self, each=each: self.compare(each))

if __name__ == "__main__":
    unittest.main()
