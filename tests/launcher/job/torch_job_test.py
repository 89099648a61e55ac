"""Unmodified torch.distributed programs under ddprun: env:// and gloo."""

import contextlib
import os
import signal
import subprocess
import sys

from harness import LauncherTest, free_port, main, processes_with

ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
assert dist.get_rank() == int(os.environ["RANK"])
total = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(total)
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, ("rank", dist.get_rank()))
assert gathered == [("rank", rank) for rank in range(dist.get_world_size())]
group = dist.new_group([0, 1])
dist.barrier()
open(os.path.join(os.environ["DDPRUN_TEST_FOLDER"], f"sum.{dist.get_rank()}"), "w").write(str(total.unique().tolist()))
dist.destroy_process_group()
# Without taking the interpreter down, in which torch aborts at times: a thread of its own is still there.
os._exit(0)
"""

FAIL = """
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2
    if dist.get_rank() == 1:
        dist.destroy_process_group()
        raise ValueError("no such shard")
    dist.barrier()
main()
"""


CRASH_ONCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(3)
dist.barrier()
dist.all_reduce(total)
open(os.path.join(os.environ["DDPRUN_TEST_FOLDER"], f"done.{dist.get_rank()}"), "a").write("x")
dist.destroy_process_group()
# Without taking the interpreter down, in which torch aborts at times: a thread of its own is still there.
os._exit(0)
"""


class WithTorchrun(LauncherTest):
    def torchrun(self, *arguments):
        process = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *arguments], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "DDPRUN_TEST_FOLDER": self.folder, "OMP_NUM_THREADS": "1"})
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.terminate()  # it ends its workers
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()
        # All but one that it was just starting.
        for pid in processes_with(f"DDPRUN_TEST_FOLDER={self.folder}\0"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class TorchJob(WithTorchrun):
    def test_four_ranks_on_a_port_of_the_users_choice(self):
        port = free_port()
        script = self.write("job.py", ALL_REDUCE)
        status, _, err = self.run_job("-n", "4", "--master_port", str(port), script, environment={"OMP_NUM_THREADS": "1"},
                                      patience=120)
        self.assertEqual(status, 0, err)
        for rank in range(4):
            self.assertEqual(self.read(f"sum.{rank}"), "[10.0]")

    def test_two_ranks_of_which_one_fails_after_an_all_reduce(self):
        script = self.write("job.py", FAIL)
        status, _, err = self.run_job("-n", "2", script, environment={"OMP_NUM_THREADS": "1"}, patience=120)
        self.assertEqual(status, 1, err)
        report = err[err.index("ddprun: rank 1 failed first"):]
        self.assertIn("ValueError: no such shard", report)

    def test_a_job_that_crashes_once_recovers_every_time(self):
        script = self.write("job.py", CRASH_ONCE)
        repetitions = int(os.environ.get("RESTART_REPETITIONS", "1"))
        for done in range(1, repetitions + 1):
            # Every second time on a fixed port, where an earlier attempt's connections could be in the way.
            port = ("--master_port", str(free_port())) if done % 2 else ()
            status, _, err = self.run_job("-n", "2", "--max-restarts", "1", *port, script,
                                          environment={"OMP_NUM_THREADS": "1"}, patience=120)
            self.assertEqual(status, 0, err)
            self.assertIn("rank 1 failed first: it exited with status 3", err)
            self.assertEqual([self.read(f"done.{rank}") for rank in range(2)], ["x" * done] * 2)

    def test_rank_0_hosts_the_store(self):
        script = self.write("job.py", ALL_REDUCE)
        status, _, err = self.run_job("-n", "2", "--store", "rank0", script, environment={"OMP_NUM_THREADS": "1"}, patience=120)
        self.assertEqual(status, 0, err)
        self.assertEqual(self.read("sum.1"), "[3.0]")

    def test_a_torchrun_node_joins_ours(self):
        port = str(free_port())
        script = self.write("job.py", ALL_REDUCE)
        place = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port)
        theirs = self.torchrun(*place, "--node-rank", "1", "--nproc-per-node", "1", script)
        ours = self.start(*place, "--node-rank", "0", "-n", "2", script, environment={"OMP_NUM_THREADS": "1"})
        status, _, err = ours.finish(120)
        self.assertEqual(status, 0, err)
        self.assertEqual(theirs.wait(120), 0, theirs.stderr.read())
        for rank in range(3):
            self.assertEqual(self.read(f"sum.{rank}"), "[6.0]")

    def test_our_node_joins_torchruns(self):
        port = str(free_port())
        script = self.write("show.sh", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK" > "$DDPRUN_TEST_FOLDER/rank.$RANK"\n')
        place = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port)
        theirs = self.torchrun(*place, "--node-rank", "0", "--nproc-per-node", "1", "--no-python", "sh", script)
        ours = self.start(*place, "--node-rank", "1", "-n", "2", "sh", script, environment={"OMP_NUM_THREADS": "1"})
        status, _, err = ours.finish(120)
        self.assertEqual(status, 0, err)
        self.assertEqual(theirs.wait(120), 0, theirs.stderr.read())
        self.assertEqual([self.read(f"rank.{rank}") for rank in range(3)], ["0 0 3 0\n", "1 0 3 1\n", "2 1 3 1\n"])


if __name__ == "__main__":
    main()
