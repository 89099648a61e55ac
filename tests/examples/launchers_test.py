"""Each program under the launchers themselves: alone, ddprun, torchrun and mpirun, and with --resume under ddprun. Two ranks learn the same
whoever has started them. Slurm: slurm_test.py."""

import os
import shutil
import unittest

from every_program import NAMES, command, make_data, weights
from programs import HERE, PYTHON, run_in_host
from support import DDPRUN, ExampleTest

MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Launchers(ExampleTest):
    def setUp(self):
        super().setUp()
        make_data(self.folder)

    def start_under_torchrun(self, name, run):
        os.makedirs(self.path(run))
        result = run_in_host(self, 0, HERE / "torchrun.py", "--standalone", "--no-python", "--nproc-per-node=2",
                             *command(name, self.folder, run))
        self.assertEqual(result["status"], 0, f"{name}, {run}: {result['output']}{result['error']}")

    def start(self, name, run, *launcher, more=()):
        os.makedirs(self.path(run), exist_ok=True)
        result = self.run_command([*launcher, *command(name, self.folder, run), *more], AS_ROOT)
        self.assertEqual(result.returncode, 0, f"{name}, {run}: {result.stdout}{result.stderr}")
        return result.stdout

    def check_same(self, name, run):
        ours, expected = (weights(name, self.folder, folder) for folder in (run, f"{name}-ddprun"))
        self.assertEqual(ours, expected, f"{name}, {run}")

    def test_alone_under_ddprun_torchrun_and_mpirun_and_resumed(self):
        for name in NAMES:
            with self.subTest(program=name):
                self.start(name, f"{name}-alone")
                self.start(name, f"{name}-ddprun", DDPRUN, "-n", "2")
                if PYTHON:
                    self.start_under_torchrun(name, f"{name}-torchrun")
                    self.check_same(name, f"{name}-torchrun")
                if MPIRUN:
                    self.start(name, f"{name}-mpirun", MPIRUN, "--oversubscribe", "-n", "2")
                    self.check_same(name, f"{name}-mpirun")
                said = self.start(name, f"{name}-ddprun", DDPRUN, "-n", "2", more=("--resume",))
                self.assertIn(f"resumed from {self.path(name)}-ddprun", said)

    def test_what_is_said_of_the_place(self):
        name = "image_folder"
        self.assertIn("Not using distributed mode", self.start(name, "alone"))
        for run, launcher in (("ddprun", (DDPRUN, "-n", "2")), ("mpirun", (MPIRUN, "--oversubscribe", "-n", "2"))):
            if launcher[0]:
                said = self.start(name, run, *launcher)
                for rank in (0, 1):
                    self.assertIn(f"| distributed init (rank {rank}): env://", said, run)


if __name__ == "__main__":
    unittest.main()
