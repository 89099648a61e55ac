"""toy_linear's whole output: which samples each rank sees, and the parameters that every rank loads back; Python's losses; killed and
started again it ends where it would have."""

import os
import re
import unittest

from events import scalars
from programs import ProgramTest, losses
from support import PROGRAM, read_bytes, read_safetensors, slow

TWO_RANKS = """\
rank 0 of 2: process PID, device cpu
rank 0: epoch 0: samples [1, 4]
rank 0: epoch 1: samples [2, 3]
rank 0: saved toy_linear.safetensors
rank 0: loaded weight 0.5870, bias 0.7373 on cpu
rank 1 of 2: process PID, device cpu
rank 1: epoch 0: samples [2, 3]
rank 1: epoch 1: samples [4, 1]
rank 1: loaded weight 0.5870, bias 0.7373 on cpu
"""

# The same step, since the four samples are the same; the parameters are PyTorch's for seed 0 and two steps of SGD.
ALONE = """\
rank 0 of 1: process PID, device cpu
rank 0: epoch 0: samples [1, 2, 4, 3]
rank 0: epoch 1: samples [2, 4, 3, 1]
rank 0: saved toy_linear.safetensors
rank 0: loaded weight 0.5870, bias 0.7373 on cpu
"""


class ToyLinear(ProgramTest):
    def normalised(self, lines):
        """Ranks in order, process ids left out."""
        pids = [int(pid) for pid in re.findall(r"process (\d+)", "\n".join(lines))]
        self.assertEqual(len(pids), len(set(pids)), "each rank is a process of its own")
        lines = [re.sub(r"process \d+", "process PID", line) for line in lines]
        return "".join(line + "\n" for line in sorted(lines, key=lambda line: line.split()[1].rstrip(":")))

    def test_two_ranks_print_exactly_this(self):
        self.assertEqual(self.normalised(self.succeed(2)), TWO_RANKS)

    def test_one_process_needs_no_launcher(self):
        self.assertEqual(self.normalised(self.succeed(0)), ALONE)
        self.assertEqual(sorted(os.listdir(self.folder)), ["toy_linear.safetensors"])
        tensors = read_safetensors(self.path("toy_linear.safetensors"))
        self.assertEqual(sorted(tensors), ["bias", "weight"])
        self.assertAlmostEqual(tensors["weight"][0], 0.5869874, places=5)
        self.assertAlmostEqual(tensors["bias"][0], 0.7373266, places=5)

    def test_without_set_epoch_every_epoch_has_the_same_partition(self):
        lines = self.normalised(self.succeed(2, "--no-set-epoch", "--epochs", "3")).splitlines()
        seen = [line for line in lines if "samples" in line]
        expected = [f"rank 0: epoch {e}: samples [1, 4]" for e in range(3)]
        expected += [f"rank 1: epoch {e}: samples [2, 3]" for e in range(3)]
        self.assertEqual(seen, expected)

    def test_four_ranks_see_one_sample_each(self):
        lines = self.normalised(self.succeed(4, "--epochs", "1")).splitlines()
        seen = sorted(line.split("samples ")[1] for line in lines if "samples" in line)
        self.assertEqual(seen, ["[1]", "[2]", "[3]", "[4]"])

    def test_old_launchers_local_rank_is_accepted(self):
        for spelling in (["--local_rank", "0"], ["--local_rank=0"], ["--local-rank=0"], ["--local-rank", "0"]):
            self.assertEqual(self.normalised(self.succeed(0, *spelling)), ALONE)

    def test_a_checkpoint_that_cannot_be_written_is_named_by_every_rank(self):
        with open(self.path("file"), "w") as file:
            file.write("in the way")
        result = self.fail_with(2, "cannot save the checkpoint file/inside", "--checkpoint", "file/inside")
        self.assertNotIn("loaded", result.stdout)

    def test_its_losses_and_weights_are_pythons(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                file, board, theirs = (self.path(f"{name}{ranks}") for name in ("line.safetensors", "board", "theirs.csv"))
                self.succeed(ranks, "--epochs", "20", "--checkpoint", file, "--tensorboard", board)
                (last,) = self.twin(ranks, "toy_linear", "--epochs", "20", "--step-losses", theirs)
                ours = scalars(board, "loss")
                self.assertEqual(list(ours), list(range(20)))
                self.check_close(list(ours.values()), losses(theirs), 1e-5)
                found = read_safetensors(file)
                for name, value in re.findall(r"(\w+) (\S+)", last):
                    self.assertAlmostEqual(found[name][0], float(value), delta=1e-6, msg=name)
                    self.assertEqual(scalars(board, name)[19], found[name][0])

    def test_two_ranks_are_one_process_with_twice_the_batch(self):
        for ranks in (0, 2):
            self.succeed(ranks, "--epochs", "20", "--tensorboard", self.path(f"board{ranks}"))
        one, two = (list(scalars(self.path(f"board{ranks}"), "loss").values()) for ranks in (0, 2))
        self.check_close(two, one, 1e-5)

    def test_it_goes_on_where_it_was_saved(self):
        whole, parts = self.path("whole.safetensors"), self.path("parts.safetensors")
        self.succeed(2, "--epochs", "5", "--checkpoint", whole, "--tensorboard", self.path("whole"))
        board = ("--checkpoint", parts, "--tensorboard", self.path("parts"))
        self.assertNotIn("resumed", "\n".join(self.succeed(2, "--epochs", "2", "--resume", *board)))
        lines = self.succeed(2, "--epochs", "5", "--resume", *board)
        self.assertIn(f"resumed from {parts}: continuing with epoch 2", lines)
        self.assertEqual(sorted(line for line in lines if "epoch 1:" in line), [])
        self.assertEqual(read_bytes(parts), read_bytes(whole))
        self.assertEqual(scalars(self.path("parts"), "loss"), scalars(self.path("whole"), "loss"))

    @slow
    def test_killed_at_a_random_moment_and_started_again_it_ends_with_the_same_weights(self):
        options = ("--epochs", "1000")
        self.succeed(2, *options, "--checkpoint", self.path("whole.safetensors"))
        parts = (*options, "--checkpoint", self.path("parts", "line.safetensors"))
        self.kill_at_random(2, "parts", *parts)
        lines = self.succeed(2, *parts, "--resume")
        self.assertTrue(any(line.startswith("resumed from ") for line in lines), lines[:5])
        self.assertEqual(read_bytes(self.path("parts", "line.safetensors")), read_bytes(self.path("whole.safetensors")))

    def test_unknown_options_are_refused(self):
        result = self.run_ranks(0, "--epoch-count", "3")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--epoch-count", result.stderr)

    @unittest.skipUnless(os.environ.get("TORCH_PYTHON"), "LibTorch has no Python")
    def test_pytorchs_launchers_run_it(self):
        """torchrun; and torch.distributed.launch, which passes --local-rank=N to a Python program."""
        with open(self.path("start.py"), "w") as file:
            file.write(f"import os, sys\nassert '--local-rank=' in sys.argv[1]\nos.execv({PROGRAM!r}, sys.argv)\n")
        python = os.environ["TORCH_PYTHON"]
        for launcher in (["run", "--no-python", PROGRAM], ["launch", "start.py"]):
            module, program = "torch.distributed." + launcher[0], launcher[1:]
            result = self.run_command([python, "-m", module, "--standalone", "--nproc-per-node=2", *program])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(self.normalised(result.stdout.splitlines()), TWO_RANKS)


if __name__ == "__main__":
    unittest.main()
