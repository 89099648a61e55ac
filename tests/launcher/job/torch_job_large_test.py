"""gloo jobs of many ranks, and jobs that crash once and recover, with unmodified torch.distributed programs."""

from harness import LauncherTest, main
from torch_job_test import ALL_REDUCE

CRASH_ONCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 2
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(3)
dist.barrier()
dist.destroy_process_group()
# Without taking the interpreter down, in which torch aborts at times: a thread of its own is still there.
os._exit(0)
"""


class LargeTorchJob(LauncherTest):
    def test_many_ranks(self):
        script = self.write("job.py", ALL_REDUCE)
        for ranks in (2, 8, 16):
            with self.subTest(ranks=ranks):
                status, _, err = self.run_job("-n", str(ranks), script, environment={"OMP_NUM_THREADS": "1"}, patience=400)
                self.assertEqual(status, 0, err)
                for rank in range(ranks):
                    self.assertEqual(self.read(f"sum.{rank}"), f"[{ranks * (ranks + 1) / 2}]")

    def test_a_job_that_crashes_once_recovers_every_time(self):
        script = self.write("job.py", CRASH_ONCE)
        for _ in range(5):
            status, _, err = self.run_job("-n", "2", "--max-restarts", "1", script, environment={"OMP_NUM_THREADS": "1"}, patience=200)
            self.assertEqual(status, 0, err)
            self.assertIn("rank 1 failed first: it exited with status 3", err)


if __name__ == "__main__":
    main()
