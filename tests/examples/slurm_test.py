"""Each program under a real Slurm of two nodes: a task for each rank by srun, and its own sbatch file, with a ddprun on each node."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launcher"))
from every_program import EXAMPLES, NAMES, PROGRAMS, command, make_data, weights
from slurm_cluster import Cluster, skip_reason
from support import DDPRUN

WHY_NOT = skip_reason()
PATIENCE = 120  # seconds, for hangs


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun_slurm_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        make_data(cls.folder)
        cls.cluster = Cluster(cls.folder, 2)
        cls.addClassCleanup(cls.cluster.close)

    def succeed(self, *words):
        path = f"{os.path.dirname(DDPRUN)}:{PROGRAMS}:{self.cluster.environment()['PATH']}"
        result = self.cluster.run(*words, check=False, variables={"PATH": path, "OMP_NUM_THREADS": "1"})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def check_same(self, name, run):
        """As two ranks of one host: gloo instead of shared memory, which adds two numbers as well."""
        reference = f"{name}-ddprun"
        if not pathlib.Path(self.folder, reference).exists():
            os.mkdir(pathlib.Path(self.folder, reference))
            variables = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OMPI_", "PET_"))}
            subprocess.run([DDPRUN, "-n", "2", *command(name, self.folder, reference)], check=True, cwd=self.folder, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**variables, "OMP_NUM_THREADS": "1"})  # fmt: skip
        self.assertEqual(weights(name, self.folder, run), weights(name, self.folder, reference), f"{name}, {run}")

    def test_a_task_for_each_rank(self):
        for name in NAMES:
            with self.subTest(program=name):
                run = f"{name}-srun"
                os.mkdir(pathlib.Path(self.folder, run))
                self.succeed("srun", "-N2", "--ntasks-per-node=1", *command(name, self.folder, run))
                self.check_same(name, run)

    def test_the_sbatch_file_of_each_program(self):
        for name in NAMES:
            with self.subTest(program=name):
                run = f"{name}-sbatch"
                out = pathlib.Path(self.folder, run)
                out.mkdir()
                script = (EXAMPLES / "slurm" / f"{name}.sbatch").read_text()
                # These nodes have no GPUs: one rank each. The rest stays as it is.
                for pattern, new in ((r"(?m)^#SBATCH --gpus-per-node=\d+\n", ""), (r" -n gpu", " -n 1")):
                    script, count = re.subn(pattern, new, script)
                    self.assertEqual(count, 1, f"{name}: {pattern}")
                (out / "job.sbatch").write_text(script)
                (out / "bin").mkdir()
                # Under the program's name: the same with little data behind the file's own options.
                words = " ".join(f"'{word}'" for word in command(name, self.folder, run))
                (out / "bin" / name).write_text(f'#!/bin/sh\necho "given: $*"\nexec {words}\n')
                (out / "bin" / name).chmod(0o755)
                log = out / "log"
                self.succeed("env", f"PATH={out}/bin:{os.path.dirname(DDPRUN)}:{self.cluster.environment()['PATH']}", "OMP_NUM_THREADS=1",
                             "sbatch", "--wait", f"--output={log}", out / "job.sbatch", "first", "second")  # fmt: skip
                said = log.read_text()
                self.assertEqual(said.count("given: "), 2, said)
                self.check_same(name, run)

    def test_options_of_the_sbatch_files_are_the_programs(self):
        for name in NAMES:
            script = (EXAMPLES / "slurm" / f"{name}.sbatch").read_text()
            helped = subprocess.run([PROGRAMS / name, "--help"], check=True, capture_output=True, text=True).stdout
            for option in set(re.findall(r"--[\w-]+", re.search(rf"{name} ((?:\\\n|.)*)", script.partition("\nsrun ")[2])[1])):
                self.assertIn(option, helped, name)


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped:", WHY_NOT)
        sys.exit(77)
    unittest.main()
