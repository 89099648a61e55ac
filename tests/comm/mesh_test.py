"""Device meshes are PyTorch's, in jobs of C++ and of both languages: mesh_test.py PROGRAM."""

import pathlib
import sys
import tempfile
import unittest

from mixed_job import run_job

PROGRAM = sys.argv.pop(1)
TWIN = pathlib.Path(__file__).with_name("mesh_program.py")


class Meshes(unittest.TestCase):
    maxDiff = None

    def check(self, shape, names, flatten, languages):
        cases = {"shape": shape, "names": names, "flatten": flatten, "rounds": 3}
        with tempfile.TemporaryDirectory() as name:
            expected = run_job(pathlib.Path(name), cases, ["Python"] * len(languages), PROGRAM, TWIN)
            for order in (languages, ["C++"] * len(languages)):
                with self.subTest(languages=order):
                    self.assertEqual(run_job(pathlib.Path(name), cases, order, PROGRAM, TWIN), expected)

    def test_two_dimensions(self):
        self.check([2, 2], ["replicate", "shard"], [], ["C++", "Python", "Python", "C++"])

    def test_three_dimensions_two_of_which_are_flattened(self):
        self.check([2, 2, 2], ["dp", "cp", "tp"], ["dp", "cp"], ["Python", "C++"] * 4)

    def test_a_dimension_of_all_ranks(self):
        self.check([1, 3], ["one", "all"], ["one", "all"], ["C++", "C++", "Python"])


if __name__ == "__main__":
    unittest.main()
