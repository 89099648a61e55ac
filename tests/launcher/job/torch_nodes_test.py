"""Nodes of the real torchrun among ours: as node 0 and as another one, twice under one number, and where it is refused."""

import os
import subprocess
import sys
import time

from harness import main, shell, wait_until
from torch_job_test import ALL_REDUCE, WithTorchrun, free_port


class TorchNodes(WithTorchrun):
    def place(self, port, nnodes=2):
        return ("--nnodes", str(nnodes), "--master-addr", "127.0.0.1", "--master-port", port)

    def test_uneven_nodes_reduce_together_with_torchrun_as_node_0(self):
        port = str(free_port())
        script = self.write("job.py", ALL_REDUCE)
        theirs = self.torchrun(*self.place(port), "--node-rank", "0", "--nproc-per-node", "2", script)
        ours = self.start(*self.place(port), "--node-rank", "1", "-n", "1", script, environment={"OMP_NUM_THREADS": "1"})
        status, _, err = ours.finish(120)
        self.assertEqual(status, 0, err)
        self.assertEqual(theirs.wait(120), 0)
        for rank in range(3):
            self.assertEqual(self.read(f"sum.{rank}"), "[6.0]")

    def test_a_torchrun_node_that_comes_a_second_time_ends_the_job(self):
        port = str(free_port())
        script = self.write("wait.sh", ': > "$DDPRUN_TEST_FOLDER/ready.$RANK.$$"; exec sleep 1000\n')
        ready = lambda: [name for name in os.listdir(self.folder) if name.startswith("ready.")]
        ours = self.start(*self.place(port), "--node-rank", "0", "-n", "1", "sh", script)
        theirs = ("--node-rank", "1", "--nproc-per-node", "1", "--no-python", "sh", script)
        self.torchrun(*self.place(port), *theirs)
        wait_until(lambda: len(ready()) == 2, "both ranks")
        self.torchrun(*self.place(port), *theirs)
        status, _, err = ours.finish(120)
        self.assertEqual(status, 125, err)
        self.assertIn("--node_rank 1 is used twice, both times by a torchrun node", err)

    def endpoint(self, port):
        return ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job")

    def test_a_torchrun_node_at_our_endpoint_is_refused_by_name(self):
        port = free_port()
        ours = self.start(*self.endpoint(port), "-n", "1", "true")
        wait_until(ours.supervisor, "the launcher")
        self.torchrun(*self.endpoint(port), "--nproc-per-node", "1", "--no-python", "true")
        status, _, err = ours.finish(120)
        self.assertEqual(status, 125, err)
        self.assertIn(f"a torchrun node answers at 127.0.0.1 port {port}, with which --rdzv_backend c10d is not possible", err)

    def test_we_are_refused_at_torchruns_endpoint(self):
        port = free_port()
        self.torchrun(*self.endpoint(port), "--nproc-per-node", "1", "--no-python", "true")
        listens = lambda: subprocess.run([sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"],
                                         stderr=subprocess.DEVNULL).returncode == 0
        wait_until(listens, "torchrun's store", 120)
        begin = time.monotonic()
        status, _, err = self.start(*self.endpoint(port), "-n", "1", *shell("true")).finish(120)
        self.assertEqual(status, 125, err)
        self.assertIn(f"a torchrun node answers at 127.0.0.1 port {port}", err)
        self.assertLess(time.monotonic() - begin, 10)  # 0.1 s on a quiet machine

    def test_node_0_twice_is_noticed_where_the_first_is_torchruns(self):
        port = str(free_port())
        self.torchrun(*self.place(port), "--node-rank", "0", "--nproc-per-node", "1", "--no-python", "true")
        listens = lambda: subprocess.run([sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"],
                                         stderr=subprocess.DEVNULL).returncode == 0
        wait_until(listens, "torchrun's store", 120)
        status, _, err = self.start(*self.place(port), "--node-rank", "0", "-n", "1", "true").finish(120)
        self.assertEqual(status, 125, err)
        self.assertIn("a store of a program other than ddprun is at 127.0.0.1", err)


if __name__ == "__main__":
    main()
