"""The store's proxy and the choice of an interface between hosts: network namespaces on a switch."""

import os
import signal
import sys

from harness import main, shell
from hosts import skip_reason
import hosts_test

WHY_NOT = skip_reason()

# Rank 0 counts, the others add; each waits for all.
MEET = r"""
import os, socket, struct
text = lambda data: struct.pack("<Q", len(data)) + data
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\4" + text(b"count") + struct.pack("<q", 1))
count = struct.unpack("<q", store.recv(8, socket.MSG_WAITALL))[0]
if count == int(os.environ["WORLD_SIZE"]):
    store.sendall(b"\1" + text(b"all") + text(b"yes"))
store.sendall(b"\6" + struct.pack("<Q", 1) + text(b"all"))
assert store.recv(1) == b"\0"
print("met by", os.environ["MASTER_ADDR"], flush=True)
"""


class Proxied(hosts_test.OnHosts):
    kind = 4

    def test_ranks_of_both_hosts_meet_by_the_proxy(self):
        script = self.write("meet.py", MEET)
        nodes = [self.node(rank, sys.executable, script, ranks=3, kind=self.kind, options=("--store_proxy", "all"))
                 for rank in (1, 0)]
        outputs = []
        for node in nodes:
            status, out, err = node.finish()
            self.assertEqual(status, 0, err)
            outputs.append(out)
        self.assertEqual(outputs[0].count("met by 127.0.0.1"), 3)
        self.assertEqual(outputs[1].count("met by " + self.hosts.address(0, self.kind)), 3)


# A value that takes longer on its way than a node may be silent, up and down again.
LARGE = r"""
import os, socket, struct, time
text = lambda data: struct.pack("<Q", len(data)) + data
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
store.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
if os.environ["RANK"] == "1":
    begin = time.monotonic()
    value = bytes(800_000)
    store.sendall(b"\1" + text(b"value") + text(value) + b"\3" + text(b"value"))
    assert store.recv(8 + len(value), socket.MSG_WAITALL) == text(value)
    print("took", time.monotonic() - begin, flush=True)
    store.sendall(b"\1" + text(b"end") + text(b""))
store.sendall(b"\6" + struct.pack("<Q", 1) + text(b"end"))
assert store.recv(1) == b"\0"
"""


class SlowLinks(hosts_test.OnHosts):
    kinds = (4,)

    def test_a_large_value_on_its_way_does_not_look_like_a_frozen_node(self):
        for host in range(2):
            self.hosts.slow_down(host, "2mbit", "400ms")
        script = self.write("large.py", LARGE)
        nodes = [self.node(rank, sys.executable, script, options=("--store_proxy", "all", "--node_timeout", "1.5")) for rank in (1, 0)]
        outputs = []
        for node in nodes:
            status, out, err = node.finish()
            self.assertEqual(status, 0, err)
            outputs.append(out)
        self.assertGreater(float(outputs[0].split()[-1]), 5)  # 3.2 s each way at least

    def test_a_launcher_that_freezes_while_a_value_is_on_its_way_is_noticed(self):
        for host in range(2):
            self.hosts.slow_down(host, "2mbit", "400ms")
        script = self.write("large.py", LARGE.replace("begin = ", "open(os.environ['DDPRUN_TEST_FOLDER'] + '/ready', 'w').close(); begin = "))
        nodes = [self.node(rank, sys.executable, script, options=("--store_proxy", "all", "--node_timeout", "1.5")) for rank in (1, 0)]
        self.wait_for_files("ready")
        frozen = nodes[0].supervisor()
        os.kill(frozen, signal.SIGSTOP)
        status, _, err = nodes[1].finish()
        self.assertEqual(status, 1, err)
        self.assertIn("the launcher of node 1 (host", err)
        os.kill(frozen, signal.SIGCONT)
        self.assertEqual(nodes[0].finish()[0], 1)


class ProxiedOverIpv6(Proxied):
    kinds = (6,)
    kind = 6


class ProxiedOverIpv4(Proxied):
    kinds = (4,)


class Interfaces(hosts_test.OnHosts):
    SHOW = 'echo "gloo ${GLOO_SOCKET_IFNAME-unset} nccl ${NCCL_SOCKET_IFNAME-unset}" > rank.$RANK'

    def add_second(self, host):
        name = self.hosts.names[host]
        self.hosts.ip("-n", name, "link", "add", "back0", "type", "veth", "peer", "back1")
        self.hosts.ip("-n", name, "addr", "add", f"10.204.0.{host + 1}/24", "dev", "back0")
        self.hosts.ip("-n", name, "link", "set", "back0", "up")

    def shown(self, *options):
        nodes = [self.node(rank, *shell(self.SHOW), options=options) for rank in (1, 0)]
        self.end_well(nodes)
        return [self.read(f"rank.{rank}") for rank in (0, 1)]

    def test_the_one_that_reaches_the_others_where_there_are_several(self):
        self.add_second(1)
        self.assertEqual(self.shown(), ["gloo unset nccl unset\n", "gloo eth0 nccl =eth0\n"])
        self.add_second(0)
        self.assertEqual(self.shown(), ["gloo eth0 nccl =eth0\n"] * 2)
        self.assertEqual(self.shown("--iface", "10.204.0.0/16"), ["gloo back0 nccl =back0\n"] * 2)
        self.assertEqual(self.shown("--iface", "back0", "-x", "GLOO_SOCKET_IFNAME=mine"), ["gloo mine nccl =back0\n"] * 2)

    def test_one_that_is_not_there_is_refused_with_those_that_are(self):
        nodes = [self.node(rank, "true", options=("--iface", "ib7") if rank == 1 else ()) for rank in (0, 1)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 125, err)
            self.assertIn("--iface ib7: this machine has no such interface that is up; it has lo", err)


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
