"""The Horovod-style program finds the line it draws its points from, and all ranks agree on it to the last digit."""

import re
import unittest

from support import ExampleTest

RESULT = re.compile(r"rank (\d+) of (\d+): weight (\S+) (\S+), bias (\S+)")


class HorovodStyle(ExampleTest):
    def results(self, ranks, *arguments):
        lines = self.succeed(ranks, *arguments)
        found = [match.groups() for match in map(RESULT.fullmatch, lines) if match]
        self.assertEqual(len(found), max(ranks, 1), lines)
        self.assertEqual(sum("step " in line for line in lines), 4, "one rank prints the progress")
        return found

    def check_solution(self, ranks, *arguments):
        found = self.results(ranks, *arguments)
        self.assertEqual(len({values[2:] for values in found}), 1, found)
        for value, expected in zip(found[0][2:], (2.0, -1.0, 0.5)):
            self.assertAlmostEqual(float(value), expected, delta=0.02)

    def test_two_ranks_find_the_line(self):
        self.check_solution(2)

    def test_half_precision_on_the_wire(self):
        self.check_solution(2, "--fp16-allreduce")

    def test_adasum(self):
        self.check_solution(2, "--op", "adasum")

    def test_no_rank_warns(self):
        result = self.run_ranks(2, "--steps", "1")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_one_process_needs_no_launcher(self):
        self.check_solution(0)


if __name__ == "__main__":
    unittest.main()
