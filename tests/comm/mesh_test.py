"""Device meshes are PyTorch's, in jobs of C++ and of both languages: mesh_test.py PROGRAM."""

import math
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

    def test_one_dimension_under_a_second_name(self):
        self.check([2, 2], ["replicate", "shard"], ["shard"], ["C++", "Python", "Python", "C++"])

    def test_a_dimension_of_all_ranks(self):
        self.check([1, 3], ["one", "all"], ["one", "all"], ["C++", "C++", "Python"])

    def facts_on_hosts(self, hosts, shape):
        cases = {"shape": shape, "names": ["replicate", "shard"], "flatten": [], "rounds": 1}
        with tempfile.TemporaryDirectory() as name:
            results = run_job(pathlib.Path(name), cases, ["C++"] * len(hosts), PROGRAM, TWIN, DDPRUN_SHM_HOST=list(hosts))
            return results, pathlib.Path(name, "errors0.txt").read_text()

    def test_ranks_that_are_dealt_out_to_hosts_are_collected_along_the_last_dimension(self):
        facts, notice = self.facts_on_hosts("abab", [2, 2])
        self.assertEqual([rank["coordinate"] for rank in facts], [[0, 0], [1, 0], [0, 1], [1, 1]])
        self.assertEqual([rank["ranks"] for rank in facts], [[0, 2, 1, 3]] * 4)
        self.assertEqual([rank["shard"][0]["gathered"] for rank in facts], [[0, 2], [1, 3], [0, 2], [1, 3]])
        self.assertEqual(notice, "")

    def test_hosts_that_do_not_hold_whole_groups_are_reported(self):
        facts, notice = self.facts_on_hosts("aaab", [2, 2])
        self.assertEqual([rank["coordinate"] for rank in facts], [[0, 0], [0, 1], [1, 0], [1, 1]])
        self.assertIn("rank 0 of 4: init_device_mesh: 1 of the 2 groups along dimension 'shard', of 2 ranks each, have ranks of several hosts", notice)
        self.assertIn("the hosts have 3, 1 ranks", notice)

    def check_death(self, after, shape, names, along, partners, **variables):
        killed = 3
        cases = {"shape": shape, "names": names, "along": along, "rounds": 500, "killed": killed, "after": after}
        size = math.prod(shape)
        with tempfile.TemporaryDirectory() as name:
            results = run_job(pathlib.Path(name), cases, ["C++"] * size, PROGRAM, TWIN, killed={killed}, **variables)
        for rank, result in enumerate(results):
            with self.subTest(rank=rank, after=after):
                if rank in partners:
                    self.assertEqual(result["rounds"], max(after, 0))
                    self.assertRegex(result["error"], rf"rank {partners[rank]}\b", result)
                elif rank != killed:
                    self.assertEqual(result, {"rounds": 500})

    def test_a_rank_that_dies_fails_those_that_wait_for_it_and_nobody_else(self):
        for backend in ("shm", "gloo"):
            for after in (-1, 0, 5):
                with self.subTest(backend=backend):
                    # Rank 2 waits for rank 3, which is rank 1 of their group.
                    self.check_death(after, [2, 2, 2], ["dp", "cp", "tp"], "tp", {2: 1}, DDPRUN_CPU_BACKEND=backend)

    def test_a_rank_that_dies_fails_all_of_a_larger_group(self):
        self.check_death(5, [2, 4], ["replicate", "shard"], "shard", {0: 3, 1: 3, 2: 3})


if __name__ == "__main__":
    unittest.main()
