"""Unmodified torch.distributed programs under ddprun: env:// and gloo."""

import socket

from harness import LauncherTest, main

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
        raise ValueError("no such shard")
    dist.barrier()
main()
"""


class TorchJob(LauncherTest):
    def test_four_ranks_on_a_port_of_the_users_choice(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        script = self.write("job.py", ALL_REDUCE)
        status, _, err = self.run_job("-n", "4", "--master_port", str(port), script, environment={"OMP_NUM_THREADS": "1"},
                                      patience=120)
        self.assertEqual(status, 0, err)
        for rank in range(4):
            self.assertEqual(self.read(f"sum.{rank}"), "[10.0]")

    def test_two_ranks_of_which_one_fails_after_an_all_reduce(self):
        script = self.write("job.py", FAIL)
        status, _, err = self.run_job("-n", "2", script, environment={"OMP_NUM_THREADS": "1"}, patience=120)
        self.assertEqual(status, 1)
        report = err[err.index("ddprun: rank 1 failed first"):]
        self.assertIn("ValueError: no such shard", report)


if __name__ == "__main__":
    main()
