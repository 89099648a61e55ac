"""The Horovod-style program finds the line it draws its points from, and all ranks agree on it to the last digit; its losses are
Python's; killed and started again it ends where it would have."""

import os
import re
import unittest

from programs import ProgramTest, losses
from support import read_bytes

RESULT = re.compile(r"rank (\d+) of (\d+): weight (\S+) (\S+), bias (\S+)")


class HorovodStyle(ProgramTest):
    def results_of(self, lines):
        return sorted(match.groups() for match in map(RESULT.fullmatch, lines) if match)

    def results(self, ranks, *arguments):
        lines = self.succeed(ranks, *arguments)
        found = self.results_of(lines)
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

    def test_its_losses_are_pythons_step_by_step(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                ours, theirs = self.path(f"ours{ranks}.csv"), self.path(f"theirs{ranks}.csv")
                found = self.results(ranks, "--step-losses", ours)
                (last,) = self.twin(ranks, "horovod_style", "--step-losses", theirs)
                self.check_close(losses(ours), losses(theirs), 1e-5, least=200)
                for value, expected in zip(found[0][2:], re.findall(r"-?\d+\.\d+", last), strict=True):
                    self.assertAlmostEqual(float(value), float(expected), delta=1e-3)

    def test_two_ranks_are_one_process_with_twice_the_batch(self):
        # The points of both ranks in one process, as the ranks draw them.
        self.succeed(2, "--steps", "20", "--step-losses", self.path("two.csv"))
        twice = self.path("twice.csv")
        self.twin(0, "horovod_style", "--steps", "20", "--all-ranks", "2", "--step-losses", twice)
        self.check_close(losses(self.path("two.csv")), losses(twice), 1e-5)

    def test_killed_at_a_random_moment_and_started_again_it_ends_with_the_same_weights(self):
        options = ("--steps", "3000", "--save-every", "100")
        whole = (*options, *self.recorded("whole", seed=False), "--checkpoint-dir", self.path("whole"))
        whole = self.results_of(self.succeed(2, *whole))
        parts = (*options, *self.recorded("parts", seed=False), "--checkpoint-dir", self.path("parts"))
        self.kill_at_random(2, "parts", *parts)
        self.wait_for_free("parts")
        lines = self.succeed(2, *parts, "--resume")
        self.assertTrue(any(line.startswith(f"resumed from {self.path('parts')}") for line in lines), lines)
        self.assertEqual(self.results_of(lines), whole)
        self.check_same_losses("parts", "whole")
        for file in ("model.safetensors", "optim.safetensors"):
            ours, expected = (read_bytes(self.path(folder, "step-00003000", file)) for folder in ("parts", "whole"))
            self.assertEqual(ours, expected, file)

    def test_tensorboard_gets_the_loss(self):
        self.succeed(2, "--steps", "3", "--tensorboard", self.path("board"))
        (name,) = os.listdir(self.path("board"))
        self.assertIn(b"loss", read_bytes(self.path("board", name)))


if __name__ == "__main__":
    unittest.main()
