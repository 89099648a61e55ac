"""Ranks that the real mpirun of Open MPI and of MPICH start: they read their numbers from its variables and meet, without
ddprun and without being told where."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from free_port import free_port  # noqa: E402

PROGRAM = os.environ["PROGRAM"]
PATIENCE = 60  # seconds, for hangs
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "PET_", "OMPI_", "PMI", "SLURM_", "JSM_")
MPIRUNS = {
    "Open MPI": ("mpirun.openmpi", ["--oversubscribe"], lambda name, value: ["-x", f"{name}={value}"]),
    "MPICH": ("mpirun.mpich", [], lambda name, value: ["-genv", name, value]),
}
INSTALLED = {name: kind for name, kind in MPIRUNS.items() if shutil.which(kind[0])}


def start(kind, ranks, *command, variables=()):
    mpirun, options, set_variable = MPIRUNS[kind]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    words = [mpirun, *options, "-n", str(ranks)]
    for name, value in variables:
        words += set_variable(name, value)
    return subprocess.Popen([*words, *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


class Mpirun(unittest.TestCase):
    def each(self):
        for kind in MPIRUNS:
            with self.subTest(kind):
                if kind not in INSTALLED:
                    self.skipTest(f"{MPIRUNS[kind][0]} is not installed")
                yield kind

    def check(self, job, ranks):
        out, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 0, out + err)
        total = ranks * (ranks + 1) // 2
        self.assertEqual(sorted(out.splitlines()), [f"rank {rank} of {ranks} sum {total} backend shm" for rank in range(ranks)])

    def test_ranks_sum_over_all_of_them(self):
        for kind in self.each():
            for ranks in (2, 3):
                self.check(start(kind, ranks, PROGRAM, "join"), ranks)

    def test_one_rank_needs_nobody(self):
        for kind in self.each():
            job = start(kind, 1, PROGRAM, "join")
            out, err = job.communicate(timeout=PATIENCE)
            self.assertEqual(job.returncode, 0, out + err)
            self.assertIn("rank 0 of 1 sum 1", out)

    def test_a_script_between_mpirun_and_the_program_changes_nothing(self):
        for kind in self.each():
            self.check(start(kind, 2, "sh", "-c", f'"{PROGRAM}" join; exit $?'), 2)

    def test_two_jobs_at_once_do_not_meet(self):
        for kind in self.each():
            jobs = [start(kind, 2, PROGRAM, "join") for _ in range(2)]
            for job in jobs:
                self.check(job, 2)

    def test_an_address_that_is_given_counts(self):
        for kind in self.each():
            port = free_port()
            with socket.socket() as holder:
                holder.bind(("127.0.0.1", port))
                holder.listen()
                job = start(kind, 2, PROGRAM, "join", "--timeout_ms", "3000", variables=[("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(port))])
                _, err = job.communicate(timeout=PATIENCE)
            self.assertNotEqual(job.returncode, 0)
            self.assertIn(f"127.0.0.1:{port}", err)
            self.check(start(kind, 2, PROGRAM, "join", variables=[("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(port))]), 2)


if __name__ == "__main__":
    if not INSTALLED:
        print("neither mpirun.openmpi nor mpirun.mpich is installed")
        sys.exit(77)
    unittest.main()
