"""The fused optimizers give the bits of Python's: steps_test.py PROGRAM Golden|Live.

Live compares every bit of parameters, states and gradients with those that the installed torch computes; Golden some
parameters with numbers in golden.json, which another machine's instructions may round differently.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import python_steps

PROGRAM = sys.argv.pop(1)


class Steps:
    @classmethod
    def setUpClass(cls):
        cls.cases = {case["name"]: case for case in python_steps.cases()}
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        command = [PROGRAM, str(python_steps.HERE / "cases.json"), folder.name]
        subprocess.run(command, check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
        cls.results = {name: (pathlib.Path(folder.name) / f"{name}.bin").read_bytes() for name in cls.cases}


class Golden(Steps, unittest.TestCase):
    def test_parameters_are_those_that_python_computed(self):
        golden = json.loads((python_steps.HERE / "golden.json").read_text())
        self.assertEqual(golden.keys(), self.cases.keys())
        count = sum(35 if s == (7, 5) else 108 if len(s) == 4 else s[0] for s in python_steps.SHAPES)
        for name, expected in golden.items():
            dtype = self.cases[name].get("dtype", "float32")
            size = {"float32": 4, "float64": 8, "bfloat16": 2}[dtype]
            actual = python_steps.sample(self.results[name][: count * size], dtype)
            tolerance = 0.02 if dtype == "bfloat16" else 1e-5
            with self.subTest(name):
                self.assertEqual(len(actual), len(expected))
                for got, wanted in zip(actual, expected):
                    self.assertLessEqual(abs(got - wanted), tolerance * max(1.0, abs(wanted)))


class Live(Steps, unittest.TestCase):
    def test_every_bit_is_pythons(self):
        import torch

        torch.set_num_threads(1)
        for name, case in self.cases.items():
            with self.subTest(name):
                expected = python_steps.run(case)
                content = python_steps.as_bytes(expected)
                self.assertEqual(len(self.results[name]), len(content))
                if self.results[name] != content:
                    different = sum(a != b for a, b in zip(self.results[name], content))
                    self.fail(f"{different} of {len(content)} bytes differ")
                for tensor in expected:
                    self.assertTrue(tensor.isfinite().all())


if __name__ == "__main__":
    unittest.main()
