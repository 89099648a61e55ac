"""contrastive from outside: N ranks are one process with the whole batch, Python's bits, resume, and it learns without labels."""

import os
import re
import unittest

from programs import ProgramTest, losses
from support import DDPRUN, PROGRAM, read_bytes, read_safetensors, write_cifar10

BATCH = 16  # of all ranks


class Contrastive(ProgramTest):
    def setUp(self):
        super().setUp()
        self.data = write_cifar10(self.path("data"), 96, 20)

    def arguments(self, *more, folder="run"):
        return ("--data-dir", self.data, "--checkpoint-dir", self.path(folder), *more)

    def weights(self, folder, file="model.safetensors"):
        with open(self.path(folder, "latest")) as latest:
            return self.path(folder, latest.read().strip(), file)

    def train(self, ranks, name, *more):
        """The losses of its steps. One thread for each rank, as ddprun sets it, also for a process alone: more of them add in another
        order."""
        command = [DDPRUN, "-n", ranks, PROGRAM] if ranks else [PROGRAM]
        options = ("--batch-size", BATCH // max(1, ranks), "--step-losses", self.path(f"{name}.csv"), *more)
        result = self.run_command([*command, *self.arguments(*options, folder=name)], {"OMP_NUM_THREADS": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        return losses(self.path(f"{name}.csv"))

    def largest_difference(self, ours, expected):
        """Of two runs' weights."""
        ours, expected = (read_safetensors(self.weights(name)) for name in (ours, expected))
        self.assertEqual(sorted(ours), sorted(expected))
        return max(abs(a - b) for name in expected for a, b in zip(ours[name], expected[name], strict=True))

    def test_one_two_and_four_ranks_are_one_process_with_the_whole_batch(self):
        # The samples of a batch and their views are equal. Sums over a batch are in another order on every number of ranks, so the last
        # bits of float32 (6e-8 of a number's size) differ, and each step passes them on: after 18 steps by up to 1e-6 with AVX-512, and by 1e-5
        # on processors without it. Weights and losses are of the size of 1; another scale of the gradient changes weights by more than 1e-4.
        options = ("--epochs", "3")
        expected = self.train(0, "alone", *options)
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.check_close(self.train(ranks, f"ranks{ranks}", *options), expected, 2e-6, least=18)
                self.assertLess(self.largest_difference(f"ranks{ranks}", "alone"), 5e-5)
        self.assertEqual(read_bytes(self.weights("ranks1")), read_bytes(self.weights("alone")))

    def test_with_another_scale_of_the_gradient_the_weights_would_be_others(self):
        self.train(2, "right", "--epochs", "3", "--momentum", "0", "--lr", "0.02")
        self.train(2, "twice", "--epochs", "3", "--momentum", "0", "--lr", "0.04")  # as with twice the loss
        self.assertGreater(self.largest_difference("twice", "right"), 1e-4)

    def test_its_weights_and_losses_have_the_bits_of_pythons(self):
        options = ("--epochs", "3", "--seed", "5")
        for ranks in (0, 1, 2, 4):
            with self.subTest(ranks=ranks):
                ours = self.train(ranks, f"ours{ranks}", *options)
                theirs, weights = self.path(f"theirs{ranks}.csv"), self.path(f"theirs{ranks}.safetensors")
                batch = BATCH // max(1, ranks)
                self.twin(ranks, "contrastive", "--data-dir", self.data, "--batch-size", batch, *options, "--step-losses", theirs, "--weights", weights)
                self.assertEqual(ours, losses(theirs))
                self.check_same_weights(self.weights(f"ours{ranks}"), weights)

    def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(self):
        for ranks in (0, 4):
            with self.subTest(ranks=ranks):
                whole = self.train(ranks, f"whole{ranks}", "--epochs", "4")
                self.train(ranks, f"part{ranks}", "--epochs", "2")
                self.assertEqual(self.train(ranks, f"part{ranks}", "--epochs", "4", "--resume"), whole)
                for file in ("model.safetensors", "optim.safetensors"):
                    self.assertEqual(read_bytes(self.weights(f"part{ranks}", file)), read_bytes(self.weights(f"whole{ranks}", file)))

    def test_it_learns_to_recognize_pictures_without_their_labels(self):
        data = os.path.join(os.path.dirname(DDPRUN), "no such folder")
        self.fail_with(2, "no such folder", "--data-dir", data)
        lines = self.succeed(2, "--checkpoint-dir", self.path("run"), "--epochs", "6", "--batch-size", "32")  # the sample that comes with the project
        found = [tuple(map(int, line)) for line in re.findall(r"pair_accuracy [\d.]+ % \((\d+)/500\).*class_accuracy [\d.]+ % \((\d+)/500\)", "\n".join(lines))]
        self.assertEqual(len(found), 7, lines)
        self.assertGreater(found[-1][0], 2 * found[0][0], "of 500 pictures that it has not seen, which is the other view")
        self.assertGreater(found[-1][1], found[0][1], "whose neighbour has their class")

    def test_options_that_make_no_sense_are_refused(self):
        result = self.run_ranks(0, *self.arguments("--temperature", "0"))
        self.assertEqual(result.returncode, 105, result.stdout)
        self.assertTrue(result.stderr.startswith("--temperature: "), result.stderr)


if __name__ == "__main__":
    unittest.main()
