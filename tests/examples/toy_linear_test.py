"""toy_linear's whole output: which samples each rank sees, and the parameters that every rank loads back."""

import os
import re
import unittest

from support import PROGRAM, ExampleTest, read_safetensors

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


class ToyLinear(ExampleTest):
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
