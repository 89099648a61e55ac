"""cifar10 from outside: exact numbers over ranks, resume with the same bits, and what it does with bad input."""

import fcntl
import os
import re
import shlex
import signal
import subprocess
import threading
import unittest

from events import SESSION_START, events_in
from programs import ProgramTest, losses
from support import (
    DDPRUN,
    PATIENCE,
    PROGRAM,
    ExampleTest,
    read_bytes,
    read_safetensors,
    write_cifar10,
    write_safetensors,
)

EPOCH = re.compile(r"epoch (\d+): loss (\d+\.\d{4}), validation accuracy (\d+\.\d) % \((\d+)/(\d+)\)")


class Cifar10Test(ExampleTest):
    TRAIN, TEST = 203, 101  # neither two nor three ranks divide them

    def setUp(self):
        super().setUp()
        self.data = write_cifar10(self.path("data"), self.TRAIN, self.TEST)

    def arguments(self, *more, folder="run"):
        return ("--data-dir", self.data, "--checkpoint-dir", self.path(folder)) + more

    def epochs(self, lines):
        """[(epoch, loss, correct, total)]"""
        found = []
        for line in lines:
            match = EPOCH.fullmatch(line)
            if match:
                epoch, loss, percent, correct, total = match.groups()
                self.assertEqual(percent, f"{100 * int(correct) / int(total):.1f}")
                found.append((int(epoch), float(loss), int(correct), int(total)))
        return found

    def train(self, ranks, *more, folder="run"):
        return self.epochs(self.succeed(ranks, *self.arguments(*more, folder=folder)))

    def checkpoint(self, epoch, folder="run"):
        """The folder that is saved after epoch `epoch`, named by the number of finished epochs."""
        return self.path(folder, f"step-{epoch + 1:08d}")

    def weights(self, epoch, folder="run"):
        return os.path.join(self.checkpoint(epoch, folder), "model.safetensors")

    def state(self, epoch, folder="run"):
        """The bytes of model and optimizer."""
        return [read_bytes(os.path.join(self.checkpoint(epoch, folder), f"{name}.safetensors")) for name in ("model", "optim")]

    def saved(self, folder="run"):
        """What a run keeps; the lock belongs to whoever saves there."""
        return sorted(set(os.listdir(self.path(folder))) - {"writer.lock"})


class Training(Cifar10Test):
    def test_two_ranks_print_a_banner_and_a_line_per_epoch(self):
        learning = ("--batch-size", "4", "--lr", "0.02", "--momentum", "0.9", "--no-augment")
        lines = self.succeed(2, *self.arguments("--epochs", "3", *learning))
        self.assertEqual(
            lines[:2],
            [
                "2 ranks × batch 4 × accumulation 1 = global batch 8, device cpu, backend shm",
                f"dataset {self.data}: {self.TRAIN} training and {self.TEST} validation images",
            ],
        )
        self.assertEqual(len(lines), 5)
        epochs = self.epochs(lines)
        self.assertEqual([epoch[0] for epoch in epochs], [0, 1, 2])
        self.assertLess(epochs[2][1], epochs[0][1], "the loss falls")
        self.assertGreater(epochs[2][2], self.TEST // 5, "better than chance")
        self.assertEqual(self.saved(), ["latest", *(f"step-0000000{e}" for e in (1, 2, 3))])

    def test_validation_counts_every_image_once_whatever_the_number_of_ranks(self):
        # A learning rate of 0 leaves the initial weights, so every run validates the same network.
        results = [self.train(ranks, "--epochs", "1", "--lr", "0", folder=f"run{ranks}") for ranks in (0, 2, 3)]
        self.assertEqual({(correct, total) for [(_, _, correct, total)] in results}, {(results[0][0][2], self.TEST)})

    def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(self):
        options = ("--lr", "0.02", "--momentum", "0.9", "--batch-size", "8")
        for ranks in (2, 3):  # of three the last bits depend on the buckets of gradients, which the checkpoint holds
            with self.subTest(ranks=ranks):
                whole, parts = f"whole{ranks}", f"parts{ranks}"
                undisturbed = self.train(ranks, *options, "--epochs", "3", folder=whole)
                first = self.train(ranks, *options, "--epochs", "2", folder=parts)
                # Neither --lr nor --momentum: they are the checkpoint's.
                lines = self.succeed(ranks, *self.arguments("--batch-size", "8", "--epochs", "3", "--resume", folder=parts))
                self.assertIn(f"resumed from {self.checkpoint(1, parts)}: continuing with epoch 2", lines)
                self.assertEqual(first + self.epochs(lines), undisturbed)
                self.assertEqual(self.state(2, parts), self.state(2, whole))

    def signal_after_the_first_epoch(self, number, *arguments):
        """Two ranks under ddprun, which is sent the signal when epoch 0 is told: exit status and lines."""
        command = [DDPRUN, "--nproc_per_node", "2", PROGRAM, *arguments]
        settings = self.settings()
        settings["stderr"] = subprocess.DEVNULL  # progress; nobody reads it here
        with subprocess.Popen(command, **settings) as job:
            guard = threading.Timer(PATIENCE, job.kill)
            guard.start()
            lines = []
            for line in job.stdout:
                lines.append(re.sub(r"^\[\d+\] ", "", line.rstrip("\n")))
                if lines[-1].startswith("epoch 0:"):
                    job.send_signal(number)
            status = job.wait()
            guard.cancel()
        return status, lines

    def test_a_run_that_is_told_to_stop_saves_its_epoch_and_can_be_resumed_to_the_same_bits(self):
        options = ("--lr", "0.02", "--momentum", "0.9", "--batch-size", "8")
        endless = self.arguments(*options, "--epochs", "1000000", folder="parts")
        status, lines = self.signal_after_the_first_epoch(signal.SIGUSR1, *endless)
        self.assertEqual(status, 85, lines)
        self.assertEqual(lines[-1], "stopped on request: continue with --resume")
        first = self.epochs(lines)
        done = len(first)
        self.assertEqual(self.saved("parts"), ["latest", *(f"step-{epoch + 1:08d}" for epoch in range(done))])
        rest = self.train(2, *options, "--epochs", str(done + 1), "--resume", folder="parts")
        self.assertEqual(first + rest, self.train(2, *options, "--epochs", str(done + 1), folder="whole"))
        self.assertEqual(self.state(done, "parts"), self.state(done, "whole"))

    def test_a_job_that_the_launcher_starts_again_goes_on_where_it_was(self):
        whole = self.train(2, "--epochs", "3", folder="whole")
        program = shlex.quote(PROGRAM)
        script = f'case $TORCHELASTIC_RESTART_COUNT in 0) {program} "$@" --epochs 1; exit 1 ;; esac; exec {program} "$@" --epochs 3'
        result = self.run_command([DDPRUN, "-n", "2", "--max_restarts", "1", "sh", "-c", script, "sh", *self.arguments()])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.epochs(result.stdout.splitlines()), whole)
        self.assertEqual(self.state(2), self.state(2, "whole"))
        self.assertNotIn("previous-1", self.saved(), "the second attempt is not a new run")

    def test_resume_takes_a_folder_and_new_hyperparameters(self):
        self.train(0, "--epochs", "2")
        lines = self.succeed(
            0, *self.arguments("--epochs", "2", "--resume", self.checkpoint(0), "--lr", "0", folder="other")
        )
        self.assertEqual([epoch[0] for epoch in self.epochs(lines)], [1])
        self.assertEqual(read_safetensors(self.weights(1, "other")), read_safetensors(self.weights(0)))

    def test_resume_before_the_first_checkpoint_starts_from_the_beginning_and_says_so(self):
        lines = self.succeed(2, *self.arguments("--epochs", "1", "--resume"))
        self.assertIn(f"no checkpoint in {self.path('run')} yet: starting from the beginning", lines)
        self.assertEqual(len(self.epochs(lines)), 1)

    def test_a_finished_run_is_not_trained_further(self):
        self.train(0, "--epochs", "1")
        before = self.state(0)
        self.assertEqual(self.train(0, "--epochs", "1", "--resume"), [])
        self.assertEqual(self.state(0), before)

    def test_accumulation_follows_one_process_with_the_whole_batch(self):
        self.data = write_cifar10(self.path("even"), 200, 50)
        options = ("--epochs", "2", "--lr", "0.02", "--momentum", "0.9")
        [*whole] = self.train(0, *options, "--batch-size", "20", folder="whole")
        [*parts] = self.train(2, *options, "--batch-size", "5", "--accumulate", "2", folder="parts")
        for (_, loss, _, _), (_, expected, _, _) in zip(parts, whole):
            self.assertAlmostEqual(loss, expected, delta=1e-3 * expected)
        ours, expected = (read_safetensors(self.weights(1, folder)) for folder in ("parts", "whole"))
        self.assertEqual(sorted(ours), sorted(expected))
        for name, values in expected.items():
            for a, b in zip(ours[name], values):
                self.assertAlmostEqual(a, b, delta=1e-4, msg=name)

    def test_an_unfinished_last_accumulation_still_steps(self):
        # 203 samples on one rank in batches of 30: seven batches, accumulated by four: 4 + 3.
        [(_, loss, _, _)] = self.train(0, "--epochs", "1", "--batch-size", "30", "--accumulate", "4")
        self.assertLess(loss, 5)

    def test_pretrained_weights_reach_every_rank(self):
        self.train(0, "--epochs", "2", "--lr", "0.02", folder="first")
        before = self.weights(1, "first")
        self.train(2, "--epochs", "1", "--lr", "0", "--pretrained", before, folder="second")
        self.assertEqual(read_safetensors(self.weights(0, "second")), read_safetensors(before))

    def test_workers_change_nothing_and_augmentation_depends_on_the_samples_alone(self):
        augmented = self.train(1, "--epochs", "2", "--workers", "0", folder="a")
        self.assertEqual(self.train(1, "--epochs", "2", "--workers", "3", folder="b"), augmented)
        self.assertEqual(self.state(1, "a"), self.state(1, "b"))
        self.train(1, "--epochs", "1", folder="d")
        self.assertEqual(self.train(1, "--epochs", "2", "--resume", folder="d"), augmented[1:])
        self.assertNotEqual(self.train(1, "--epochs", "2", "--no-augment", folder="c"), augmented)

    def test_it_tells_tensorboard_a_table_and_the_terminal(self):
        more = ("--tensorboard", self.path("board"), "--metrics", self.path("metrics.csv"))
        result = self.run_ranks(2, *self.arguments("--epochs", "1", *more))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"(?m)^epoch 0: 100% \d+/\d+ \[.*it/s, loss=")
        self.assertEqual(len(result.stderr.splitlines()), 1, "rank 1 is silent")
        ((epoch, loss, correct, total),) = self.epochs(result.stdout.splitlines())
        self.train(2, "--epochs", "2", "--resume", *more)
        with open(self.path("metrics.csv")) as table:
            header, first, second = table.read().splitlines()
        self.assertEqual(header, "epoch,loss,accuracy")
        self.assertEqual(first.split(",")[0], "0")
        self.assertAlmostEqual(float(first.split(",")[1]), loss, delta=6e-5)
        self.assertEqual(float(first.split(",")[2]), correct / total)
        self.assertEqual(second.split(",")[0], "1")
        names = os.listdir(self.path("board"))
        self.assertEqual(len(names), 2, "a file per run, of rank 0 alone")
        with open(self.path("board", sorted(names)[0]), "rb") as file:
            content = file.read()
        for tag in (b"loss/train", b"accuracy/validation", b"images", b"conv1.weight", b"hparam/accuracy"):
            self.assertIn(tag, content)

        # What readers drop begins after the first run's last values, which are those of its last batch.
        first, second = (events_in(read_bytes(self.path("board", name))) for name in sorted(names))
        last_step = max(step for step, _ in first)
        self.assertEqual(last_step, -(-self.TRAIN // 2 // 16))
        self.assertEqual({step for step, content in first if b"accuracy/validation" in content}, {last_step})
        self.assertEqual(second[1], (last_step + 1, SESSION_START))
        self.assertEqual(min(step for step, content in second if b"loss/train" in content), last_step + 1)

    def test_the_seed_decides_the_run(self):
        losses = {self.train(0, "--epochs", "1", "--seed", seed, folder=f"run{i}")[0][1] for i, seed in enumerate((1, 1, 2))}
        self.assertEqual(len(losses), 2)

    def test_an_earlier_run_is_set_aside_by_a_new_one(self):
        self.train(0, "--epochs", "2")
        before = [self.state(epoch) for epoch in (0, 1)]
        lines = self.succeed(2, *self.arguments("--epochs", "1", "--seed", "5"))
        aside = self.path("run", "previous-1")
        self.assertTrue(any(aside in line for line in lines), lines)
        self.assertEqual([self.state(epoch, os.path.join("run", "previous-1")) for epoch in (0, 1)], before)
        self.assertEqual(self.saved(), ["latest", "previous-1", "step-00000001"])
        self.assertNotEqual(self.state(0), before[0])
        self.train(0, "--epochs", "1")
        self.assertIn("previous-2", os.listdir(self.path("run")))

    def test_a_run_that_is_under_way_is_neither_set_aside_nor_joined(self):
        self.train(0, "--epochs", "1")
        before = self.state(0)
        with open(self.path("run", "writer.lock"), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.fail_with(2, "one at a time can", *self.arguments("--epochs", "1", "--seed", "5"))
        self.assertEqual(self.saved(), ["latest", "step-00000001"])
        self.assertEqual(self.state(0), before)

    def test_outputs_that_cannot_be_written_are_refused_before_an_earlier_run_is_set_aside(self):
        self.train(0, "--epochs", "1")
        before = self.saved()
        for option, place in (("--metrics", "x.txt"), ("--step-losses", "x.txt"), ("--tensorboard", os.path.join(__file__, "runs"))):
            with self.subTest(option):
                result = self.run_ranks(2, *self.arguments("--epochs", "1", option, place))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(f"{option}: {place}", result.stderr)
                self.assertEqual(self.saved(), before)
                self.assertEqual([name for name in os.listdir(self.path()) if "previous" in name], [])

    def test_a_loss_that_is_not_finite_stops_all_ranks_without_a_checkpoint(self):
        result = self.fail_with(2, "the loss is nan at step", *self.arguments("--epochs", "2", "--lr", "1e30"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("the learning rate is too high (it is 1e+30)", result.stderr)
        self.assertEqual(self.epochs(result.stdout.splitlines()), [])
        self.assertEqual(self.saved(), [], "nothing of the failed epoch is saved")

    def test_divergence_after_a_good_epoch_keeps_its_checkpoint(self):
        self.train(2, "--epochs", "1")
        before = self.state(0)
        result = self.fail_with(2, "the loss is", *self.arguments("--epochs", "2", "--resume", "--lr", "1e30"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.saved(), ["latest", "step-00000001"])
        self.assertEqual(self.state(0), before)


class Twin(Cifar10Test, ProgramTest):
    TRAIN, TEST = 320, 100  # no batch of any test is left over

    def initial_weights(self):
        file = self.path("initial.pt")
        self.twin(0, "cifar10", "--make-weights", "--pretrained", file)
        return file

    def test_its_losses_and_accuracy_are_pythons(self):
        options = ("--epochs", "8", "--batch-size", "8", "--lr", "0.01", "--momentum", "0.9", "--pretrained", self.initial_weights())
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                ours, theirs = self.path(f"ours{ranks}.csv"), self.path(f"theirs{ranks}.csv")
                epochs = self.train(ranks, *options, "--no-augment", "--step-losses", ours, folder=f"run{ranks}")
                lines = self.twin(ranks, "cifar10", "--data-dir", self.data, *options, "--step-losses", theirs)
                self.check_close(losses(ours)[:20], losses(theirs)[:20], 1e-5)
                right = int(re.search(r"epoch 7: right (\d+) of 100", "\n".join(lines))[1])
                self.assertGreater(right, 50, "the data can be learnt")
                self.assertGreaterEqual(epochs[7][2], 0.95 * right)

    def test_two_ranks_are_one_process_with_twice_the_batch(self):
        options = ("--epochs", "2", "--lr", "0.01", "--momentum", "0.9", "--pretrained", self.initial_weights(), "--no-augment")
        for name, ranks, batch in (("two", 2, "8"), ("one", 0, "16")):
            self.train(ranks, *options, "--batch-size", batch, "--step-losses", self.path(f"{name}.csv"), folder=name)
        two, one = (losses(self.path(f"{name}.csv")) for name in ("two", "one"))
        self.check_close(two, one, 1e-5, least=40)

    def test_killed_at_a_random_moment_and_started_again_it_ends_with_the_same_weights(self):
        options = ("--epochs", "12", "--batch-size", "4", "--lr", "0.01", "--momentum", "0.9")
        whole = self.train(2, *options, *self.recorded("whole"), folder="whole")
        self.kill_at_random(2, "parts", *self.arguments(*options, *self.recorded("parts"), folder="parts"))
        self.wait_for_free("parts")
        rest = self.train(2, *options, *self.recorded("parts", seed=False), "--resume", folder="parts")
        self.check_same_losses("parts", "whole")
        self.assertEqual(rest, whole[12 - len(rest) :])
        self.assertEqual(self.state(11, "parts"), self.state(11, "whole"))

    def test_killed_as_soon_as_an_epoch_is_saved_it_has_told_of_it(self):
        options = ("--epochs", "4", "--batch-size", "32")
        self.train(2, *options, "--metrics", self.path("whole.csv"), folder="whole")
        kills = self.kill_at_each_save(2, "parts", *self.arguments(*options, "--metrics", self.path("parts.csv"), folder="parts"))
        self.assertGreater(kills, 0)
        self.assertEqual(read_bytes(self.path("parts.csv")), read_bytes(self.path("whole.csv")))


class MixedPrecision(Cifar10Test):
    OPTIONS = ("--batch-size", "8", "--lr", "0.02", "--momentum", "0.9")

    def test_every_level_learns(self):
        for level in ("O0", "O1", "O2", "O3"):
            for dtype in ("fp16", "bf16"):
                lines = self.succeed(2, *self.arguments(*self.OPTIONS, "--epochs", "3", "--amp", dtype, "--opt-level", level))
                self.assertIn(f"mixed precision: {dtype}, level {level}", lines)
                epochs = self.epochs(lines)
                self.assertLess(epochs[2][1], epochs[0][1], f"{level} {dtype}")

    def test_with_masters_a_resumed_run_has_the_bits_of_an_uninterrupted_one(self):
        options = (*self.OPTIONS, "--amp", "fp16", "--opt-level", "O2", "--accumulate", "2")
        whole = self.train(2, *options, "--epochs", "3", folder="whole")
        first = self.train(2, *options, "--epochs", "2", folder="parts")
        rest = self.train(2, *options, "--epochs", "3", "--resume", folder="parts")
        self.assertEqual(first + rest, whole)
        self.assertEqual(self.state(2, "parts"), self.state(2, "whole"))
        # Saved in single precision, so that a run without amp starts from it.
        [(_, loss, _, _)] = self.train(0, "--epochs", "1", "--lr", "0", "--pretrained", self.weights(2, "whole"), folder="next")
        self.assertLess(loss, whole[0][1])

    def test_a_level_needs_a_type(self):
        for options in (("--opt-level", "O2"), ("--amp", "fp8"), ("--amp", "bf16", "--opt-level", "O4")):
            result = self.run_ranks(0, *self.arguments(*options))
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, "--amp|--opt-level")


class BadInput(Cifar10Test):
    TRAIN, TEST = 20, 10

    def test_a_missing_data_folder(self):
        self.fail_with(2, "absent", "--data-dir", self.path("absent"), "--checkpoint-dir", self.path("run"))

    def test_a_truncated_batch_file(self):
        path = self.path("data", "data_batch_1.bin")
        os.truncate(path, os.path.getsize(path) - 1)
        self.fail_with(2, path, *self.arguments())

    def test_a_label_out_of_range(self):
        path = self.path("data", "test_batch.bin")
        with open(path, "r+b") as file:
            file.seek(3073 * 4)
            file.write(b"\x0a")
        self.fail_with(2, path, *self.arguments())

    def test_a_checkpoint_cut_short_is_passed_over_loudly_and_kept(self):
        self.train(2, "--epochs", "2")
        path = self.weights(1)
        os.truncate(path, os.path.getsize(path) - 1)
        before = read_bytes(path)
        result = self.run_ranks(2, *self.arguments("--epochs", "2", "--lr", "0", "--resume"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"skipped: the checkpoint {self.checkpoint(1)} is damaged: model.safetensors has", result.stderr)
        self.assertEqual([epoch[0] for epoch in self.epochs(result.stdout.splitlines())], [1])
        self.assertNotEqual(read_bytes(path), before, "the epoch was trained and saved again")

    def test_when_no_checkpoint_is_left_training_does_not_start_over(self):
        self.train(0, "--epochs", "1")
        path = self.weights(0)
        for size in (100, 0):
            os.truncate(path, size)
            before = read_bytes(path)
            self.fail_with(2, path.removesuffix("/model.safetensors"), *self.arguments("--epochs", "3", "--resume"))
            self.assertEqual(read_bytes(path), before)
            self.assertEqual(self.saved(), ["latest", "step-00000001"])

    def test_weights_of_another_model(self):
        other = self.path("other.safetensors")
        write_safetensors(other, {"weight": [1.0], "bias": [2.0]})
        result = self.fail_with(2, other, *self.arguments("--pretrained", other))
        self.assertIn("missing 'conv1.bias', 'conv1.weight'", result.stderr)
        self.assertIn("unexpected 'bias', 'weight'", result.stderr)
        self.assertNotIn("gloo", result.stderr, "no rank is left to guess from a lost connection")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_something_else_than_a_checkpoint_to_resume_from(self):
        weights = self.path("weights.safetensors")
        write_safetensors(weights, {})
        self.fail_with(2, weights, *self.arguments("--resume", weights))

    def test_a_missing_checkpoint(self):
        for option in ("--resume", "--pretrained"):
            self.fail_with(2, self.path("absent"), *self.arguments(option, self.path("absent")))

    def test_options_out_of_range(self):
        for option in (("--batch-size", "0"), ("--accumulate", "-1"), ("--epochs", "x"), ("--pretrained", "a", "--resume")):
            result = self.run_ranks(0, *self.arguments(*option))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(option[0], result.stderr)
            self.assertEqual(result.stderr.count("\n"), 2, result.stderr)  # the reason, and where to find help

    def test_a_rank_that_fails_alone_takes_the_others_with_it(self):
        script = f'[ "$RANK" = 1 ] && set -- --data-dir {self.path("absent")}; exec {shlex.quote(PROGRAM)} --checkpoint-dir run "$@"'
        result = self.run_command([DDPRUN, "-n", "2", "sh", "-c", script, "sh", "--data-dir", self.data])
        self.check_failure(result, self.path("absent"))

    def test_contradicting_variables_are_named(self):
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        result = self.run_command([PROGRAM, *self.arguments()], {**job, "RANK": "2"})
        self.check_failure(result, "RANK=2")
        del job["MASTER_ADDR"]
        result = self.run_command([PROGRAM, *self.arguments()], {**job, "RANK": "1"})
        self.check_failure(result, "MASTER_ADDR")


if __name__ == "__main__":
    unittest.main()
