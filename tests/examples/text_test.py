"""text from outside: Python's losses, accumulation, one process or two, kill and resume, what it writes at the end."""

import csv
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from programs import ProgramTest, losses
from support import DDPRUN, PATIENCE, PROGRAM, read_bytes, slow

SENTENCE = "The quick brown fox jumps over the lazy dog; {} dogs and {} foxes watch. "


class Text(ProgramTest):
    SIZE = ("--context", "32", "--width", "32", "--heads", "2", "--layers", "2", "--warmup-steps", "5")

    def setUp(self):
        super().setUp()
        self.text = self.path("tale.txt")
        with open(self.text, "w") as file:
            # 320 sequences for training: no batch of any test is left over.
            file.write("".join(SENTENCE.format(i, 7 * i % 11) for i in range(200))[:11380])

    def arguments(self, *more, folder="run"):
        return ("--text", self.text, "--checkpoint-dir", self.path(folder), *self.SIZE, *more)

    def initial_weights(self):
        file = self.path("initial.pt")
        self.twin(0, "text", "--make-weights", "--weights", file, *self.SIZE)
        return file

    def run_both(self, ranks, *options):
        ours, theirs = self.path(f"ours{ranks}.csv"), self.path(f"theirs{ranks}.csv")
        weights = self.initial_weights()
        self.succeed(ranks, *self.arguments(*options, "--weights", weights, "--step-losses", ours, folder=f"run{ranks}"))
        self.twin(ranks, "text", "--text", self.text, *self.SIZE, *options, "--weights", weights, "--step-losses", theirs)
        return losses(ours), losses(theirs)

    def test_its_losses_are_pythons_step_by_step(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                ours, theirs = self.run_both(ranks, "--epochs", "3", "--accumulate", "2", "--batch-size", "8", "--lr", "0.01")
                self.check_close(ours, theirs, 1e-5)

    def test_from_files_of_the_same_tokens_it_learns_the_same(self):
        converter = pathlib.Path(__file__).parents[2] / "examples/text/make_tokens.py"
        subprocess.run([sys.executable, "-B", converter, self.text, self.path("tokens")], check=True, timeout=PATIENCE)
        options = ("--epochs", "2", "--batch-size", "8", "--lr", "0.01", "--seed", "3")
        files = [self.path("text.csv"), self.path("tokens.csv")]
        for source, file in zip((("--text", self.text), ("--tokens", self.path("tokens"))), files):
            self.succeed(2, *source, "--checkpoint-dir", file + ".run", *self.SIZE, *options, "--step-losses", file)
        self.assertEqual(losses(files[1]), losses(files[0]))
        self.assertGreater(len(losses(files[0])), 10)

    def test_in_bfloat16_they_are_pythons_too(self):
        ours, theirs = self.run_both(0, "--epochs", "2", "--batch-size", "16", "--lr", "0.01", "--bf16")
        self.check_close(ours, theirs, 2e-2)

    def test_with_blocks_that_are_computed_again_the_losses_keep_every_digit(self):
        options = ("--epochs", "2", "--batch-size", "8", "--accumulate", "2", "--lr", "0.01", "--dropout", "0.1", "--seed", "3")
        files = []
        for more in ((), ("--recompute",)):
            files.append(self.path(f"losses{len(more)}.csv"))
            self.succeed(2, *self.arguments(*options, *more, "--step-losses", files[-1], folder=f"run{len(more)}"))
        self.assertEqual(losses(files[1]), losses(files[0]))

    def test_divided_over_the_ranks_its_losses_are_pythons(self):
        options = ("--epochs", "3", "--accumulate", "2", "--batch-size", "8", "--lr", "0.01", "--shard")
        for more in ((), ("--recompute",), ("--bf16",)):
            with self.subTest(more=more):
                ours, theirs = self.run_both(2, *options, *more)
                self.check_close(ours, theirs, 2e-2 if more == ("--bf16",) else 1e-5)

    def test_divided_over_the_ranks_it_learns_as_if_each_had_the_whole_model(self):
        # From initial weights of its own, which no rank ever has as a whole.
        options = ("--epochs", "2", "--batch-size", "4", "--lr", "0.01", "--seed", "3", "--sample", "40")
        files, texts = [], []
        for more in ((), ("--shard",), ("--shard", "--recompute")):
            files.append(self.path(f"losses{len(more)}.csv"))
            texts.append(self.succeed(2, *self.arguments(*options, *more, "--step-losses", files[-1], folder=f"run{len(more)}"))[-1])
        # The norm by which gradients are clipped is summed in another order.
        self.check_close(losses(files[1]), losses(files[0]), 1e-5)
        self.assertEqual(losses(files[2]), losses(files[1]))
        self.assertEqual(texts[2], texts[1])

    def test_divided_over_the_ranks_it_continues_with_the_same_losses(self):
        options = ("--epochs", "1", "--batch-size", "4", "--save-every", "20", "--sample", "0", "--shard", "--dropout", "0.1")
        self.succeed(2, *self.arguments(*options, *self.recorded("whole"), folder="whole"))
        shutil.copytree(self.path("whole", "step-00000020"), self.path("part", "step-00000020"))
        self.assertIn("continuing with step 20", "\n".join(
            self.succeed(2, *self.arguments(*options, *self.recorded("part", seed=False), "--resume", folder="part"))))  # fmt: skip
        self.assertEqual(losses(self.path("part.csv")), losses(self.path("whole.csv"))[20:])

    def test_two_ranks_are_one_process_with_twice_the_batch_however_it_is_accumulated(self):
        weights = self.initial_weights()
        results = []
        for name, ranks, batch, accumulate in (("one", 0, 16, 1), ("two", 2, 8, 1), ("parts", 2, 2, 4)):
            file = self.path(f"{name}.csv")
            shape = ("--batch-size", str(batch), "--accumulate", str(accumulate), "--epochs", "3")
            self.succeed(ranks, *self.arguments(*shape, "--weights", weights, "--step-losses", file, folder=name))
            results.append(losses(file))
        self.check_close(results[1], results[0], 1e-5)
        self.check_close(results[2], results[0], 1e-5)

    def test_it_learns_the_text_and_writes_some(self):
        size = ("--epochs", "25", "--batch-size", "8", "--lr", "0.01", "--sample", "200", "--temperature", "0.3")
        lines = self.succeed(2, *self.arguments(*size))
        bits = float(re.search(r"epoch 24: .*bits_per_byte (\S+)", "\n".join(lines))[1])
        self.assertLess(bits, 1.0)
        self.assertRegex("\n".join(lines), r"(?s)The .*(quick brown fox|lazy dog)")

    @slow
    def test_killed_at_a_random_moment_and_started_again_it_ends_with_the_same_weights(self):
        options = ("--epochs", "6", "--batch-size", "4", "--accumulate", "2", "--save-every", "3", "--dropout", "0.1")
        self.succeed(2, *self.arguments(*options, *self.recorded("whole"), folder="whole"))
        self.kill_at_random(2, "parts", *self.arguments(*options, *self.recorded("parts"), folder="parts"))
        self.wait_for_free("parts")
        self.succeed(2, *self.arguments(*options, *self.recorded("parts", seed=False), "--resume", folder="parts"))
        self.check_same_losses("parts", "whole")
        with open(self.path("whole", "latest")) as latest:
            newest = latest.read().strip()
        self.check_same_weights(self.path("parts", newest, "model.safetensors"), self.path("whole", newest, "model.safetensors"))

    def test_killed_as_soon_as_an_epoch_is_saved_it_has_told_of_it(self):
        options = ("--epochs", "4", "--batch-size", "4", "--save-every", "1000", "--sample", "0")
        self.succeed(2, *self.arguments(*options, "--metrics", self.path("whole.csv"), folder="whole"))
        kills = self.kill_at_each_save(2, "parts", *self.arguments(*options, "--metrics", self.path("parts.csv"), folder="parts"))
        self.assertGreater(kills, 0)
        self.assertEqual(read_bytes(self.path("parts.csv")), read_bytes(self.path("whole.csv")))

    def test_three_ranks_go_on_in_mid_epoch_with_the_same_weights(self):
        # Buckets of the first step are others than those of later ones, and with them gloo's order of three summands:
        # the checkpoint has them.
        options = ("--epochs", "1", "--batch-size", "4", "--save-every", "20", "--sample", "0")

        def train(folder, *more):
            arguments = self.arguments(*options, *more, folder=folder)
            result = self.run_command([DDPRUN, "-n", 3, PROGRAM, *arguments])
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout

        train("whole")
        shutil.copytree(self.path("whole", "step-00000020"), self.path("part", "step-00000020"))
        self.assertIn("continuing with step 20", train("part", "--resume"))
        self.check_same_weights(*(self.path(run, "step-00000027", "model.safetensors") for run in ("part", "whole")))

    def test_stopped_where_an_epoch_ends_it_has_the_epoch_s_row(self):
        # Saved in the epoch where that ends, 80 batches, and nowhere else.
        rows = self.path("rows.csv")
        options = ("--epochs", "4", "--batch-size", "4", "--save-every", "80", "--sample", "0", "--metrics", rows)
        with subprocess.Popen([PROGRAM, *self.arguments(*options)], **self.settings()) as job:
            begin = time.monotonic()
            while not os.path.exists(self.path("run")):
                self.assertLess(time.monotonic() - begin, PATIENCE, "it does not begin")
                time.sleep(0.01)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(PATIENCE), 85, job.stderr.read())
        self.succeed(0, *self.arguments(*options, "--resume"))
        with open(rows, newline="") as file:
            self.assertEqual([row["epoch"] for row in csv.DictReader(file)], ["0", "1", "2", "3"])

    def test_it_can_be_stopped_while_it_writes(self):
        arguments = self.arguments("--epochs", "1", "--batch-size", "4", "--sample", "1000000000")
        with subprocess.Popen([PROGRAM, *arguments], **self.settings()) as job:
            self.addCleanup(job.kill)
            begin = time.monotonic()
            while not os.path.exists(self.path("run", "step-00000080")):
                self.assertLess(time.monotonic() - begin, PATIENCE, "it does not end its epoch")
                time.sleep(0.01)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(PATIENCE), 0, job.stderr.read())

    def test_goes_on_from_a_pt_file_that_was_converted(self):
        options = ("--epochs", "1", "--batch-size", "4", "--save-every", "40", "--sample", "0")
        self.succeed(0, *self.arguments(*options, folder="whole"))
        tool = os.path.join(os.path.dirname(DDPRUN), "ddprun-checkpoint")
        file = self.path("half.pt")
        self.assertEqual(self.run_command([tool, "convert", self.path("whole", "step-00000040"), file]).returncode, 0)
        lines = self.succeed(0, *self.arguments(*options, "--resume", file, folder="part"))
        self.assertIn(f"resumed from {file}: continuing with step 40", lines)
        self.check_same_weights(*(self.path(run, "step-00000080", "model.safetensors") for run in ("part", "whole")))

    def test_without_a_prompt_the_text_begins_with_a_line(self):
        lines = self.succeed(0, *self.arguments("--epochs", "1", "--prompt", "", "--sample", "5"))
        # An empty line, then what was written; the standard output would end with the epoch's line.
        begin = next(i for i, line in enumerate(lines) if "bits_per_byte" in line)
        self.assertEqual(lines[begin + 1], "", lines)

    def test_options_that_make_no_sense_are_refused_before_anything_is_trained(self):
        for option, value in (("--val-ratio", "1"), ("--val-ratio", "-1"), ("--clip", "0"), ("--temperature", "1e-40"), ("--sample", "-5")):
            with self.subTest(option=option, value=value):
                result = self.run_ranks(0, *self.arguments(option, value))
                self.assertEqual(result.returncode, 105, result.stdout)
                self.assertTrue(result.stderr.startswith(f"{option}: "), result.stderr)

    def test_a_text_that_is_too_short_is_refused(self):
        with open(self.text, "w") as file:
            file.write("short")
        self.fail_with(2, "is too short for a sequence of 32", *self.arguments())


if __name__ == "__main__":
    unittest.main()
