"""ddprun and programs of the library under a real Slurm, whose daemons this test starts and ends (slurm_cluster.py)."""

import os
import re
import shutil
import sys
import tempfile
import time
import unittest

from harness import DDPRUN, wait_until
from slurm_cluster import Cluster, skip_reason

WHY_NOT = skip_reason()
PROJECT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
TOY = os.environ.get("TOY_LINEAR")
CIFAR10 = os.environ.get("CIFAR10")
PATIENCE = 120  # seconds, for hangs
KILL_WAIT = 6
ONCE = ("srun", "-N2", "--ntasks-per-node=1", "ddprun", "--no_prefix")
SHOW = 'echo "$RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $(hostname) $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID"'


def example(name):
    return os.path.join(PROJECT, "examples", "slurm", name)


class Slurm(unittest.TestCase):
    own_name_is_loopback = False

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun_slurm_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.cluster = Cluster(folder.name, 2, kill_wait=KILL_WAIT, own_name_is_loopback=cls.own_name_is_loopback)
        cls.addClassCleanup(cls.close_cluster)

    @classmethod
    def close_cluster(cls):
        cls.cluster.close()
        left = cls.cluster.hosts.left()
        if left:
            raise AssertionError(f"left behind: {left}")

    def run_on_cluster(self, *words, **variables):
        path = os.path.dirname(DDPRUN) + ":" + self.cluster.environment()["PATH"]
        return self.cluster.run(*words, check=False, variables={"PATH": path, "OMP_NUM_THREADS": "1", **variables})

    def succeed(self, *words, **variables):
        result = self.run_on_cluster(*words, **variables)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def write(self, name, text):
        self.cluster.write(name, text)
        return self.cluster.path(name)

    def read(self, name):
        with open(self.cluster.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def submit(self, *words, **variables):
        """Submits a job; returns its number."""
        return re.search(r"Submitted batch job (\d+)", self.succeed("sbatch", *words, **variables))[1]

    def state(self, job):
        return re.search(r"JobState=(\S+)", self.succeed("scontrol", "show", "job", job))[1]

    def wait_for_state(self, job, *states):
        return wait_until(lambda: self.state(job) in states and self.state(job), f"job {job} is {states}; it wrote " + self.output(job), PATIENCE)

    def output(self, job):
        try:
            return self.read(f"slurm-{job}.out")
        except FileNotFoundError:
            return ""

    def wait_for_output(self, job, text, times=1):
        try:
            wait_until(lambda: self.output(job).count(text) >= times, text, PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}; the job wrote {self.output(job)}") from None


class OnePerNode(Slurm):
    own_name_is_loopback = True

    def test_one_ddprun_on_each_node_is_one_job_of_all(self):
        out = self.succeed(*ONCE, "-n", "2", "sh", "-c", SHOW)
        lines = sorted(out.splitlines())
        self.assertEqual([line.split()[0] for line in lines], ["0/4", "1/4", "2/4", "3/4"])
        self.assertEqual([line.split()[1] for line in lines], ["0/2", "0/2", "1/2", "1/2"])
        self.assertEqual([line.split()[2] for line in lines], ["n01", "n01", "n02", "n02"])
        self.assertEqual(len({tuple(line.split()[3:]) for line in lines}), 1)
        self.assertRegex(lines[0], r" n01:1\d{4} \d+\.0$")

    def test_options_count_more_than_slurm(self):
        out = self.succeed(*ONCE, "--master_port", "29777", "--rdzv_id", "mine", "sh", "-c", SHOW)
        self.assertEqual({" ".join(line.split()[3:]) for line in out.splitlines()}, {"n01:29777 mine"})
        out = self.succeed(*ONCE, "--nnodes", "1", "sh", "-c", SHOW)
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["0/1", "0/1"])
        out = self.succeed(*ONCE, "sh", "-c", SHOW, PET_STANDALONE="1")
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["0/1", "0/1"])
        result = self.run_on_cluster(*ONCE, "--nnodes", "3", "true")
        self.assertEqual(result.returncode, 125)
        self.assertIn("--nnodes 3 (the command line), but Slurm started ddprun on 2 nodes (SLURM_STEP_NUM_NODES=2)", result.stderr)

    def test_nodes_meet_without_numbers_too(self):
        out = self.succeed(*ONCE, "--rdzv_backend", "c10d", "--node_order", "host", "sh", "-c", SHOW)
        self.assertEqual(sorted(line.split()[0] for line in out.splitlines()), ["0/2", "1/2"])

    def test_show_env_says_what_slurm_told(self):
        out = self.succeed(*ONCE, "--show_env")
        for text in ("scheduler: Slurm", "--nnodes 2: SLURM_STEP_NUM_NODES=2", "--node_rank 1: SLURM_NODEID=1",
                     "--master_addr n01: the first host of SLURM_STEP_NODELIST=n[01-02]",
                     f"--grace 5.0: Slurm kills {KILL_WAIT} s after TERM (KillWait of {self.cluster.path('slurm.conf')})"):
            self.assertIn(text, out)

    def test_several_on_a_node_are_refused(self):
        result = self.run_on_cluster("srun", "-N1", "--ntasks-per-node=2", "ddprun", "true")
        self.assertEqual(result.returncode, 125)
        self.assertIn("srun started ddprun 2 times on this node (SLURM_STEP_TASKS_PER_NODE=2)", result.stderr)

    def test_a_batch_script_without_srun_is_refused_on_several_nodes_only(self):
        script = self.write("without_srun.sh", f"#!/bin/sh\nddprun sh -c '{SHOW}'\n")
        several = self.submit("-N2", script)
        self.wait_for_state(several, "FAILED", "COMPLETED")
        self.assertIn("this Slurm job has 2 nodes (SLURM_JOB_NUM_NODES=2), and ddprun was started on one of them", self.output(several))
        one = self.submit("-N1", script)
        self.wait_for_state(one, "FAILED", "COMPLETED")
        self.assertIn("0/1 0/1", self.output(one))
        self.assertIn("0/1 0/1", self.succeed("salloc", "-N2", "ddprun", "sh", "-c", SHOW))

    def test_a_shell_of_salloc_starts_ddprun_with_srun(self):
        out = self.succeed("salloc", "-N2", *ONCE, "sh", "-c", SHOW)
        self.assertEqual(sorted(line.split()[0] for line in out.splitlines()), ["0/2", "1/2"])

    def test_two_steps_of_a_job_run_beside_each_other(self):
        script = self.write("steps.sh", "#!/bin/sh\nfor step in 1 2; do srun --overlap --ntasks-per-node=1 ddprun --no_prefix sh -c "
                                        f"'{SHOW}; sleep 1' & done\nwait\n")
        job = self.submit("-N2", script)
        self.wait_for_state(job, "COMPLETED", "FAILED")
        lines = [line for line in self.output(job).splitlines() if re.match(r"\d/2 ", line)]
        self.assertEqual(len(lines), 4, self.output(job))
        self.assertEqual(len({line.split()[3] for line in lines}), 2)

    def test_a_failed_rank_ends_the_step_with_its_status(self):
        result = self.run_on_cluster(*ONCE, "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; exit 7")
        self.assertEqual(result.returncode, 7, result.stderr)

    def test_ddprun_ends_before_slurm_kills_it(self):
        stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done"
        script = self.write("stubborn.sh", f'#!/bin/sh\nsrun --ntasks-per-node=1 ddprun sh -c "{stubborn}"\n')
        job = self.submit("-N2", script)
        self.wait_for_output(job, "ready", times=2)
        begin = time.monotonic()
        self.succeed("scancel", job)
        self.wait_for_state(job, "CANCELLED")
        # Its own status on both nodes, after the whole grace time; what Slurm kills is "Killed".
        self.wait_for_output(job, "Exited with exit code 143", times=2)
        self.assertGreater(time.monotonic() - begin, KILL_WAIT - 2)


@unittest.skipUnless(TOY, "without the library")
class OnePerRank(Slurm):
    def lines(self, ranks, out):
        found = sorted(re.findall(rf"rank (\d+) of {ranks}: process", out), key=int)
        self.assertEqual(found, [str(rank) for rank in range(ranks)], out)

    def test_tasks_are_ranks(self):
        self.lines(4, self.succeed("srun", "-N2", "--ntasks-per-node=2", TOY))

    def test_uneven_tasks_are_ranks(self):
        self.lines(3, self.succeed("srun", "-N2", "-n3", TOY))

    def test_tasks_of_one_node_meet_on_loopback(self):
        self.lines(2, self.succeed("srun", "-N1", "-n2", TOY))

    def test_the_recipe_for_tasks(self):
        job = self.submit("--wait", example("tasks.sbatch"), TOY)
        self.lines(4, self.output(job))

    def test_a_batch_script_without_srun_is_told_so(self):
        script = self.write("toy.sh", f"#!/bin/sh\n{TOY}\n")
        job = self.submit("-N1", "-n2", script)
        self.wait_for_state(job, "FAILED", "COMPLETED")
        self.assertIn("started by srun, which did not start this process", self.output(job))


OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_tcp_if_include": "10.203.0.0/24",
            "OMPI_MCA_oob_tcp_if_include": "10.203.0.0/24"}


@unittest.skipUnless(shutil.which("mpirun.openmpi"), "Open MPI is not installed")
class MpirunOnSeveralHosts(Slurm):
    """Open MPI, which asks Slurm for the hosts and starts its daemons there."""

    def mpirun(self, *words):
        return self.run_on_cluster("salloc", "-N2", "--ntasks-per-node=2", "mpirun.openmpi", *words, **OPEN_MPI)

    def test_one_ddprun_on_each_is_one_job_of_all(self):
        result = self.mpirun("--map-by", "ppr:1:node", "-x", "MASTER_ADDR=n01", "ddprun", "-n", "2", "--no_prefix", "sh", "-c", SHOW)
        lines = sorted(result.stdout.splitlines())
        self.assertEqual([line.split()[:3] for line in lines], [["0/4", "0/2", "n01"], ["1/4", "0/2", "n01"], ["2/4", "1/2", "n02"],
                                                                ["3/4", "1/2", "n02"]], result.stdout + result.stderr)

    def test_two_on_a_host_are_refused(self):
        result = self.mpirun("--map-by", "ppr:2:node", "-x", "MASTER_ADDR=n01", "ddprun", "true")
        self.assertEqual(result.returncode, 125, result.stderr)
        self.assertIn("Open MPI started ddprun 2 times on this node (OMPI_COMM_WORLD_LOCAL_SIZE=2)", result.stderr)

    @unittest.skipUnless(TOY, "without the library")
    def test_ranks_of_the_library_must_be_told_where_to_meet(self):
        result = self.mpirun("-n", "4", "--map-by", "ppr:2:node", "-x", "MASTER_ADDR=n01", "-x", "MASTER_PORT=29500", TOY)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4: process", result.stdout)), list("0123"), result.stdout + result.stderr)
        result = self.mpirun("-n", "4", "--map-by", "ppr:2:node", TOY)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("-x MASTER_ADDR=HOST -x MASTER_PORT=PORT", result.stderr)


@unittest.skipUnless(CIFAR10, "without the library")
class Requeue(Slurm):
    def test_the_recipe_saves_is_requeued_and_goes_on(self):
        checkpoints = self.cluster.path("checkpoints")
        arguments = ["-n", "1", CIFAR10, "--epochs", "1000", "--batch-size", "512", "--checkpoint-dir", checkpoints]
        job = self.submit(example("train.sbatch"), *arguments)
        self.wait_for_output(job, "epoch")
        self.succeed("scancel", "--signal=TERM", job)  # as --signal=TERM@120 does when the time is near its end
        self.wait_for_output(job, "received SIGTERM")
        wait_until(lambda: "Restarts=1" in self.succeed("scontrol", "show", "job", job), "requeued", PATIENCE)
        # Slurm lets two minutes pass between the two.
        wait_until(lambda: self.state(job) == "PENDING", "pending", PATIENCE)
        self.succeed("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.wait_for_output(job, "resumed from " + checkpoints)
        self.succeed("scancel", "--signal=TERM", job)
        self.wait_for_output(job, "received SIGTERM", times=2)
        self.succeed("scancel", job)
        self.assertNotIn("Traceback", self.output(job))


class Recipes(unittest.TestCase):
    def test_the_page_shows_the_scripts_that_are_run_here(self):
        with open(os.path.join(PROJECT, "docs", "many-nodes.md"), encoding="utf-8") as file:
            page = file.read()
        for name in ("train.sbatch", "tasks.sbatch"):
            with open(example(name), encoding="utf-8") as file:
                block = "".join(("    " + line).rstrip(" ") for line in file)
            self.assertIn(block.replace("    \n", "\n"), page, name)


if __name__ == "__main__":
    if WHY_NOT:
        print(WHY_NOT)
        sys.exit(77)
    unittest.main()
