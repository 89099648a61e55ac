"""Memory of fully sharded models, from outside: fsdp_memory_test.py DDPRUN PROGRAM [--slow].

Bytes per rank as LibTorch's allocator counts them, and a training under a limit in which DistributedDataParallel does not fit.
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DDPRUN, PROGRAM = sys.argv[1:3]
SLOW = "--slow" in sys.argv
RANKS = 4
# 24 blocks of more than 400 million parameters, or few small ones.
LAYERS, WIDTH = (24, 1184) if SLOW else (16, 512)
# Times the parameters' bytes. A rank of the sharded model has parameters, gradients and two states, divided by four, and
# a few units; DistributedDataParallel has the whole parameters and the buckets of their gradients before the first step.
LIMIT = 1.75
CONSTRUCTION_FAILS = 3


def calculator():
    """scripts/sharded_memory."""
    script = pathlib.Path(__file__).resolve().parents[2] / "scripts/sharded_memory"
    spec = importlib.util.spec_from_loader("sharded_memory", importlib.machinery.SourceFileLoader("sharded_memory", str(script)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CALCULATOR = calculator()


class MemoryTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_job(self, mode, limit):
        out = self.folder / f"{mode}{limit}"
        command = [DDPRUN, "-n", str(RANKS), PROGRAM, mode, str(LAYERS), str(WIDTH), str(limit), str(out)]
        job = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=1500)
        return job, [json.loads(path.read_text()) for path in sorted(self.folder.glob(out.name + ".*"))]

    def test_each_rank_has_its_part_and_at_most_two_units_beside_the_root(self):
        job, results = self.run_job("sharded", 0)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(len(results), RANKS)
        for one in results:
            print(one)
            parameters, unit, root = one["parameters"], one["unit"], one["root"]
            if SLOW:
                self.assertGreaterEqual(parameters, 400e6 * 4)
            model = CALCULATOR.Model(parameters=parameters / 4, largest_unit=unit / 4, root=root / 4)
            kept = CALCULATOR.kept(model, RANKS)
            # The calculator's page: activations of a short text are few bytes.
            self.assertGreaterEqual(one["persistent"], 0.99 * kept)
            self.assertLessEqual(one["most in training"], 1.05 * (kept + CALCULATOR.while_computing(model, RANKS)))
            # Parameters, gradients and two states; the steps' counters and the like are few bytes.
            self.assertLessEqual(one["persistent"], 4 * parameters / RANKS * 1.05)
            self.assertLessEqual(one["gathered"], 2 * unit + root)
            self.assertGreaterEqual(one["gathered"], unit + root)
            # The shards, one piece of at most 64 MiB or one parameter, and what stays in memory in the construction.
            self.assertLess(one["most in construction"], parameters / RANKS * 1.05 + (2 * 64 << 20) + unit)

    def test_it_trains_in_memory_in_which_ddp_cannot_be_constructed(self):
        job, results = self.run_job("sharded", LIMIT)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(len(results), RANKS)
        job, results = self.run_job("replicated", LIMIT)
        self.assertEqual(job.returncode, CONSTRUCTION_FAILS, job.stderr)
        self.assertEqual(results, [])
        # The limit is what it fails for.
        if not SLOW:
            job, results = self.run_job("replicated", 0)
            self.assertEqual(job.returncode, 0, job.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
