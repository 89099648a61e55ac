"""fine_tune_script from outside: a model that Python exported is trained to the bits that Python's DistributedDataParallel gives it."""

import unittest

from programs import ProgramTest, losses
from support import write_cifar10


class FineTuneScript(ProgramTest):
    def test_it_has_the_bits_of_pythons_training_and_learns(self):
        data = write_cifar10(self.path("data"), 80, 20)
        model, tuned = self.path("net.pt"), self.path("tuned.pt")
        self.twin(0, "fine_tune_script", "--make", "--model", model)
        options = ("--data-dir", data, "--model", model, "--epochs", "2", "--batch-size", "8", "--lr", "0.01")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                lines = self.succeed(ranks, *options, "--out", tuned, "--step-losses", self.path("ours.csv"))
                self.assertIn("epoch 1: accuracy", "\n".join(lines))
                same = self.twin(ranks, "fine_tune_script", *options, "--compare-with", tuned, "--step-losses", self.path("theirs.csv"))
                self.assertEqual([line for line in same if not line.endswith(" equal")], [])
                self.assertEqual(len(same), 9)  # running statistics of the batch norm among them
                ours = losses(self.path("ours.csv"))
                self.check_close(ours, losses(self.path("theirs.csv")), 1e-6, least=10)
                self.assertLess(sum(ours[-4:]), sum(ours[:4]))

    def test_a_file_that_is_no_model_is_refused(self):
        with open(self.path("net.pt"), "w") as file:
            file.write("no model")
        self.fail_with(0, "zip archive", "--model", self.path("net.pt"), "--out", self.path("tuned.pt"))


if __name__ == "__main__":
    unittest.main()
