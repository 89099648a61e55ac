"""The store as ranks of another node see it, through their ddprun: every operation of the real client, and whole jobs."""

import os
import signal
import sys
import time
import unittest

from harness import LauncherTest, free_port, main, shell, wait_until
import store_torch_test

JOB = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
group = dist.new_group(list(range(0, dist.get_world_size(), 2)))
total = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(total)
dist.barrier()
even = torch.ones(1)
if dist.get_rank() % 2 == 0:
    dist.all_reduce(even, group=group)
print("rank", dist.get_rank(), total[0].item(), even.item(), os.environ["MASTER_ADDR"], flush=True)
dist.destroy_process_group()
# Without taking the interpreter down, in which torch aborts at times: a thread of its own is still there.
os._exit(0)
"""


def nodes_of(test, nnodes, ranks, program, options=(), **more):
    port = free_port()
    return port, [test.start("--nnodes", str(nnodes), "--node_rank", str(node), "--master_addr", "127.0.0.1",
                             "--master_port", str(port), "-n", str(ranks), *options, *program, **more)
                  for node in range(nnodes)]


def clients_of(port):
    """Connections to `port` of this machine, by the ends that made them."""
    count = 0
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as table:
            for line in table.readlines()[1:]:
                fields = line.split()
                count += int(fields[2].rsplit(":", 1)[1], 16) == port and fields[3] == "01"
    return count


class ProxiedStore(store_torch_test.StoreWithTorch):
    """Each test of the store, at the second node."""

    def setUp(self):
        LauncherTest.setUp(self)
        wait = 'while [ ! -e finish ]; do sleep 0.01; done'
        self.master_port, nodes = nodes_of(
            self, 2, 1, shell('[ $RANK = 0 ] || { echo $MASTER_PORT > port.tmp; mv port.tmp port; }\n' + wait),
            options=("--store_proxy", "all"))
        self.other, self.job = nodes
        self.wait_for_files("port")
        self.port = int(self.read("port"))
        self.assertNotEqual(self.port, self.master_port)
        self.store = self.connect()

    def tearDown(self):
        super().tearDown()
        status, _, err = self.other.finish()
        self.assertEqual(status, 0, err)
        self.assertNotIn("closed the connection", err)

    def test_clients_need_no_connection_of_their_own_to_the_store(self):
        stores = [self.connect() for _ in range(8)]
        for store in stores:
            store.add("here", 1)
        self.assertEqual(self.store.add("here", 0), 8)
        self.assertEqual(clients_of(self.master_port), 0)


del store_torch_test.StoreWithTorch  # its own file runs it


class ProxiedJobs(LauncherTest):
    def all_end_well(self, nodes):
        outputs = []
        for node in nodes:
            status, out, err = node.finish()
            self.assertEqual(status, 0, err)
            outputs.append(out)
        return "".join(outputs)

    def test_torch_ranks_of_all_nodes_form_their_groups(self):
        script = self.write("job.py", JOB)
        # A rank imports torch for two seconds of a core.
        for proxy, ranks in (("all", 2), ("library", 1)):
            # Beside six of those a launcher of a busy machine may not run for the usual 0.7 s.
            _, nodes = nodes_of(self, 3, ranks, [sys.executable, script], options=("--store_proxy", proxy, "--node_timeout", "30"))
            out = self.all_end_well(nodes)
            world = 3 * ranks
            total = float(sum(range(world + 1)))
            for rank in range(world):
                even = float((world + 1) // 2) if rank % 2 == 0 else 1.0
                self.assertIn(f"rank {rank} {total} {even} 127.0.0.1", out, proxy)

    def test_only_with_all_do_ranks_see_the_proxy_as_the_master(self):
        script = 'echo "$MASTER_ADDR $MASTER_PORT ${DDPRUN_STORE-none} ${DDPRUN_STORE_PROXY-none}" > rank.$RANK'
        for proxy in ("all", "library", "off"):
            port, nodes = nodes_of(self, 2, 1, shell(script), options=("--store_proxy", proxy),
                                   environment={"DDPRUN_STORE_PROXY": "of a ddprun outside"})
            self.all_end_well(nodes)
            self.assertEqual(self.read("rank.0"), f"127.0.0.1 {port} none none\n")
            master, master_port, store, at = self.read("rank.1").split()
            if proxy == "off":
                self.assertEqual((master_port, store, at), (str(port), "none", "none"))
                continue
            self.assertEqual(store, f"127.0.0.1:{port}")
            self.assertEqual(at.split(":")[0], "127.0.0.1")
            self.assertEqual(master_port, at.split(":")[1] if proxy == "all" else str(port))
            self.assertEqual(master, "127.0.0.1")

    def test_a_rank_that_never_comes_is_named_behind_a_proxy_too(self):
        # Without torch, whose import alone can take so long on a busy machine.
        script = self.write("late.py", "import os, socket, struct, time\nif os.environ['RANK'] == '3': time.sleep(1000)\n"
                            "s = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
                            "s.sendall(struct.pack('<BI', 0, 0x3C85F7CE))\ns.recv(1)\n")
        _, nodes = nodes_of(self, 2, 2, [sys.executable, script],
                            options=("--store_proxy", "all", "--start_timeout", "15"))
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 124, err)
            self.assertIn("rank 3 had not reached the store within the 15 s", err)
            self.assertNotIn("rank 2 had", err)

    def test_the_end_of_a_proxy_ends_the_job_everywhere(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            _, nodes = nodes_of(self, 2, 2, shell(": > ready.$RANK; exec sleep 1000"), options=("--store_proxy", "all"))
            self.wait_for_files(*[f"ready.{rank}" for rank in range(4)])
            supervisor = nodes[1].supervisor()
            os.kill(supervisor, number)
            begin = time.monotonic()
            status, _, err = nodes[0].finish()
            self.assertNotEqual(status, 0)
            self.assertIn("the launcher of node 1", err)
            self.assertLess(time.monotonic() - begin, 20)
            if number == signal.SIGSTOP:
                os.kill(supervisor, signal.SIGCONT)
            self.assertNotEqual(nodes[1].finish()[0], 0)
            for node in nodes:
                wait_until(lambda node=node: not node.members(), "nothing is left")
            for rank in range(4):
                os.remove(self.path(f"ready.{rank}"))


if __name__ == "__main__":
    main()
